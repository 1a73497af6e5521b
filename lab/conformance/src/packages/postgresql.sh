# PostgreSQL under pgbench: no transaction fails, and after a restart the books balance.
for directory in /usr/lib/postgresql/*/bin; do PATH="$PATH:$directory"; done
need postgres postgresql
initdb -D data -A trust -N >init.log
echo "listen_addresses = ''" >>data/postgresql.conf
echo "unix_socket_directories = '$PWD'" >>data/postgresql.conf
export PGHOST="$PWD" PGDATABASE=postgres
server() { pg_ctl -D data -w -t 100 -l log "$@" >>ctl.log; }
sum() { psql -qAt -c "select coalesce(sum($1), 0) from $2"; }

server start
pgbench -q -i -s 1 2>>init.log
pgbench -c 4 -j 2 -T 10 >bench.log 2>&1
grep -q 'number of failed transactions: 0' bench.log
count=$(sed -n 's/^number of transactions actually processed: \([0-9]*\).*/\1/p' bench.log)
server -m fast stop
server start
accounts=$(sum abalance pgbench_accounts)
tellers=$(sum tbalance pgbench_tellers)
branches=$(sum bbalance pgbench_branches)
history=$(sum delta pgbench_history)
noted=$(psql -qAt -c 'select count(*) from pgbench_history')
server -m fast stop
echo "$count transactions: $accounts $tellers $branches $history $noted"
[ "$accounts" = "$tellers" ] && [ "$accounts" = "$branches" ] && [ "$accounts" = "$history" ]
[ "$noted" = "$count" ]
