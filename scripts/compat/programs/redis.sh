# title: Redis: commands, persistence by fork
# area: Databases
redis-server --port 0 --unixsocket /tmp/r.sock --dir /tmp --daemonize yes >/dev/null
for i in $(seq 1 50); do redis-cli -s /tmp/r.sock ping >/dev/null 2>&1 && break; sleep 0.1; done
redis-cli -s /tmp/r.sock set a 1; redis-cli -s /tmp/r.sock incr a
redis-cli -s /tmp/r.sock debug populate 10000 2>/dev/null || true; redis-cli -s /tmp/r.sock dbsize
redis-cli -s /tmp/r.sock bgsave >/dev/null; sleep 2; redis-cli -s /tmp/r.sock lastsave | grep -c .; test -s /tmp/dump.rdb && echo saved
redis-cli -s /tmp/r.sock shutdown nosave || true
