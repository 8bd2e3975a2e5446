package keeper

import (
	"context"
	"debug/elf"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bermhq/berm/internal/jail"
)

// TestMain doubles as the program of a sandbox and as a daemon that is killed.
func TestMain(m *testing.M) {
	switch os.Args[0] {
	case "runsc-sandbox":
		fake()
		os.Exit(0)
	case gatewayName:
		fakeGateway()
		os.Exit(0)
	case "keeper-client":
		doomed()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// fake is a sandbox that comes up after a while, says back what it hears over
// the agent stream, ends when it hears an x, and answers its control server
// unless it is deaf.
func fake() {
	fd := func(name string) int {
		for _, a := range os.Args {
			if v, ok := strings.CutPrefix(a, name+"="); ok {
				n, _ := strconv.Atoi(v)
				return n
			}
		}
		return -1
	}
	syscall.Listen(fd("control"), 8)
	control, err := net.FileListener(os.NewFile(uintptr(fd("control")), "control"))
	if err != nil {
		os.Exit(3)
	}
	time.Sleep(time.Duration(fd("slow")) * time.Millisecond)
	os.NewFile(uintptr(fd("sync")), "sync").Write([]byte{1})
	if slices.Contains(os.Args, "spin") {
		for range 3 {
			go func() {
				for n := 1; n != 0; n |= 1 { // for ever, and not idle
				}
			}()
		}
	}
	if !slices.Contains(os.Args, "deaf") {
		go func() {
			for {
				c, err := control.Accept()
				if err != nil {
					return
				}
				go io.Copy(c, c)
			}
		}()
	}
	agent := os.NewFile(uintptr(fd("agent")), "agent")
	b := make([]byte, 4096)
	for {
		n, err := agent.Read(b)
		if err != nil || slices.Contains(b[:n], 'x') {
			os.Exit(7)
		}
		agent.Write(b[:n])
	}
}

// doomed is a daemon that launches until it is killed.
func doomed() {
	c := NewClient(dialTo(os.Args[1]))
	ctx := context.Background()
	if _, err := c.Hello(ctx); err != nil {
		os.Exit(4)
	}
	os.Stdout.WriteString("up\n")
	for n := 0; ; n++ {
		for i := range 3 {
			go c.Launch(ctx, fakeLaunch(os.Args[2]+strconv.Itoa(100+n)+strconv.Itoa(i), "slow=10"), devNull())
		}
		time.Sleep(15 * time.Millisecond)
	}
}

func dialTo(path string) *net.UnixConn {
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		panic(err)
	}
	return c
}

func devNull() *os.File {
	f, err := os.Open(os.DevNull)
	if err != nil {
		panic(err)
	}
	return f
}

var fakeImage = strings.Repeat("i", 26)

func fakeLaunch(id string, args ...string) Launch {
	return Launch{ID: id, Images: []string{fakeImage}, Limits: jail.Limits{MemoryBytes: 256 << 20, Tasks: 64},
		Args:      append([]string{"runsc-sandbox", "control={control}", "sync={sync}", "agent={agent}"}, args...),
		PauseCall: "stop", ResumeCall: "go on"}
}

// A rig is a keeper that serves, with fake sandboxes.
type rig struct {
	t    *testing.T
	dir  string
	path string
	l    *net.UnixListener
	done chan error
	n    int
}

func serve(t *testing.T, cfg Config, mode Mode) *rig {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes cgroups and namespaces")
	}
	h, missing := jail.FindHierarchy()
	if len(missing) > 0 {
		t.Skipf("needs cgroups: %v", missing)
	}
	self, err := elf.Open("/proc/self/exe")
	if err != nil || slices.ContainsFunc(self.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		t.Skip("needs a static test binary (CGO_ENABLED=0): the empty root has no dynamic linker")
	}
	r := &rig{t: t, dir: t.TempDir(), done: make(chan error, 1)}
	r.path = filepath.Join(r.dir, "keeper.sock")
	if r.l, err = net.ListenUnix("unixpacket", &net.UnixAddr{Name: r.path, Net: "unixpacket"}); err != nil {
		t.Fatal(err)
	}
	os.Mkdir(filepath.Join(r.dir, "templates"), 0o755)
	if err := os.WriteFile(filepath.Join(r.dir, "templates", fakeImage+".erofs"), []byte("image"), 0o644); err != nil {
		t.Fatal(err)
	}
	cfg.StateDir, cfg.Runtime = r.dir, "/proc/self/exe"
	go func() { r.done <- Serve(cfg, r.l, mode) }()
	t.Cleanup(func() {
		r.l.Close()
		r.ends()
		for _, d := range h.Named("berm-" + r.prefix()) {
			t.Errorf("left on the host: %s", d)
		}
		if left, _ := filepath.Glob(r.dir + "/runs/*"); len(left) > 0 {
			t.Errorf("left in the state directory: %v", left)
		}
	})
	return r
}

// ends waits for the keeper's end.
func (r *rig) ends() {
	r.t.Helper()
	select {
	case err := <-r.done:
		if err != nil {
			r.t.Errorf("Serve: %v", err)
		}
		r.done <- nil // for the next who asks
	case <-time.After(10 * time.Second):
		r.t.Fatal("the keeper does not end")
	}
}

func (r *rig) prefix() string { return "z" + strconv.Itoa(os.Getpid()) + "x" }

func (r *rig) id() string {
	r.n++
	id := r.prefix() + strconv.Itoa(1000+r.n)
	return id + strings.Repeat("0", 30-len(id))
}

func (r *rig) dial() *Client {
	r.t.Helper()
	c := NewClient(dialTo(r.path))
	r.t.Cleanup(func() { c.Close() })
	if _, err := c.Hello(r.t.Context()); err != nil {
		r.t.Fatalf("Hello: %v", err)
	}
	return c
}

func (r *rig) launch(c *Client, args ...string) (string, *Running) {
	r.t.Helper()
	spec := devNull()
	defer spec.Close()
	l := fakeLaunch(r.id(), args...)
	run, err := c.Launch(r.t.Context(), l, spec)
	if err != nil {
		r.t.Fatalf("Launch: %v", err)
	}
	return l.ID, run
}

// echo says something to the sandbox and fails unless it comes back.
func echo(t *testing.T, r *Running, what string) {
	t.Helper()
	if _, err := r.Agent.WriteString(what); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, len(what))
	if _, err := io.ReadFull(r.Agent, b); err != nil || string(b) != what {
		t.Fatalf("said %q, heard %q, %v", what, b, err)
	}
}

// gone waits for the end of a sandbox.
func gone(t *testing.T, r *Running) Exited {
	t.Helper()
	select {
	case <-r.Gone:
		return r.Exited
	case <-time.After(10 * time.Second):
		t.Fatal("it does not end")
		return Exited{}
	}
}

// until waits for something to be so.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within ten seconds: %s", what)
		}
	}
}

func cut(c *Client) func() bool {
	return func() bool {
		select {
		case <-c.Done():
			return true
		default:
			return false
		}
	}
}
