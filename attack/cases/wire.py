# Beside attacks on the wire. Every one of them ends with finish(), which asks the
# allowed server over IPv4 and over IPv6: unless that arrives, it proves nothing
# that the rest did not. Where something must not arrive, it says "denied".
from prelude import *
import socket, struct, subprocess

A4, A6 = "203.0.113.10", "2001:db8:10::10"  # example.test
E4, E6 = "203.0.113.66", "2001:db8:66::66"  # allowed by nothing
HOST4, HOST6 = "198.51.100.1", "2001:db8:1::1"  # of the host itself
GATE4, GATE6 = "192.0.0.1", "fd62:6572:6d00::1"  # of the gateway
LIMIT = 3.5  # more than the runner takes for a denial that hangs
socket.setdefaulttimeout(LIMIT)


def attempt(what, f, *args):
    """Do one thing, say how long it took and what came of it, and go on."""
    began = time.monotonic()
    try:
        said = "done %.120r" % (f(*args),)
    except BaseException as e:
        said = "%s %.100s" % (type(e).__name__, e)
    print("took %d ms: %s: %s" % ((time.monotonic() - began) * 1000, what, said), flush=True)


def nameserver():
    for line in open("/etc/resolv.conf"):
        f = line.split()
        if len(f) > 1 and f[0] == "nameserver":
            return f[1]


def lookup(name, family=0):
    """All addresses of a name, each once."""
    return list(dict.fromkeys(a[4][0] for a in socket.getaddrinfo(name, 0, family, socket.SOCK_STREAM)))


def dial(host, port):
    return socket.create_connection((host, port), timeout=LIMIT)


def tcp(host, port, *parts):
    """Connect, send each part in a segment of its own, and read one answer to each."""
    s = dial(host, port)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    r = b""
    for p in parts or (b"GET /denied HTTP/1.1\r\nHost: denied.test\r\n\r\n",):
        s.sendall(p if isinstance(p, bytes) else p.encode())
        r = s.recv(65536)
        if not r:
            raise EOFError("closed")
    s.close()
    return r


def allowed(*parts, port=8080):
    """The same to the allowed server, by name: its addresses are handed out now."""
    for a in (lookup("example.test", socket.AF_INET)[0], lookup("example.test", socket.AF_INET6)[0]):
        attempt("%.50r" % (parts[0],), tcp, a, port, *parts)


def get(path="/denied", host="example.test", more=""):
    return "GET %s HTTP/1.1\r\nHost: %s\r\n%s\r\n" % (path, host, more)


def udp(host, port, data=b"denied"):
    s = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
    s.connect((host, port))
    s.send(data)
    return s.recv(2048)


def query(name, kind=1, flags=0x0100, klass=1):
    labels = b"".join(bytes([len(l)]) + l.encode() for l in name.split("."))
    return struct.pack("!6H", 0x1234, flags, 1, 0, 0, 0) + labels + struct.pack("!BHH", 0, kind, klass)


def dns(name, kind=1, server=None, port=53):
    r = udp(server or nameserver(), port, query(name, kind))
    if r[3] & 15:
        raise OSError("code %d" % (r[3] & 15))
    return r[12:]


def dnstcp(name, kind=1, server=None, port=53):
    q = query(name, kind)
    r = tcp(server or nameserver(), port, struct.pack("!H", len(q)) + q)
    if len(r) > 5 and r[5] & 15:
        raise OSError("code %d" % (r[5] & 15))
    return r


def name(host, port=8080):
    """Look a name up and ask every address it has."""
    found = []
    for f in (socket.AF_INET, socket.AF_INET6):
        try:
            found += lookup(host, f)
        except OSError as e:
            print(host, e)
    if not found:
        raise OSError("no address")
    for a in found:
        attempt("%s at %s" % (host, a), tcp, a, port, get("/", host))
    return found


def ext(kind, body):
    return struct.pack("!HH", kind, len(body)) + body


def hello(sni=None, more=b"", records=1):
    """A client hello, in one record or several."""
    e = b""
    if sni is not None:
        n = sni if isinstance(sni, bytes) else sni.encode()
        e += ext(0, struct.pack("!HBH", len(n) + 3, 0, len(n)) + n)
    e += ext(10, b"\0\4\0\x1d\0\x17") + ext(13, b"\0\6\4\3\x08\4\4\1") + ext(43, b"\4\3\4\3\3")
    e += ext(51, struct.pack("!HHH", 36, 0x1D, 32) + os.urandom(32)) + more
    b = b"\3\3" + os.urandom(32) + b"\0" + b"\0\6\x13\1\xc0\x2b\xc0\x2f" + b"\1\0" + struct.pack("!H", len(e)) + e
    b = b"\1" + struct.pack("!I", len(b))[1:] + b
    size = -(-len(b) // records)
    return b"".join(b"\x16\3\1" + struct.pack("!H", len(b[i:i + size])) + b[i:i + size] for i in range(0, len(b), size))


def run(*args):
    r = subprocess.run(args, capture_output=True, timeout=2 * LIMIT)
    if r.returncode:
        raise OSError("%s: code %d %.80s" % (args[0], r.returncode, r.stderr.decode(errors="replace").strip()))
    return r.stdout[:200]


def curl(*args):
    return run("curl", "-sS", "-f", "-m", "3.5", *args)


def card():
    """The name of a network card beside loopback."""
    for _, n in socket.if_nameindex():
        if n != "lo":
            return n
    raise OSError("no network card")


def raw(proto, to, data, family=socket.AF_INET, header=False):
    s = socket.socket(family, socket.SOCK_RAW, proto)
    if header:
        s.setsockopt(socket.IPPROTO_IP, socket.IP_HDRINCL, 1)
    return s.sendto(data, (to, 0))


def frame(kind, data, to=b"\xff" * 6):
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    s.bind((card(), 0))
    mac = s.getsockname()[4]
    return s.send(to + mac + struct.pack("!H", kind) + data)


def ip4(proto, to, data, src=HOST4, frag=0, options=b""):
    h = struct.pack("!BBHHHBBH4s4s", 0x45 + len(options) // 4, 0, 20 + len(options) + len(data), 77, frag, 64, proto, 0,
                    socket.inet_aton(src), socket.inet_aton(to)) + options
    n = sum(struct.unpack("!%dH" % (len(h) // 2), h))
    while n >> 16:
        n = (n & 0xFFFF) + (n >> 16)
    return h[:10] + struct.pack("!H", ~n & 0xFFFF) + h[12:] + data


def finish():
    for f in (socket.AF_INET, socket.AF_INET6):
        for turn in range(3):  # a flood may still be draining
            try:
                a = lookup("example.test", f)[0]
                print(a, tcp(a, 8080, get("/ok-" + NONCE))[:30], flush=True)
                break
            except OSError as e:
                print("example.test:", e, flush=True)
                time.sleep(0.3)
    ended()
