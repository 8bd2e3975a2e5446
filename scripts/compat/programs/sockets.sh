# title: Sockets: TCP, UDP, UNIX, descriptors passed, IPv6 loopback
# area: Kernel interfaces
python3 - <<'P'
import socket,os,array,threading,struct
for fam,a in ((socket.AF_INET,'127.0.0.1'),(socket.AF_INET6,'::1')):
    try:
        s=socket.socket(fam); s.setsockopt(socket.SOL_SOCKET,socket.SO_REUSEADDR,1); s.bind((a,0)); s.listen(); c=socket.create_connection(s.getsockname()[:2]); p,_=s.accept(); c.sendall(b'x'*100000); n=0
        while n<100000: n+=len(p.recv(65536))
        print(fam.name,n)
        u=socket.socket(fam,socket.SOCK_DGRAM); u.bind((a,0)); v=socket.socket(fam,socket.SOCK_DGRAM); v.sendto(b'dgram',u.getsockname()); print(u.recv(99))
    except OSError as e: print(fam.name,e.strerror)
a,b=socket.socketpair(); r,w=os.pipe(); socket.send_fds(a,[b'f'],[w]); m,f,_,_=socket.recv_fds(b,9,4); os.write(f[0],b'passed'); print(os.read(r,99))
print(struct.unpack('3i',b.getsockopt(socket.SOL_SOCKET,socket.SO_PEERCRED,12))[1])
P
socat -u UNIX-LISTEN:/tmp/u.sock,fork OPEN:/tmp/out,creat,append & S=$!; sleep 0.5; echo via-socat | socat - UNIX-CONNECT:/tmp/u.sock; sleep 0.5; cat /tmp/out; kill $S
