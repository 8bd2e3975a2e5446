# title: BusyBox: httpd, wget, ash
# area: Servers
mkdir w; echo page > w/index.html; busybox httpd -p 127.0.0.1:8088 -h w; sleep 0.5; busybox wget -qO- http://127.0.0.1:8088/; busybox ash -c 'echo $((2+3))'
