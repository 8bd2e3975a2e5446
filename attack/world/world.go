// Package world is a small network for attacks on the wire, made of two network
// namespaces and nothing of the host's. In one of them, "inside", runs a whole
// process tree: whoever attacks, and the Berm that is attacked, which dials from
// there. In the other, "outside", every address that exists is a canary: any
// packet that arrives is noted unless it is on its way to the one server and the
// one resolver that a policy allows, and what those are told is noted too.
//
// So a wall that is missing does not lead into nothing: private addresses, the
// metadata service's, translated and tunnelled ones all lead to a server that
// answers. The host's own namespace is left as it is.
package world

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Where things are. All are in ranges that are for documentation, which Berm
// takes for public ones.
const (
	Host4, Host6         = "198.51.100.1", "2001:db8:1::1" // the inside end: the host's own
	router4, router6     = "198.51.100.254", "2001:db8:1::fe"
	Allowed4, Allowed6   = "203.0.113.10", "2001:db8:10::10" // example.test
	Wild4, Wild6         = "203.0.113.11", "2001:db8:10::11" // *.wild.test
	Resolver4, Resolver6 = "203.0.113.53", "2001:db8:10::53"
	mark4                = "203.0.113.99"
)

// Rules are what every attack may do.
var Rules = []string{"example.test:8080", "example.test:8443", "*.wild.test:8080"}

// A World is one that was built around this process.
type World struct {
	log     *log
	closers []func() error
	done    sync.WaitGroup
	lures   []string // inside, to be called by settle

	certificate tls.Certificate
}

// Why says why no world can be built here; "" if it can be tried.
func Why() string {
	if os.Geteuid() != 0 {
		return "it needs root, to make two network namespaces"
	}
	return ""
}

// Attr are attributes of a process that shall build a world around itself.
func Attr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS}
}

// Build makes the world around this process, which must have been started with
// Attr and be the first in its namespaces.
func Build() (_ *World, err error) {
	if err := fresh(); err != nil {
		return nil, err
	}
	if err := names(); err != nil {
		return nil, err
	}
	w := &World{log: newLog()}
	defer func() {
		if err != nil {
			w.Close()
		}
	}()
	made, joined, ready := make(chan int), make(chan error), make(chan error)
	go w.outside(made, joined, ready)
	ns := <-made
	if ns < 0 {
		return nil, <-ready
	}
	err = inside(ns)
	joined <- err
	if oerr := <-ready; err == nil {
		err = oerr
	}
	if err != nil {
		return nil, err
	}
	if err := w.host(); err != nil {
		return nil, err
	}
	return w, w.check()
}

// fresh makes sure that these namespaces are nobody else's: a network that has
// nothing but a loopback which is down, and mounts that are not the parent's.
func fresh() error {
	cards, err := net.Interfaces()
	if err != nil {
		return err
	}
	if len(cards) != 1 || cards[0].Flags&net.FlagUp != 0 {
		return errors.New("this network namespace is in use, so no world is built in it")
	}
	ours, err1 := os.Readlink("/proc/self/ns/mnt")
	theirs, err2 := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", os.Getppid()))
	if err1 != nil || err2 != nil || ours == theirs {
		return errors.New("this mount namespace is the parent's, so no world is built in it")
	}
	return nil
}

// names puts a resolv.conf and a hosts file in place, for this mount namespace.
func names() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	dir, err := os.MkdirTemp("", "berm-world-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) // the mounts keep the files
	for name, text := range map[string]string{
		"resolv.conf": "nameserver " + Resolver4 + "\noptions timeout:1 attempts:2\n",
		"hosts":       "127.0.0.1 localhost\n::1 localhost\n",
	} {
		from := filepath.Join(dir, name)
		if err := os.WriteFile(from, []byte(text), 0o644); err != nil {
			return err
		}
		if err := unix.Mount(from, "/etc/"+name, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("put %s in place: %w", name, err)
		}
	}
	return nil
}

// outside lives on a thread of its own, which leaves for another namespace and
// ends there. Sockets that it opens stay in that namespace.
func (w *World) outside(made chan<- int, joined <-chan error, ready chan<- error) {
	runtime.LockOSThread() // and never unlocked: the thread is of no use to others
	if unix.Gettid() == os.Getpid() {
		// The main thread is the process to those who look at it.
		again := make(chan struct{})
		go func() { defer close(again); w.outside(made, joined, ready) }()
		<-again
		runtime.UnlockOSThread()
		return
	}
	fail := func(err error) { made <- -1; ready <- err }
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		fail(fmt.Errorf("make a network namespace: %w", err))
		return
	}
	ns, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		fail(err)
		return
	}
	made <- ns
	err = <-joined
	unix.Close(ns)
	if err == nil {
		err = away()
	}
	if err == nil {
		err = w.serve()
	}
	ready <- err
}

// A Watch is what a world saw since a case began.
type Watch struct {
	Hits map[string]int  // canaries that were reached, and how often
	Good map[string]bool // what the allowed servers were asked by the rules: "http4 /path", "tls6", "dns name"
}

// Begin starts a case: what was seen before is forgotten. names are allowed
// beside those of Rules.
func (w *World) Begin(names []string) { w.log.begin(names) }

// SoFar is what was seen since Begin, while it goes on.
func (w *World) SoFar() Watch { return w.log.soFar() }

// Open is how many connections are open, to whatever server.
func (w *World) Open() int { return w.log.open() }

// End waits until all that was sent has arrived, and says what it was.
func (w *World) End() Watch {
	w.settle()
	return w.log.take()
}

// settle sends a mark after everything that is under way, and waits for it.
func (w *World) settle() {
	arrived := w.log.expectMark()
	if c, err := net.Dial("udp4", net.JoinHostPort(mark4, "9")); err == nil {
		c.Write([]byte(mark))
		c.Close()
	}
	wait(arrived)
	for _, at := range append([]string{net.JoinHostPort(Allowed4, "8080"), net.JoinHostPort(Allowed4, "8443")}, w.lures...) {
		arrived := w.log.expectMark()
		c, err := net.DialTimeout("tcp", at, settleTime)
		if err != nil {
			continue
		}
		c.Write([]byte(mark))
		wait(arrived)
		c.Close()
	}
	for end := time.Now().Add(settleTime); w.log.open() > 0 && time.Now().Before(end); {
		time.Sleep(2 * time.Millisecond)
	}
}

const (
	mark       = "berm-world-mark\n"
	settleTime = 2 * time.Second
)

func wait(c <-chan struct{}) {
	select {
	case <-c:
	case <-time.After(settleTime):
	}
}

// check calls canaries from here: silence of one that cannot be reached proves
// nothing.
func (w *World) check() error {
	w.Begin(nil)
	for _, to := range []string{"10.9.8.7", "169.254.169.254", "100.100.100.200", "fd00:ec2::254", "64:ff9b::a09:807", Allowed4, Allowed6} {
		c, err := net.DialTimeout("tcp", net.JoinHostPort(to, "8080"), 2*settleTime)
		if err != nil {
			return fmt.Errorf("the canary at %s cannot be reached: %w", to, err)
		}
		c.Write([]byte("GET /ok HTTP/1.1\r\nHost: example.test\r\nConnection: close\r\n\r\n"))
		b := make([]byte, 64)
		n, _ := c.Read(b)
		c.Close()
		if !strings.HasPrefix(string(b[:n]), "HTTP/1.1 200") {
			return fmt.Errorf("the canary at %s said %.20q", to, b[:n])
		}
	}
	seen := w.End()
	if len(seen.Hits) != 5 || !seen.Good["http4 /ok"] || !seen.Good["http6 /ok"] {
		return fmt.Errorf("the canaries noticed only %v and %v", seen.Hits, seen.Good)
	}
	return nil
}

// Close ends the servers. The namespaces end with this process.
func (w *World) Close() {
	for _, c := range w.closers {
		c()
	}
	w.log.cut()
	w.done.Wait()
}

// own says whether a is the inside end of the wire.
func own(a netip.Addr) bool {
	return a == netip.MustParseAddr(Host4) || a == netip.MustParseAddr(Host6)
}
