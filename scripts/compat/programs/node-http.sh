# title: A Node web server, asked from outside through `berm port`
# area: Servers
# port: 8082
exec node -e 'require("http").createServer((q,r)=>{r.setHeader("content-type","text/plain");r.end("node "+q.url)}).listen(8082,"127.0.0.1")'
