package gateway

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"github.com/bermhq/berm/internal/egress/wire"
	"github.com/bermhq/berm/internal/jail"
)

// asGateway makes this program the process of a gateway, as the keeper starts
// one, with a question on its way in for what its filter lets through.
const asGateway = "BERM_TEST_GATEWAY"

func TestMain(m *testing.M) {
	if os.Getenv(asGateway) == "" {
		os.Exit(m.Run())
	}
	os.Exit(Main(func() error {
		if err := jail.ConfineGateway(); err != nil {
			return err
		}
		if os.Getenv(asGateway) != "calm" {
			go pressure()
		}
		return tryCalls()
	}))
}

// pressure keeps the collector and the scheduler at work, so that the runtime
// makes what calls it ever makes.
func pressure() {
	for {
		keep := make([][]byte, 0, 64)
		for range cap(keep) {
			keep = append(keep, make([]byte, 64<<10))
		}
		done := make(chan struct{})
		go func() { runtime.LockOSThread(); close(done) }() // a thread that ends with it
		<-done
		runtime.GC()
		runtime.KeepAlive(keep)
		time.Sleep(5 * time.Millisecond)
	}
}

// tryCalls returns an error if a call gets through that must not.
func tryCalls() error {
	addr := &unix.SockaddrInet4{Port: 53, Addr: [4]byte{127, 0, 0, 1}}
	for name, call := range map[string]func() error{
		"socket":     func() error { _, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0); return err },
		"unix":       func() error { _, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0); return err },
		"netlink":    func() error { _, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, 0); return err },
		"socketpair": func() error { _, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0); return err },
		"connect":    func() error { return unix.Connect(linkFD, addr) },
		"bind":       func() error { return unix.Bind(linkFD, addr) },
		"listen":     func() error { return unix.Listen(linkFD, 1) },
		"accept":     func() error { _, _, err := unix.Accept(linkFD); return err },
		"sendto":     func() error { return unix.Sendto(linkFD, []byte("x"), 0, addr) },
		"sendmsg":    func() error { return unix.Sendmsg(linkFD, []byte("x"), nil, nil, 0) },
		"setsockopt": func() error { return unix.SetsockoptInt(linkFD, unix.SOL_SOCKET, unix.SO_MARK, 1) },
		"open":       func() error { _, err := os.Open("/"); return err },
		"openat2":    func() error { _, err := unix.Openat2(unix.AT_FDCWD, "/", &unix.OpenHow{}); return err },
		"stat":       func() error { _, err := os.Stat("/"); return err },
		"exec":       func() error { return syscall.Exec("/bin/true", nil, nil) },
		"ptrace":     func() error { return unix.PtraceAttach(os.Getppid()) },
		"kill":       func() error { return unix.Kill(os.Getpid(), 0) },
		"dup":        func() error { _, err := unix.Dup(linkFD); return err },
		"memfd":      func() error { _, err := unix.MemfdCreate("x", 0); return err },
		"unshare":    func() error { return unix.Unshare(unix.CLONE_NEWUSER) },
		"prctl":      func() error { return unix.Prctl(unix.PR_SET_NAME, 0, 0, 0, 0) },
		"executable": func() error {
			_, err := unix.Mmap(-1, 0, 4096, unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANON)
			return err
		},
		"fork": func() error { _, _, e := unix.RawSyscall(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0); return errOf(e) },
		"clone3": func() error {
			if _, _, e := unix.RawSyscall(unix.SYS_CLONE3, 0, 0, 0); e != unix.ENOSYS {
				return fmt.Errorf("%w instead of ENOSYS", e)
			}
			return unix.EPERM
		},
	} {
		if err := call(); err == nil || !strings.Contains(err.Error(), unix.EPERM.Error()) {
			return fmt.Errorf("%s: %v, want EPERM", name, err)
		}
	}
	return nil
}

func errOf(e syscall.Errno) error {
	if e == 0 {
		return nil
	}
	return e
}

// process starts a gateway as a process of its own.
func process(t *testing.T) (*world, *exec.Cmd, *bytes.Buffer) {
	t.Helper()
	return processAs(t, "1")
}

// processAs is process; the collector has nothing but the gateway's to do in one
// that is "calm".
func processAs(t *testing.T, how string) (*world, *exec.Cmd, *bytes.Buffer) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	guestEnd, linkEnd := pair(t)
	keepOpen(t, linkEnd)
	brokerEnd, askEnd := pair(t)
	r, sync, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var said bytes.Buffer
	cmd := exec.Command(self)
	cmd.Args[0] = "berm-gateway"
	cmd.Env = []string{asGateway + "=" + how}
	marks, err := jail.Memory("marks", maxMarks*markSize)
	if err != nil {
		t.Fatal(err)
	}
	cmd.ExtraFiles = []*os.File{linkEnd, askEnd, sync, marks}
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	kept, err := dupOf(marks)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kept.Close() })
	for _, f := range cmd.ExtraFiles {
		f.Close()
	}
	if b, err := io.ReadAll(r); err != nil || string(b) != "\x01" {
		cmd.Wait()
		t.Fatalf("it says %q, %v: %s", b, err, &said)
	}
	w := &world{fake: newFake(t, brokerEnd, nil), marks: kept}
	w.guest = newGuest(t, guestEnd)
	return w, cmd, &said
}

// TestProcess does all that a gateway does under its filter, which kills at the
// first call that it does not know, and ends with its link.
func TestProcess(t *testing.T) {
	if testing.Short() {
		t.Skip("a process of its own")
	}
	w, cmd, said := process(t)
	to := at(server4, 9000)
	w.listen(to, echo)
	s := &site{}
	w.listen(at(server6, 80), s.serve)
	tlsSite(t, w)
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<17)
	for range 10 {
		c := w.dialUDP(at(wire.Gateway4, 53))
		mustWrite(t, c, string(query(t, "allowed.test.", dnsmessage.TypeA)))
		if _, err := c.Read(make([]byte, 600)); err != nil {
			t.Fatalf("DNS: %v", err)
		}
		c.Close()
		tcp := w.mustDial(to)
		go func() {
			tcp.Write(data)
			tcp.CloseWrite()
		}()
		if n, err := io.Copy(io.Discard, tcp); n != int64(len(data)) || err != nil {
			t.Fatalf("relay: %d bytes, %v: %s", n, err, said)
		}
		tcp.Close()
		web := w.mustDial(at(server6, 80))
		mustWrite(t, web, get+"GET / HTTP/1.1\r\nHost: other.test\r\n\r\n")
		if b, err := io.ReadAll(web); err != nil || !bytes.Contains(b, []byte("200 OK")) || !bytes.Contains(b, []byte("403 Forbidden")) {
			t.Fatalf("HTTP: %q, %v", b, err)
		}
		web.Close()
		if _, err := w.dial(at(server4, 9999)); !refused(err) {
			t.Fatalf("got %v, want it refused", err)
		}
	}
	// Without a broker it ends.
	w.fake.conn.Close()
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ends with %v: %s", err, said)
	}
}
