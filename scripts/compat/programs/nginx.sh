# title: nginx, asked from outside through `berm port`
# area: Servers
# port: 8080
mkdir -p /tmp/n/html; echo 'hello from nginx' > /tmp/n/html/index.html
cat > /tmp/n/c <<'C'
daemon off; pid /tmp/n/pid; error_log /tmp/n/e; worker_processes 2; events{}
http{access_log off; client_body_temp_path /tmp/n/1; proxy_temp_path /tmp/n/2; fastcgi_temp_path /tmp/n/3; uwsgi_temp_path /tmp/n/4; scgi_temp_path /tmp/n/5; server{listen 127.0.0.1:8080; root /tmp/n/html;}}
C
exec nginx -c /tmp/n/c
