package jail

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// confined is what a process does after Confine; it tells on descriptor 3.
func confined() {
	uid, _ := strconv.Atoi(os.Args[2])
	kept, err := os.Open("/proc/self/status") // what is open stays open
	got := map[string]string{}
	note := func(what string, err error) { got[what] = fmt.Sprint(err) }
	note("open before", err)
	how := Confine
	if os.Args[3] == "inet" {
		how = ConfineToInet
	}
	note("confine", how(os.Args[1], uid))
	_, err = os.ReadFile("/etc/passwd")
	note("read a file", err)
	note("make a file", os.WriteFile("/x", nil, 0o644))
	_, err = os.StartProcess("/proc/self/exe", []string{"x"}, &os.ProcAttr{})
	note("run a program", err)
	_, _, e := syscall.RawSyscall(syscall.SYS_EXECVE, 0, 0, 0)
	note("execve", e)
	for what, s := range map[string][3]int{
		"inet socket": {unix.AF_INET, unix.SOCK_STREAM, 0}, "inet6 socket": {unix.AF_INET6, unix.SOCK_DGRAM, unix.IPPROTO_UDP},
		"unix socket": {unix.AF_UNIX, unix.SOCK_STREAM, 0}, "netlink socket": {unix.AF_NETLINK, unix.SOCK_RAW, 0},
		"packet socket": {unix.AF_PACKET, unix.SOCK_RAW, 0}, "icmp socket": {unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP},
		"sctp socket": {unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP},
	} {
		fd, err := unix.Socket(s[0], s[1]|unix.SOCK_CLOEXEC, s[2])
		if err == unix.EAFNOSUPPORT {
			err = nil // the filter let it through to a kernel without it
		}
		note(what, err)
		if err == nil {
			unix.Close(fd)
		}
	}
	_, err = unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	note("pair", err)
	note("listen", unix.Listen(0, 1))
	note("bind", unix.Bind(-1, &unix.SockaddrInet4{}))
	note("connect", unix.Connect(-1, &unix.SockaddrInet4{}))
	// The way that a dialer goes: through the runtime, with an answer.
	udp, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err == nil {
		var c net.Conn
		if c, err = net.Dial("udp4", udp.LocalAddr().String()); err == nil {
			c.Write([]byte("x"))
			_, _, err = udp.ReadFrom(make([]byte, 1))
		}
	}
	note("dial", err)
	note("unshare", unix.Unshare(unix.CLONE_NEWUSER))
	note("ptrace", unix.PtraceAttach(1))
	note("setuid 0", syscall.Setuid(0))
	var wg sync.WaitGroup
	for range 20 { // threads still come up
		wg.Go(func() { unix.Nanosleep(&unix.Timespec{Nsec: 5e6}, nil) })
	}
	wg.Wait()
	ifs, _ := net.Interfaces()
	note("interfaces", fmt.Errorf("%d", len(ifs)))
	b := make([]byte, 4096)
	n, _ := kept.ReadAt(b, 0)
	for line := range strings.Lines(string(b[:n])) {
		for _, k := range []string{"Uid:", "CapEff:", "NoNewPrivs:", "Seccomp:"} {
			if rest, ok := strings.CutPrefix(line, k); ok {
				got[k] = strings.Join(strings.Fields(rest), " ")
			}
		}
	}
	json.NewEncoder(os.NewFile(3, "out")).Encode(got)
}

const notPermitted = "not permitted"

func TestConfine(t *testing.T) {
	testConfined(t, "", map[string]string{"inet socket": notPermitted, "inet6 socket": notPermitted, "bind": notPermitted,
		"connect": notPermitted, "dial": notPermitted})
}

func TestConfineToInet(t *testing.T) {
	testConfined(t, "inet", map[string]string{"inet socket": "<nil>", "inet6 socket": "<nil>", "bind": "bad file descriptor",
		"connect": "bad file descriptor", "dial": "<nil>"})
}

func testConfined(t *testing.T, how string, more map[string]string) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: namespaces")
	}
	lease, err := LeaseUID()
	if err != nil {
		t.Fatal(err)
	}
	defer lease.Release()
	r, w, _ := os.Pipe()
	id := strconv.Itoa(lease.UID)
	cmd := exec.Command("/proc/self/exe", t.TempDir(), id, how)
	cmd.Args[0] = "confined-child"
	cmd.ExtraFiles, cmd.Stderr = []*os.File{w}, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: WorkerNamespaces}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	var got map[string]string
	err = json.NewDecoder(r).Decode(&got)
	if e := cmd.Wait(); err != nil || e != nil {
		t.Fatal(err, e)
	}
	wants := map[string]string{
		"open before": "<nil>", "confine": "<nil>",
		"read a file": "no such file", "make a file": "read-only", "run a program": "not permitted", "execve": "not permitted",
		"unix socket": "not permitted", "netlink socket": "not permitted", "packet socket": "not permitted", "icmp socket": "not permitted",
		"sctp socket": "not permitted", "pair": "not permitted", "listen": "not permitted", "unshare": "not permitted", "ptrace": "not permitted", "setuid 0": "not permitted",
		"Uid:": strings.TrimSpace(strings.Repeat(id+" ", 4)), "CapEff:": "0000000000000000", "NoNewPrivs:": "1", "Seccomp:": "2",
	}
	maps.Copy(wants, more)
	for what, want := range wants {
		if !strings.Contains(got[what], want) {
			t.Errorf("%s: %s, want %s", what, got[what], want)
		}
	}
}
