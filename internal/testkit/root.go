package testkit

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/bermhq/berm/internal/backend"
	"github.com/bermhq/berm/internal/guest"
)

// rootful starts an instance in which commands may be root.
func (b *bench) rootful(t *testing.T) (backend.Instance, *guest.Client) {
	t.Helper()
	if b.Image == "" {
		t.Skip("no users inside")
	}
	s := b.spec()
	s.Root = true
	return b.start(t, s)
}

// asRoot runs a line of bash as the guest's root and returns what it says.
func (b *bench) asRoot(t *testing.T, c *guest.Client, line string) (string, guest.Exit) {
	t.Helper()
	s := b.command(t, "bash", "-c", line)
	s.UID, s.GID = 0, 0
	return run(t, c, s)
}

// rootSet is what the guest's root may do at most, as /proc shows it: chown,
// dac_override, fowner, fsetid, kill, setgid, setuid, setpcap, net_bind_service,
// net_raw, sys_chroot, mknod, audit_write, setfcap.
const rootSet = 0xa80425fb

// testRoot: the guest's root can do what programs expect of it, and nothing that
// reaches under its own root.
func testRoot(t *testing.T, b *bench) {
	_, c := b.rootful(t)
	out, x := b.asRoot(t, c, `set -e
[ "$(id -u)" = 0 ]
cd /root; echo x >f; chown 1234:1234 f; chmod 4755 f; [ "$(stat -c %u:%a f)" = 1234:4755 ]
mkdir -p /opt/r/bin /opt/r/lib /opt/r/lib64; mkdir -m 700 /usr/local/own; echo 1 >/usr/share/new; rm -r /usr/share/new
python3 - <<'PYDONE'
import os
p = os.fork()
if p == 0:
    os.setgroups([1234]); os.setgid(1234); os.setuid(1234)
    try: os.setuid(0)
    except OSError: os._exit(0)
    os._exit(1)
assert os.waitstatus_to_exitcode(os.waitpid(p, 0)[1]) == 0
p = os.fork()
if p == 0:
    os.chroot("/opt/r"); os.chdir("/")
    os._exit(0 if os.listdir("/") == ["bin", "lib", "lib64"] or set(os.listdir("/")) == {"bin", "lib", "lib64"} else 1)
assert os.waitstatus_to_exitcode(os.waitpid(p, 0)[1]) == 0
import socket
s = socket.socket(); s.bind(("127.0.0.1", 80))
PYDONE
grep ^Cap /proc/self/status
`)
	if x.Code != 0 {
		t.Fatalf("%+v: %s", x, out)
	}
	for line := range strings.Lines(out) {
		var set uint64
		name, value, ok := strings.Cut(strings.TrimSpace(line), ":")
		if _, err := fmt.Sscanf(strings.TrimSpace(value), "%x", &set); !ok || err != nil {
			t.Fatalf("%q", line)
		}
		if set&^rootSet != 0 {
			t.Errorf("root has %s %x, more than %x", name, set, uint64(rootSet))
		}
		if slices.Contains([]string{"CapEff", "CapPrm", "CapBnd"}, name) && set&^(1<<13) != rootSet&^(1<<13) { // gVisor may keep net_raw
			t.Errorf("root has %s %x, want %x", name, set, uint64(rootSet))
		}
	}
	// A user beside it has nothing.
	if out := b.shell(t, c, `grep ^Cap /proc/self/status | tr -d 'A-Za-z:\t \n0'`); out != "" {
		t.Errorf("a user has capabilities: %s", out)
	}
	testRootBounds(t, b, c)
}

// testRootBounds: what the guest's root cannot.
func testRootBounds(t *testing.T, b *bench, c *guest.Client) {
	for what, line := range map[string]string{
		"mounts":                      "mount -t tmpfs none /mnt",
		"mounts an overlay":           "mkdir -p /tmp/u /tmp/m; mount -t overlay -o lowerdir=/usr,upperdir=/tmp/u none /tmp/m",
		"unmounts":                    "umount /proc",
		"enters the first process":    "ls /proc/1/root/ /proc/1/cwd/",
		"opens its descriptors":       "for f in /proc/1/fd/*; do ls $f/. || timeout 1 head -c1 $f || echo x 2>/dev/null >$f || continue; exit 0; done; exit 1",
		"reads its memory":            "head -c 1 /proc/1/mem",
		"finds its environment":       "cat /proc/1/environ",
		"finds the layers":            "ls /l/0",
		"raises its limit":            "ulimit -Hu 1000000",
		"sets the clock":              "date -s 2001-01-01",
		"sets the name":               "hostname other",
		"leaves a whiteout":           "mknod /tmp/w c 0 0",
		"loads a module":              "python3 -c 'import ctypes,sys; sys.exit(0 if ctypes.CDLL(None).syscall(175, 0, 0, b\"\") == 0 else 1)'",
		"traces the first process":    "python3 -c 'import ctypes,sys; sys.exit(0 if ctypes.CDLL(None).ptrace(16, 1, 0, 0) == 0 else 1)'",
		"configures the network":      "python3 -c 'import socket,fcntl,struct; fcntl.ioctl(socket.socket(), 0x8914, struct.pack(\"16sh14x\", b\"lo\", 0))'",
		"writes where the agent lies": "echo x >/.berm/agent && ! [ -e /.berm/agent.was ] && exec 3>>/.berm/agent && false",
	} {
		if out, x := b.asRoot(t, c, line); x.Code == 0 && x.Signal == 0 {
			t.Errorf("root %s: %q", what, out)
		}
	}
	// Nor does it end what everything here hangs on.
	for _, sig := range []string{"TERM", "INT", "HUP", "QUIT", "ABRT", "USR1"} {
		b.asRoot(t, c, "kill -"+sig+" 1")
		if out, x := b.asRoot(t, c, "echo here"); out != "here\n" || x.Code != 0 {
			t.Fatalf("after kill -%s 1: %q, %+v", sig, out, x)
		}
	}
}

// testRootCaps: caps hold for the guest's root, by whatever names it runs.
func testRootCaps(t *testing.T, b *bench) {
	_, c := b.rootful(t)
	bomb := `import os, sys, time
n = 0
try:
    while n < 400:
        if %s: os.setgroups([]); os.setegid(5000 + n); os.seteuid(5000 + n)
        if os.fork() == 0: time.sleep(60); os._exit(0)
        if %s: os.seteuid(0); os.setegid(0)
        n += 1
except OSError as e: print(n, e.errno, flush=True)
time.sleep(30)
`
	most := either[int64](64, 16)
	for what, other := range map[string]string{"as root": "False", "as many users": "True"} {
		s := b.command(t, "python3", "-c", fmt.Sprintf(bomb, other, other))
		s.UID, s.GID, s.Pids = 0, 0, most
		_, x := run(t, c, s)
		if x.EndedBy != guest.EndedProcesses || !slices.Contains(x.Caps, guest.CapProcesses) || x.PidsPeak > most+32 {
			t.Errorf("a fork bomb %s: %+v", what, x)
		}
		if out, x := b.asRoot(t, c, "echo here; ps ax | wc -l"); x.Code != 0 || !strings.HasPrefix(out, "here\n") {
			t.Errorf("after it: %q, %+v", out, x)
		}
	}
	s := b.command(t, "python3", "-c", either(
		"x = []\nwhile True: x.append(bytearray(1 << 20))",
		"x = open('/dev/zero', 'rb', 0).read(200 << 20)"))
	s.UID, s.GID, s.MemoryBytes = 0, 0, either[int64](128<<20, 64<<20)
	if _, x := run(t, c, s); x.EndedBy != guest.EndedMemory {
		t.Errorf("root that takes memory: %+v", x)
	}
	// All that root can write is one disk.
	out, x := b.asRoot(t, c, `for d in /workspace /tmp /root /usr/share /var/tmp; do dd if=/dev/zero of=$d/fill bs=1M 2>/dev/null; done
stat -c %s /workspace/fill /tmp/fill /root/fill /usr/share/fill /var/tmp/fill | python3 -c 'import sys; print(sum(int(l) for l in sys.stdin) >> 20)'
rm /workspace/fill /tmp/fill /root/fill /usr/share/fill /var/tmp/fill`)
	size := b.spec().Limits.DiskBytes >> 20
	mib := int64(0)
	if fmt.Sscan(out, &mib); mib > size || mib < size*9/10 || !slices.Contains(x.Caps, guest.CapDisk) {
		t.Errorf("root filled %d MiB of a disk of %d: %q, %+v", mib, size, out, x)
	}
}
