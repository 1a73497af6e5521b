# Packs and unpacks, each lap by fresh processes that compute for a while.
token=$1 status=$2 lap=0
while :; do
    lap=$((lap + 1))
    xz -3 -c ../words > $token.xz
    digest=$(cat $token.xz | tee $token.copy | xz -dc | cat - $token.copy | sha256sum)
    rm $token.xz $token.copy
    echo "$token $lap ${digest%% *}" >> $token.log
    [ -e stop ] && break
    sleep 0.3
done
echo "$token ended after $lap"
exit $status
