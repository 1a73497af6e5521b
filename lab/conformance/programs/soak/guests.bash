# Programs in C with several threads each, one after another.
token=$1 status=$2 lap=0
export TRAVEL_MS=40
while :; do
    lap=$((lap + 1))
    for guest in ../guests/*; do $guest 2>&1; echo "${guest##*/} $?"; done > $token.lap
    [ $lap = 1 ] && cp $token.lap $token.first
    diff $token.first $token.lap >&2
    digest=$(sha256sum < $token.lap)
    echo "$token $lap ${digest%% *}" >> $token.log
    [ -e stop ] && break
    sleep 0.3
done
rm $token.lap $token.first
echo "$token ended after $lap"
exit $status
