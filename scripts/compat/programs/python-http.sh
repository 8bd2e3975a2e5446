# title: Python's web server, asked from outside through `berm port`
# area: Servers
# port: 8081
echo '<h1>hello</h1>' > index.html; exec python3 -m http.server 8081 --bind 127.0.0.1
