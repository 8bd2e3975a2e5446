package gvisor

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/backend"
	"github.com/bermhq/berm/internal/image"
	"github.com/bermhq/berm/internal/jail"
	"github.com/bermhq/berm/internal/keeper"
	"github.com/bermhq/berm/internal/testkit"
)

// built is what `make build` left: the programs of the sandbox and the guest.
func built(t *testing.T) (sandbox, agent string) {
	t.Helper()
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	sandbox, agent = filepath.Join(root, "build/sandbox"), filepath.Join(root, "build/agent")
	for _, p := range []string{sandbox, agent} {
		if _, err := os.Stat(p); err != nil {
			t.Skip("needs the built programs: run make build")
		}
	}
	return sandbox, agent
}

// A place is a state directory with the images that sandboxes are made of.
type place struct {
	state, sandbox string
	image, agent   string
	layers         []string // to lie on top of image, see baseLayers
}

// baseLayers are a layer with things to change, and one that hides some of them.
func baseLayers() []map[string]image.File {
	base := map[string]image.File{}
	dir := func(p string) { base["/home/agent"+p] = image.File{Dir: true, Mode: 0o755, UID: 1000} }
	file := func(p, content string) {
		base["/home/agent"+p] = image.File{Content: []byte(content), Mode: 0o644, UID: 1000}
	}
	for _, d := range []string{"", "/base", "/base/dir", "/base/again", "/base/turned", "/base/mode", "/hidden", "/hidden/sub", "/part"} {
		dir(d)
	}
	for _, f := range []string{"/base/file", "/base/dir/x", "/base/again/x", "/base/turned/x", "/base/tofile", "/base/kept", "/base/kept2", "/base/kept3",
		"/base/moved", "/base/mode/x", "/hidden/sub/x", "/part/a", "/part/b"} {
		file(f, f[strings.LastIndex(f, "/")+1:])
	}
	top := map[string]image.File{
		"/home/agent":        {Dir: true, Mode: 0o755, UID: 1000},
		"/home/agent/hidden": {Whiteout: true},
		"/home/agent/part":   {Dir: true, Mode: 0o755, UID: 1000},
		"/home/agent/part/a": {Whiteout: true},
		"/home/agent/part/c": {Content: []byte("on top\n")},
	}
	return []map[string]image.File{base, top}
}

func ready(t *testing.T) place {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes cgroups and namespaces")
	}
	if _, missing := jail.FindHierarchy(); len(missing) > 0 {
		t.Skipf("needs cgroups: %v", missing)
	}
	sandbox, agent := built(t)
	// A state directory of our own, on the templates that are there already.
	state := t.TempDir()
	if ready := os.Getenv("BERM_STATE"); ready != "" {
		if err := os.Symlink(filepath.Join(ready, "templates"), filepath.Join(state, "templates")); err != nil {
			t.Fatal(err)
		}
	}
	store := image.Open(filepath.Join(state, "templates"))
	host, err := store.Resolve(t.Context(), image.Host, image.Options{})
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(agent)
	if err != nil {
		t.Fatal(err)
	}
	layer, err := store.Blob(t.Context(), image.AgentFiles(content))
	if err != nil {
		t.Fatal(err)
	}
	place := place{state: state, sandbox: sandbox, image: host.Name, agent: layer.Name}
	for _, files := range baseLayers() {
		l, err := store.Blob(t.Context(), files)
		if err != nil {
			t.Fatal(err)
		}
		place.layers = append(place.layers, l.Name)
	}
	return place
}

// link is what the suite sees of gateways, over a keeper of this process.
func link() *testkit.Link {
	return &testkit.Link{
		Told: make(chan testkit.Gateway, 100),
		PIDs: func(id string) (out []int) {
			h, _ := jail.FindHierarchy()
			for _, p := range h.Plan("berm-" + id).Procs() {
				if b, _ := os.ReadFile("/proc/" + strconv.Itoa(p) + "/cmdline"); string(b) == "berm-gateway\x00" {
					out = append(out, p)
				}
			}
			return out
		},
		Open: func() int {
			ents, _ := os.ReadDir("/proc/self/fd")
			return len(ents)
		},
	}
}

// told are the options of a backend that tells l of gateways.
func told(l *testkit.Link) Options {
	return Options{Gateway: func(id string, c *net.UnixConn) { l.Told <- testkit.Gateway{ID: id, Broker: c} }}
}

// suite is the conformance suite over a keeper of this process.
func (p place) suite(b *recorder, l *testkit.Link) testkit.Suite {
	return testkit.Suite{
		Link:     l,
		New:      func(*testing.T) backend.Backend { return b },
		Image:    p.image,
		Dir:      "/workspace",
		UID:      1000,
		GID:      1000,
		Commands: map[string][]string{"exit3": {"/bin/sh", "-c", "exit 3"}},
		Leaks: func(t *testing.T) []string {
			var out []string
			h, _ := jail.FindHierarchy()
			for _, id := range *b.ids {
				out = append(out, h.Named("berm-"+id)...)
			}
			runs, _ := filepath.Glob(filepath.Join(p.state, "runs", "*"))
			return append(out, runs...)
		},
	}
}

func ends(t *testing.T, done chan error, end func()) {
	t.Cleanup(func() {
		end()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("keeper: %v", err)
			}
		case <-time.After(10 * time.Second):
			t.Error("the keeper does not end")
		}
	})
}

// TestSuite runs the conformance suite on real sandboxes, whose keeper ends
// with its engine.
func TestSuite(t *testing.T) {
	p := ready(t)
	owner, _ := pair(t)
	engine, ours := pair(t)
	done := make(chan error, 1)
	go func() { done <- keeper.Run(keeper.Config{StateDir: p.state, Runtime: p.sandbox}, owner, engine) }()
	client := keeper.NewClient(ours)
	ends(t, done, func() { client.Close() })
	if _, err := client.Facts(t.Context(), false); err != nil { // its goroutines are there from here on
		t.Fatal(err)
	}
	l := link()
	testkit.Backends(t, p.suite(&recorder{Backend: New(client, p.agent, told(l)), ids: new([]string)}, l))
}

// TestStacked runs it on roots of two layers that keep apart what is written.
func TestStacked(t *testing.T) {
	p := ready(t)
	owner, _ := pair(t)
	engine, ours := pair(t)
	done := make(chan error, 1)
	go func() { done <- keeper.Run(keeper.Config{StateDir: p.state, Runtime: p.sandbox}, owner, engine) }()
	client := keeper.NewClient(ours)
	ends(t, done, func() { client.Close() })
	if _, err := client.Facts(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	l := link()
	s := p.suite(&recorder{Backend: New(client, p.agent, told(l)), ids: new([]string)}, l)
	s.Upper, s.Track = p.layers, true
	s.Layers = &testkit.Layers{Over: "/home/agent/part/c", Content: "on top\n", Hidden: []string{"/home/agent/hidden", "/home/agent/hidden/sub/x", "/home/agent/part/a"},
		Dir: "/home/agent/part", InDir: []string{"b", "c"}}
	testkit.Backends(t, s)
}

// TestServed runs it over a keeper that outlives its engines.
func TestServed(t *testing.T) {
	p := ready(t)
	path := filepath.Join(p.state, "keeper.sock")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- keeper.Serve(keeper.Config{StateDir: p.state, Runtime: p.sandbox}, l, keeper.ModeUnit) }()
	ends(t, done, func() { l.Close() })
	var client *keeper.Client
	connect := func(t *testing.T) {
		c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
		if err != nil {
			t.Fatal(err)
		}
		client = keeper.NewClient(c)
		if _, err := client.Hello(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	connect(t)
	t.Cleanup(func() { client.Close() })
	gates := link()
	b := &recorder{Backend: New(client, p.agent, told(gates)), ids: new([]string)}
	s := p.suite(b, gates)
	s.Restart = func(t *testing.T, dead backend.Backend) backend.Backend {
		client.Close()
		connect(t)
		b = &recorder{Backend: New(client, p.agent, told(gates)), ids: b.ids}
		return b
	}
	s.New = func(*testing.T) backend.Backend { return b }
	testkit.Backends(t, s)
}

// A recorder remembers the ids of all that it was asked to start.
type recorder struct {
	*Backend
	mu  sync.Mutex
	ids *[]string
}

func (r *recorder) Start(ctx context.Context, s backend.Spec) (backend.Instance, error) {
	r.mu.Lock()
	*r.ids = append(*r.ids, s.ID)
	r.mu.Unlock()
	return r.Backend.Start(ctx, s)
}

func pair(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	fa, fb, err := jail.Pair(unix.SOCK_SEQPACKET)
	if err != nil {
		t.Fatal(err)
	}
	if a, err = jail.Conn(fa); err == nil {
		b, err = jail.Conn(fb)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

func TestSpec(t *testing.T) {
	s := backend.Spec{ID: "sabcdefghijklmnopqrstuvwx", Image: "x", Hostname: "h", Limits: api.Limits{}.WithDefaults()}
	b, err := marshalSpec(s)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	if env := got["process"].(map[string]any)["env"].([]any); len(env) != 0 {
		t.Errorf("the guest's first process has the environment %v", env)
	}
}
