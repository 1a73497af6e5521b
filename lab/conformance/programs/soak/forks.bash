# Forks for every line: subshells, substitutions, statuses of children.
token=$1 status=$2 lap=0
while :; do
    lap=$((lap + 1)) total=0 text=
    for i in 1 2 3 4 5 6; do
        word=$(echo $((i * 7919)) | rev)
        (exit $((i % 5))) || text+=" $?"
        total=$((total + 10#$word))
        text+=$(tr 0-9 a-j <<< $total)
    done
    digest=$(sha256sum <<< "$text $total")
    echo "$token $lap ${digest%% *}" >> $token.log
    [ -e stop ] && break
    sleep 0.3
done
echo "$token ended after $lap"
exit $status
