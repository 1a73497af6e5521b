# A Redis server: keys by its own benchmark, a snapshot by a forked child, the log rewritten by
# another. What it reads back after a restart is what it held.
need redis-server redis-server
need redis-benchmark redis-tools
socket="$PWD/redis.sock"
ask() { redis-cli -s "$socket" "$@"; }
answers() { ask ping 2>/dev/null | grep -q PONG; }
start() {
	redis-server --port 0 --unixsocket "$socket" --dir "$PWD" --appendonly yes \
		--enable-debug-command local --save '' >>redis.log &
	server=$!
	await answers
}
is_done() { ask info persistence | grep -q "$1:0"; }

start
redis-benchmark -s "$socket" -q -n 3000 -r 2000 -t set,incr,lpush,sadd,hset,zadd,mset >bench.log
before=$(ask debug digest)
ask bgsave
await is_done rdb_bgsave_in_progress
ask bgrewriteaof
await is_done aof_rewrite_in_progress
ask info persistence | grep -q rdb_last_bgsave_status:ok
ask info persistence | grep -q aof_last_bgrewrite_status:ok
ask shutdown
wait $server
start
after=$(ask debug digest)
ask shutdown
wait $server
[ "$before" = "$after" ]
redis-check-rdb dump.rdb >/dev/null
