package agent_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bermhq/berm/internal/guest"
)

// listen serves each connection on a loopback port.
func listen(t *testing.T, addr string, f func(*net.TCPConn)) int {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Skip("no loopback: ", err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				f(c.(*net.TCPConn))
			}()
		}
	}()
	return l.Addr().(*net.TCPAddr).Port
}

func dial(t *testing.T, c *guest.Client, port int) *guest.Conn {
	t.Helper()
	n, err := c.Dial(ctxFor(t, 10*time.Second), port)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	return n.(*guest.Conn)
}

func TestDial(t *testing.T) {
	c, _ := local(t, guest.Options{})
	ctx := ctxFor(t, 20*time.Second)
	echo := func(c *net.TCPConn) { io.Copy(c, c) }
	four, six := listen(t, "127.0.0.1:0", echo), listen(t, "[::1]:0", echo)
	big := bytes.Repeat([]byte("0123456789abcdef"+guest.Magic), 1<<17)
	for _, port := range []int{four, six} {
		n := dial(t, c, port)
		go func() {
			n.Write(big)
			n.CloseWrite()
		}()
		if got, err := io.ReadAll(n); err != nil || !bytes.Equal(got, big) {
			t.Errorf("%d of %d bytes, %v", len(got), len(big), err)
		}
		if _, err := n.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("Write after CloseWrite: %v", err)
		}
	}
	if ports, err := c.Ports(ctx); err != nil || !slices.Contains(ports, four) || !slices.Contains(ports, six) {
		t.Errorf("%v, %v; want %d and %d", ports, err, four, six)
	}

	// The other end may be done first, and still listens.
	heard := make(chan string, 1)
	n := dial(t, c, listen(t, "127.0.0.1:0", func(c *net.TCPConn) {
		io.WriteString(c, "bye")
		c.CloseWrite()
		b, _ := io.ReadAll(c)
		heard <- string(b)
	}))
	if b, err := io.ReadAll(n); string(b) != "bye" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	io.WriteString(n, "and you")
	n.Close() // what was written arrives
	if s := <-heard; s != "and you" {
		t.Errorf("heard %q", s)
	}
	if _, err := n.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Read after Close: %v", err)
	}

	// Deadlines, both ways, and again after they were moved.
	n = dial(t, c, listen(t, "127.0.0.1:0", func(c *net.TCPConn) { time.Sleep(time.Minute) }))
	n.SetDeadline(time.Now().Add(20 * time.Millisecond))
	if _, err := n.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Read: %v", err)
	}
	if _, err := n.Write(make([]byte, 64<<20)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Write to one who does not read: %v", err)
	}
	n.SetDeadline(time.Time{})
	go func() { time.Sleep(20 * time.Millisecond); n.Close() }()
	if _, err := n.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Read when closed: %v", err)
	}

	// A broken connection says so; a port without a listener too.
	n = dial(t, c, listen(t, "127.0.0.1:0", func(c *net.TCPConn) {
		c.Read(make([]byte, 1))
		c.SetLinger(0)
	}))
	n.Write([]byte("x"))
	if _, err := n.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("Read of what was reset: %v", err)
	}
	l, _ := net.Listen("tcp", "127.0.0.1:0")
	l.Close()
	if _, err := c.Dial(ctx, l.Addr().(*net.TCPAddr).Port); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("Dial of nobody: %v", err)
	}
	for _, port := range []int{0, -1, 65536} {
		if _, err := c.Dial(ctx, port); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("Dial %d: %v", port, err)
		}
	}
}

// TestDialStall: a connection that nobody reads stops only itself.
func TestDialStall(t *testing.T) {
	c, _ := local(t, guest.Options{Window: 64 << 10})
	port := listen(t, "127.0.0.1:0", func(c *net.TCPConn) {
		for b := make([]byte, 64<<10); ; {
			if _, err := c.Write(b); err != nil {
				return
			}
		}
	})
	for range 8 {
		dial(t, c, port)
	}
	big := strings.Repeat("x", 1<<20)
	if out, _, _ := result(t, c, guest.Start{ID: "cat", Args: []string{"cat"}, Stdin: true}, big); out != big {
		t.Error("a stalled connection spoiled another stream")
	}
}

// TestReserve: connections leave room for commands, and a kill finds room always.
func TestReserve(t *testing.T) {
	c, _ := local(t, guest.Options{MaxStreams: 8})
	ctx := ctxFor(t, 20*time.Second)
	port := listen(t, "127.0.0.1:0", func(c *net.TCPConn) { io.Copy(io.Discard, c) })
	for range 6 {
		dial(t, c, port)
	}
	if _, err := c.Dial(ctx, port); !errors.Is(err, guest.ErrBusy) {
		t.Errorf("a seventh of eight: %v", err)
	}
	begin(t, c, guest.Start{ID: "a", Args: []string{"sleep", "60"}})
	begin(t, c, guest.Start{ID: "b", Args: []string{"sleep", "60"}})
	if _, err := c.Usage(ctx); !errors.Is(err, guest.ErrBusy) {
		t.Errorf("a ninth of eight: %v", err)
	}
	if err := c.Kill(ctx, "a"); err != nil {
		t.Errorf("a kill: %v", err)
	}
}

// changes reads events until all that are wanted came, in that order; others
// between them are ignored.
func changes(t *testing.T, w *guest.Watcher, want ...string) {
	t.Helper()
	ctx := ctxFor(t, 10*time.Second)
	var seen []string
	for len(want) > 0 {
		e, err := w.Next(ctx)
		if err != nil {
			t.Fatalf("%v; want %v, saw %v", err, want, seen)
		}
		s := e.Op + " " + e.Path
		if seen = append(seen, s); s == want[0] {
			want = want[1:]
		}
	}
}

func TestWatch(t *testing.T) {
	c, dir := local(t, guest.Options{})
	ctx := ctxFor(t, 20*time.Second)
	os.MkdirAll(filepath.Join(dir, "w/sub/deep"), 0o755)
	w, err := c.Watch(ctx, "/w", true)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	flat, err := c.Watch(ctx, "/w", false)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.WriteFile(ctx, "/w/sub/deep/f", 0o644, 0, 0, strings.NewReader("x")); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"create", "write"} { // and no word of how it is done
		if e, err := w.Next(ctx); err != nil || e.Path != "/w/sub/deep/f" || e.Op != want {
			t.Errorf("%+v, %v", e, err)
		}
	}
	os.WriteFile(filepath.Join(dir, "w/sub/deep/f"), []byte("more"), 0o644)
	changes(t, w, "write /w/sub/deep/f")
	os.Chmod(filepath.Join(dir, "w/sub/deep/f"), 0o600)
	changes(t, w, "attrib /w/sub/deep/f")
	os.MkdirAll(filepath.Join(dir, "w/new/a/b"), 0o755)
	changes(t, w, "create /w/new")
	changes(t, flat, "create /w/new")
	os.WriteFile(filepath.Join(dir, "w/new/a/b/c"), nil, 0o644)
	changes(t, w, "create /w/new/a/b/c")
	c.Move(ctx, "/w/new", "/w/sub/old")
	changes(t, w, "rename /w/new", "create /w/sub/old", "create /w/sub/old/a/b/c")
	os.WriteFile(filepath.Join(dir, "w/sub/old/a/b/c"), []byte("x"), 0o644)
	changes(t, w, "write /w/sub/old/a/b/c")
	os.Remove(filepath.Join(dir, "w/sub/deep/f"))
	changes(t, w, "remove /w/sub/deep/f")
	os.WriteFile(filepath.Join(dir, "w/last"), nil, 0o644)
	changes(t, flat, "rename /w/new", "create /w/last")
	os.RemoveAll(filepath.Join(dir, "w"))
	changes(t, w, "remove /w")
	if _, err := w.Next(ctx); err != io.EOF {
		t.Errorf("after the end: %v", err)
	}
	for p, want := range map[string]error{"/none": syscall.ENOENT, "rel": syscall.EINVAL} {
		if _, err := c.Watch(ctx, p, true); !errors.Is(err, want) {
			t.Errorf("%s: %v", p, err)
		}
	}
	os.WriteFile(filepath.Join(dir, "file"), nil, 0o644)
	if _, err := c.Watch(ctx, "/file", true); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("a file: %v", err)
	}
}

// TestWatchLost: who does not read loses events, and is told.
func TestWatchLost(t *testing.T) {
	c, dir := local(t, guest.Options{Window: 64 << 10})
	ctx := ctxFor(t, 60*time.Second)
	w, err := c.Watch(ctx, "/", false)
	if err != nil {
		t.Fatal(err)
	}
	from, to := filepath.Join(dir, strings.Repeat("x", 200)+"a"), filepath.Join(dir, strings.Repeat("x", 200)+"b")
	os.WriteFile(from, nil, 0o644)
	for range 10_000 { // more than the kernel's queue and the window hold
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
		from, to = to, from
	}
	for {
		e, err := w.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if e.Op == guest.OpLost {
			break
		}
	}
	os.WriteFile(filepath.Join(dir, "after"), nil, 0o644)
	changes(t, w, "create /after")
	// More directories than one watch may have.
	for i := range 1100 {
		os.Mkdir(filepath.Join(dir, "d"+string(rune('0'+i%10))+strings.Repeat("i", i/10)), 0o755)
	}
	deep, err := c.Watch(ctx, "/", true)
	if err != nil {
		t.Fatal(err)
	}
	changes(t, deep, "lost ")
}
