package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/backend"
	"github.com/bermhq/berm/internal/backend/mem"
	"github.com/bermhq/berm/internal/sandbox"
	"github.com/bermhq/berm/internal/server"
	"github.com/bermhq/berm/internal/testkit"
)

// A bound sandbox ends with its connection, however that ends.
func TestBound(t *testing.T) {
	testkit.NoLeak(t)
	be := mem.New(mem.Options{Boundary: api.BoundaryUserKernel, Dir: t.TempDir()})
	eng := sandbox.New([]backend.Backend{be}, sandbox.Options{})
	defer eng.Close(context.Background())
	dial := testkit.Serve(t, server.New(eng, server.Options{LastWord: 200 * time.Millisecond}))
	open := func(body string) (net.Conn, *bufio.Reader) {
		nc, err := dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		nc.SetDeadline(time.Now().Add(10 * time.Second))
		fmt.Fprintf(nc, "POST /v1/sandboxes HTTP/1.1\r\nHost: berm\r\nUpgrade: berm-bound\r\nConnection: Upgrade\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		return nc, bufio.NewReader(nc)
	}
	live := func(n int) {
		t.Helper()
		for end := time.Now().Add(10 * time.Second); be.Live() != n; time.Sleep(2 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%d sandboxes live, want %d", be.Live(), n)
			}
		}
	}

	nc, r := open("{}")
	resp, err := http.ReadResponse(r, nil)
	if err != nil || resp.StatusCode != 101 || resp.Header.Get("Upgrade") != api.BoundProtocol {
		t.Fatalf("%v %v", resp, err)
	}
	line, err := r.ReadString('\n')
	var sb api.Sandbox
	if err != nil || json.Unmarshal([]byte(line), &sb) != nil || !api.ValidID(sb.SandboxID) {
		t.Fatalf("%q %v", line, err)
	}
	live(1)
	fmt.Fprint(nc, strings.Repeat("what a client says is ignored", 1000))
	live(1)
	nc.Close()
	live(0)

	// Nobody reads the answer.
	nc, _ = open("{}")
	live(1)
	live(0)
	nc.Close()

	// A refusal is an ordinary one.
	nc, r = open(`{"limits":{"pids":-2}}`)
	if resp, err := http.ReadResponse(r, nil); err != nil || resp.StatusCode != 400 {
		t.Errorf("%v %v", resp, err)
	}
	nc.Close()

	// It may be deleted before.
	nc, r = open("{}")
	defer nc.Close()
	if _, err := http.ReadResponse(r, nil); err != nil {
		t.Fatal(err)
	}
	line, _ = r.ReadString('\n')
	json.Unmarshal([]byte(line), &sb)
	if _, err := eng.Delete(t.Context(), sb.SandboxID); err != nil {
		t.Error(err)
	}
	live(0)
}
