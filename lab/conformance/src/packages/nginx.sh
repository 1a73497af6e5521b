# nginx with two workers: a file fetched by several clients, while it reads its settings again. Each
# is whole, and its log has each.
PATH="$PATH:/usr/sbin"
need nginx nginx-light
need ab apache2-utils
need curl curl
address=127.0.0.1:8093
mkdir html
head -c 300000 /dev/urandom >html/file
cat >nginx.conf <<END
worker_processes 2; daemon off; pid $PWD/nginx.pid; error_log $PWD/error.log;
events { worker_connections 200; }
http {
	access_log $PWD/access.log;
	client_body_temp_path $PWD/1; proxy_temp_path $PWD/2; fastcgi_temp_path $PWD/3;
	uwsgi_temp_path $PWD/4; scgi_temp_path $PWD/5;
	server { listen $address; root $PWD/html; }
}
END
nginx -c "$PWD/nginx.conf" -p "$PWD" -e "$PWD/error.log" &
server=$!
listens() { curl -fs -o /dev/null "http://$address/1" -w '%{http_code}' | grep -q 404; }
await listens
fetch() {
	ab -q -n 300 -c 4 "http://$address/file" >ab.log 2>&1
	grep -q 'Failed requests: *0$' ab.log
}
fetch
kill -HUP $server
fetch
for _ in $(seq 20); do curl -fs "http://$address/file" | cmp - html/file; done
kill -QUIT $server
wait $server
[ "$(grep -c 'GET /file HTTP/1.[01]" 200 300000' access.log)" = 620 ]
