# title: memcached over TCP
# area: Databases
memcached -l 127.0.0.1 -p 11211 -d; sleep 0.5
printf 'set k 0 0 5\r\nhello\r\nget k\r\nquit\r\n' | nc 127.0.0.1 11211
