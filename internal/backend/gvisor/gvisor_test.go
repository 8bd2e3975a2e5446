package gvisor

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
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

// TestSuite runs the conformance suite on real sandboxes, with the keeper in
// this process.
func TestSuite(t *testing.T) {
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
	layer, err := store.Blob(t.Context(), map[string]image.File{"/agent": {Content: content, Mode: 0o755}})
	if err != nil {
		t.Fatal(err)
	}

	owner, _ := pair(t)
	engine, ours := pair(t)
	done := make(chan error, 1)
	go func() { done <- keeper.Run(keeper.Config{StateDir: state, Runtime: sandbox}, owner, engine) }()
	client := keeper.NewClient(ours)
	t.Cleanup(func() {
		client.Close()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("keeper: %v", err)
			}
		case <-time.After(10 * time.Second):
			t.Error("the keeper does not end with its engine")
		}
	})
	if _, err := client.Facts(t.Context(), false); err != nil { // its goroutines are there from here on
		t.Fatal(err)
	}
	b := &recorder{Backend: New(client, layer.Name)}
	testkit.Backends(t, testkit.Suite{
		New:      func(*testing.T) backend.Backend { return b },
		Image:    host.Name,
		Dir:      "/workspace",
		UID:      1000,
		GID:      1000,
		Commands: map[string][]string{"exit3": {"/bin/sh", "-c", "exit 3"}},
		Leaks: func(t *testing.T) []string {
			var out []string
			h, _ := jail.FindHierarchy()
			for _, id := range b.ids {
				out = append(out, h.Named("berm-"+id)...)
			}
			runs, _ := filepath.Glob(filepath.Join(state, "runs", "*"))
			return append(out, runs...)
		},
	})
}

// A recorder remembers the ids of all that it was asked to start.
type recorder struct {
	*Backend
	mu  sync.Mutex
	ids []string
}

func (r *recorder) Start(ctx context.Context, s backend.Spec) (backend.Instance, error) {
	r.mu.Lock()
	r.ids = append(r.ids, s.ID)
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
