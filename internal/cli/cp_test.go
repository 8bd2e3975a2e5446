package cli_test

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/client"
	"github.com/bermhq/berm/internal/cli"
)

// No space in a sandbox that is far from its cap is the host's doing.
func TestCpNoRoom(t *testing.T) {
	id := api.NewID(api.KindSandbox)
	var used int64
	answer := func(w http.ResponseWriter, status int, v any) {
		w.WriteHeader(status)
		json.NewEncoder(w).Encode(v)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/sandboxes/{id}", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, 200, api.Sandbox{SandboxID: id, Limits: api.Limits{DiskBytes: 100 << 20}})
	})
	mux.HandleFunc("GET /v1/sandboxes/{id}/metrics", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, 200, api.Metrics{SandboxID: id, DiskBytes: used})
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/stat") {
			answer(w, 404, api.Error{Code: api.CodeFileNotFound, Message: "does not exist"})
			return
		}
		answer(w, 413, api.Error{Code: api.CodeFileTooLarge, Message: "write x: no space left on device", Hint: "give the sandbox more room with --disk"})
	})
	srv := httptest.NewServer(mux)
	defer srv.Close()
	w := newWorld(t)
	w.connect = func(context.Context, cli.ConnectOptions) (*cli.Session, error) {
		c := client.New(client.Options{URL: "http://127.0.0.1", Dial: func(ctx context.Context) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", srv.Listener.Addr().String())
		}})
		return &cli.Session{Client: c, Close: func() error { c.Close(); return nil }}, nil
	}
	t.Chdir(t.TempDir())
	os.MkdirAll("d", 0o755)
	os.WriteFile("d/x", make([]byte, 1<<20), 0o644)
	for _, what := range []string{"d/x", "d"} {
		used = 3 << 20
		if code, _, errs := w.run(t.Context(), "", "cp", what, id+":/tmp/x"); code != 125 || !strings.Contains(errs, "the disk of the host is full\ntry: df -h") {
			t.Errorf("cp %s, host full: %d %q", what, code, errs)
		}
		used = 99 << 20
		if code, _, errs := w.run(t.Context(), "", "cp", what, id+":/tmp/x"); code != 125 || !strings.Contains(errs, "on device\ntry: give the sandbox more room with --disk") {
			t.Errorf("cp %s, sandbox full: %d %q", what, code, errs)
		}
	}
}
