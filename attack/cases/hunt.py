# Beside attacks on credentials. T["at"] says where the case's own canaries are on
# the host. Of what is found only canaries are printed: what else may lie there is
# somebody's, and nobody's business here either.
from prelude import *
import ctypes, re, shutil, socket, subprocess

SHAPE = re.compile(WORD.encode() + rb"[a-z0-9]{20,}")
# where the host's files are if somebody has mounted or copied them
MOUNTS = ["", "/proc/self/root", "/proc/1/root", "/host", "/hostfs", "/rootfs", "/mnt", "/mnt/host", "/media/host", "/tmp/host"]
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


def show(b, but=()):
    """Print the canaries in b."""
    found = sorted(set(SHAPE.findall(b)) - set(but))
    sys.stdout.flush()
    for v in found:
        os.write(1, v + b"\n")
    return "%d canaries in %d bytes" % (len(found), len(b))


def read(path, most=1 << 20):
    def f():
        with open(path, "rb", buffering=0) as h:
            return show(h.read(most) or b"")
    return attempt(path, f)


def places(path):
    """Where a path of the host may be: there, below a mount, in the home inside."""
    out = [m + path for m in MOUNTS]
    if T["home"] and path.startswith(T["home"] + "/"):
        out.append(os.path.expanduser("~") + path[len(T["home"]):])
    return out


def files():
    for path in T["at"]:
        for p in places(path):
            read(p)


def ask(path, *messages, kind=socket.SOCK_STREAM):
    """Say something to a unix socket and print what canaries it answers."""
    def f():
        s = socket.socket(socket.AF_UNIX, kind)
        s.settimeout(2)
        s.connect(path)
        return talk(s, *messages)
    return attempt("ask " + path, f)


def talk(s, *messages):
    got = b""
    for m in messages:
        s.sendall(m)
        got += s.recv(4096)
    s.settimeout(0.3)
    try:
        while len(got) < 65536:
            b = s.recv(4096)
            if not b:
                break
            got += b
    except OSError:
        pass
    return show(got)


def sockets(*messages, also=()):
    """The same to the case's own, and to where such are elsewhere."""
    for path in list(T["at"]) + [p for p in also if p]:
        for p in places(path):
            ask(p, *messages)


def tool(*args, text="", timeout=4, **env):
    """Run a tool if there is one, and print what canaries it says."""
    if not shutil.which(args[0]):
        print(args[0], "is not here")
        return

    def f():
        r = subprocess.run(args, input=text.encode(), capture_output=True, timeout=timeout, env=dict(os.environ, **env))
        return show(r.stdout + r.stderr)
    return attempt(" ".join(args[:3]), f)


def variables(everything=False):
    """Look through the environment, its own and of what started it, for the
    case's variables, or for whatever is there."""
    def own(pairs):
        return show(b"\n".join(kv for kv in pairs if everything or os.fsdecode(kv.split(b"=")[0]) in T["at"]))
    attempt("environ", lambda: own([os.fsencode(k + "=" + v) for k, v in os.environ.items()]))
    for p in ["self", str(os.getppid())]:
        attempt("environ of " + p, lambda: own(open("/proc/%s/environ" % p, "rb").read().split(b"\0")))
