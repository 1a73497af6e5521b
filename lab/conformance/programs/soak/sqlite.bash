# A shell that talks to a database through two pipes.
token=$1 status=$2 lap=0
coproc BASE { exec sqlite3 -batch $token.db; }
echo "CREATE TABLE t (lap, n, word);" >&${BASE[1]}
while :; do
    lap=$((lap + 1))
    {
        echo "BEGIN;"
        for n in {1..60}; do echo "INSERT INTO t VALUES ($lap, $n, hex($n * 7919));"; done
        echo "COMMIT; SELECT count(*), sum(n * n), group_concat(word, '') FROM t WHERE lap = $lap;"
        echo "DELETE FROM t WHERE lap < $lap;"
    } >&${BASE[1]}
    read -r answer <&${BASE[0]}
    digest=$(sha256sum <<< "$answer")
    echo "$token $lap ${digest%% *}" >> $token.log
    [ -e stop ] && break
    sleep 0.3
done
pid=$BASE_PID
echo ".exit 5" >&${BASE[1]}
wait $pid
[ $? = 5 ] || status=98
rm $token.db
echo "$token ended after $lap"
exit $status
