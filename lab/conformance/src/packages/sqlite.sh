# SQLite in WAL mode, by several processes at once: none loses a row, and the file is sound.
need sqlite3 sqlite3
sqlite3 file.db 'pragma journal_mode = wal; create table rows(writer, number);' >/dev/null
write() {
	for number in $(seq 40); do
		sqlite3 -cmd '.timeout 60000' file.db "insert into rows values($1, $number);"
	done
}
writers=
for writer in 1 2 3; do
	write $writer &
	writers="$writers $!"
done
for writer in $writers; do wait "$writer"; done
[ "$(sqlite3 file.db 'select count(*), sum(number) from rows')" = '120|2460' ]
[ "$(sqlite3 file.db 'pragma integrity_check')" = ok ]
