# Usage: egress.py HOST PORT get|put STREAMS BYTES | conns N
# One line of JSON: seconds of the whole transfer, or of each connection.
import json, socket, sys, threading, time

host, port, what = sys.argv[1], int(sys.argv[2]), sys.argv[3]
numbers = [int(a) for a in sys.argv[4:]]


def connect():
    s = socket.create_connection((host, port), timeout=60)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return s


def fetch(s, n, failed):
    try:
        s.sendall(b"get %d\n" % n)
        buf, got = memoryview(bytearray(1 << 20)), 0
        while got < n:
            k = s.recv_into(buf)
            if k == 0:
                raise EOFError("%d of %d bytes" % (got, n))
            got += k
    except Exception as e:
        failed.append(repr(e))


def push(s, n, failed):
    try:
        s.sendall(b"put %d\n" % n)
        buf = memoryview(bytearray(1 << 20))
        while n > 0:
            n -= s.send(buf[:n])
        if s.recv(3) != b"ok\n":
            raise EOFError("not taken")
    except Exception as e:
        failed.append(repr(e))


if what in ("get", "put"):
    streams, size = numbers
    socks, failed = [connect() for _ in range(streams)], []
    threads = [threading.Thread(target={"get": fetch, "put": push}[what], args=(s, size // streams, failed)) for s in socks]
    began = time.perf_counter()
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    took = time.perf_counter() - began
    if failed:
        sys.exit(failed[0])
    print(json.dumps([took]))
else:
    times = []
    for _ in range(numbers[0]):
        began = time.perf_counter()
        s = connect()
        s.sendall(b"ping\n")
        if s.recv(5) != b"pong\n":
            sys.exit("no answer")
        times.append(time.perf_counter() - began)
        s.close()
    print(json.dumps(times))
