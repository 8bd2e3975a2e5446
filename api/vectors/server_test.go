package vectors_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/auth"
	"github.com/bermhq/berm/internal/backend"
	"github.com/bermhq/berm/internal/backend/mem"
	"github.com/bermhq/berm/internal/egress"
	"github.com/bermhq/berm/internal/sandbox"
	"github.com/bermhq/berm/internal/server"
	"github.com/bermhq/berm/internal/store"
	"github.com/bermhq/berm/internal/testkit"
	"github.com/bermhq/berm/internal/testkit/shelves"
)

// TestServer replays the vectors against the server over the fake backend, with
// the real log and tokens.
func TestServer(t *testing.T) { replay(t, serve(t)) }

// TestDaemon replays them against a daemon, if the environment names one.
func TestDaemon(t *testing.T) {
	to := target{url: os.Getenv("BERM_URL"), token: os.Getenv("BERM_TOKEN"), has: []string{"programs", "events", "admin", "link", "templates"}, http: bare()}
	if to.url == "" || to.token == "" {
		t.Skip("BERM_URL and BERM_TOKEN name no daemon")
	}
	replay(t, to)
}

// TestPython gives the same server to the Python SDK, which replays the vectors
// through its own transport.
func TestPython(t *testing.T) {
	python := os.Getenv("BERM_PYTHON") // one that has httpx and pytest
	if python == "" {
		python = "python3"
	}
	if out, err := exec.Command(python, "-c", "import httpx, pytest").CombinedOutput(); err != nil {
		t.Skipf("%s has no httpx or no pytest (%v): set BERM_PYTHON", python, firstOf(string(out), err.Error()))
	}
	to := serve(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_vectors.py")
	cmd.Dir = filepath.Join("..", "..", "sdk", "python")
	cmd.Env = append(os.Environ(), "BERM_URL="+to.url, "BERM_TOKEN="+to.token, "BERM_HAS=events,admin,link,templates,fake", "PYTHONDONTWRITEBYTECODE=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	} else {
		t.Logf("%s", out)
	}
}

func bare() *http.Client {
	return &http.Client{
		Timeout:       time.Minute,
		Transport:     &http.Transport{DisableCompression: true, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return errors.New("a redirect") },
	}
}

func serve(t *testing.T) target {
	testkit.NoLeak(t)
	st, err := store.Open(t.TempDir(), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	tokens, err := auth.Open(st.Bucket("tokens"), st.Append)
	if err != nil {
		t.Fatal(err)
	}
	token, _, err := tokens.Bootstrap(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	broker := egress.New(egress.Options{})
	eng := sandbox.New([]backend.Backend{mem.New(mem.Options{Name: api.IsolationGVisor, Boundary: api.BoundaryUserKernel, Dir: t.TempDir(),
		Gateway: func(id string, c *net.UnixConn) { go broker.Serve(id, c) }})},
		sandbox.Options{Journal: journal{st}, Egress: broker})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	shelf := shelves.New()
	srv := server.Harden(&http.Server{Handler: server.New(eng, server.Options{
		Auth: tokens, Store: st, Version: api.Version{Version: "test"},
		Shelf: shelf, Builds: &shelves.Builds{Shelf: shelf},
	})})
	stopped := make(chan struct{})
	go func() { defer close(stopped); srv.Serve(l) }()
	t.Cleanup(func() {
		srv.Close()
		<-stopped
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := eng.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return target{url: "http://" + l.Addr().String(), token: token, has: []string{"events", "admin", "link", "templates", "fake"}, http: bare()}
}

// journal is the store as the engine wants it.
type journal struct{ *store.Store }

func (j journal) Save(id string, record json.RawMessage) error {
	return j.Bucket("sandboxes").Put(id, record)
}
func (j journal) Drop(id string) error { return j.Bucket("sandboxes").Delete(id) }
func (j journal) Head() uint64         { return j.Store.Head().Seq }

func (j journal) Load() (map[string]json.RawMessage, error) {
	out := map[string]json.RawMessage{}
	return out, j.Bucket("sandboxes").Each(func(k string, v json.RawMessage) error { out[k] = v; return nil })
}

// Replay has nothing to tell: every engine here is the first of its log.
func (j journal) Replay(context.Context, uint64, func(api.Event) error) error { return nil }
