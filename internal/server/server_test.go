package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

type edge struct {
	t    *testing.T
	dial func(context.Context) (net.Conn, error)
}

func newEdge(t *testing.T) *edge { return newEdgeWith(t, server.Options{}, sandbox.Options{}) }

func newEdgeWith(t *testing.T, opt server.Options, eng sandbox.Options) *edge {
	testkit.NoLeak(t)
	e := sandbox.New([]backend.Backend{mem.New(mem.Options{Boundary: api.BoundaryUserKernel, Dir: t.TempDir()})}, eng)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := e.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return &edge{t, testkit.Serve(t, server.New(e, opt))}
}

// do sends one raw request and returns status and body.
func (e *edge) do(method, path, body string, header ...string) (int, string) {
	e.t.Helper()
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return e.dial(ctx) }, DisableKeepAlives: true}
	for try := 0; ; try++ {
		req, err := http.NewRequest(method, "http://berm"+path, strings.NewReader(body))
		if err != nil {
			e.t.Fatal(err)
		}
		for i := 0; i < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		resp, err := tr.RoundTrip(req)
		if errors.Is(err, io.ErrClosedPipe) && try < 10 {
			continue // refused before all of the body was sent: a pipe may lose the answer then
		}
		if err != nil {
			e.t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			e.t.Fatal(err)
		}
		return resp.StatusCode, string(b)
	}
}

func (e *edge) create() string {
	e.t.Helper()
	status, body := e.do("POST", "/v1/sandboxes", "{}")
	var sb api.Sandbox
	if err := json.Unmarshal([]byte(body), &sb); err != nil || status != 201 {
		e.t.Fatalf("create: %d %s", status, body)
	}
	return sb.SandboxID
}

func TestRefusals(t *testing.T) {
	e := newEdge(t)
	id := e.create()
	for _, tt := range []struct {
		method, path, body string
		status             int
		code               string
	}{
		{"POST", "/v1/sandboxes", "", 400, api.CodeBadRequest},
		{"POST", "/v1/sandboxes", "[]", 400, api.CodeBadRequest},
		{"POST", "/v1/sandboxes", `{"template":"host","mounts":[]}`, 400, api.CodeBadRequest},
		{"POST", "/v1/sandboxes", `{"limits":{"memory":"1g"}}`, 400, api.CodeBadRequest},
		{"POST", "/v1/sandboxes", `{} {}`, 400, api.CodeBadRequest},
		{"POST", "/v1/sandboxes", `{"limits":{"pids":-2}}`, 400, api.CodeLimitInvalid},
		{"POST", "/v1/sandboxes", `{"isolation":"vm"}`, 400, api.CodeUnknownIsolation},
		{"POST", "/v1/sandboxes", `{"template":"` + strings.Repeat("x", 1<<20) + `"}`, 413, api.CodeTooLarge},
		{"GET", "/v1/sandboxes/nope", "", 404, api.CodeSandboxNotFound},
		{"DELETE", "/v1/sandboxes/nope", "", 404, api.CodeSandboxNotFound},
		{"GET", "/v1/sandboxes/", "", 404, api.CodeNoRoute},
		{"GET", "/etc/passwd", "", 404, api.CodeNoRoute},
		{"POST", "/v1/sandboxes/" + id + "/exec", `{"args":[]}`, 400, api.CodeBadRequest},
		{"GET", "/v1/sandboxes/" + id + "/files?path=none", "", 404, api.CodeFileNotFound},
		{"GET", "/v1/sandboxes/" + id + "/files?path=x&max=-1", "", 400, api.CodeBadRequest},
		{"GET", "/v1/sandboxes/" + id + "/files", "", 400, api.CodeBadRequest},
		{"GET", "/v1/sandboxes/" + id + "/files?path=x&follow=1", "", 400, api.CodeBadRequest},
		{"PUT", "/v1/sandboxes/" + id + "/archive?path=x", "not a tar, and long enough to be seen as none", 403, api.CodeFileRefused},
	} {
		status, body := e.do(tt.method, tt.path, tt.body)
		var ae api.Error
		if err := json.Unmarshal([]byte(body), &ae); err != nil || status != tt.status || ae.Code != tt.code || ae.Message == "" || ae.Hint == "" || !api.ValidID(ae.RequestID) {
			t.Errorf("%s %.80s %.40s: %d %s", tt.method, tt.path, tt.body, status, body)
		}
	}
}

func TestDoctor(t *testing.T) {
	e := newEdge(t)
	status, body := e.do("GET", "/v1/doctor", "")
	var d api.Doctor
	if err := json.Unmarshal([]byte(body), &d); err != nil || status != 200 || d.Host["cpus"] == nil || d.Walls == nil {
		t.Errorf("%d %s", status, body)
	}
	if want := (api.Rung{Name: "mem", Boundary: api.BoundaryUserKernel, Available: true}); len(d.Rungs) != 1 || d.Rungs[0] != want {
		t.Errorf("rungs = %+v", d.Rungs)
	}
}

// upgrade starts an exec and returns the raw connection.
func (e *edge) upgrade(id, request string) (net.Conn, *bufio.Reader) {
	e.t.Helper()
	nc, err := e.dial(e.t.Context())
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() { nc.Close() })
	nc.SetDeadline(time.Now().Add(10 * time.Second))
	fmt.Fprintf(nc, "POST /v1/sandboxes/%s/exec HTTP/1.1\r\nHost: berm\r\nUpgrade: berm-exec\r\nConnection: Upgrade\r\nContent-Length: %d\r\n\r\n%s", id, len(request), request)
	r := bufio.NewReader(nc)
	resp, err := http.ReadResponse(r, nil)
	if err != nil || resp.StatusCode != 101 {
		e.t.Fatalf("upgrade: %v, %v", resp, err)
	}
	return nc, r
}

// last reads frames to the last one.
func last(t *testing.T, r io.Reader) (kind byte, payload string) {
	t.Helper()
	for {
		var h [api.FrameHeader]byte
		if _, err := io.ReadFull(r, h[:]); err != nil {
			return 0, err.Error()
		}
		kind, size, ok := api.ParseFrameHeader(h)
		if !ok {
			t.Fatalf("bad frame of kind %d", kind)
		}
		p := make([]byte, size)
		if _, err := io.ReadFull(r, p); err != nil {
			return 0, err.Error()
		}
		if kind == api.FrameResult || kind == api.FrameError {
			return kind, string(p)
		}
	}
}

func send(w io.Writer, kind byte, payload string) {
	var h [api.FrameHeader]byte
	api.PutFrameHeader(&h, kind, len(payload))
	w.Write(append(h[:], payload...))
}

func TestExecFrames(t *testing.T) {
	e := newEdge(t)
	id := e.create()
	_, r := e.upgrade(id, `{"args":["echo","hi"]}`)
	if kind, p := last(t, r); kind != api.FrameResult || !strings.Contains(p, `"ending":"exit"`) {
		t.Errorf("%d %s", kind, p)
	}
	_, r = e.upgrade(id, `{"args":["a\u0000"]}`)
	if kind, p := last(t, r); kind != api.FrameError || !strings.Contains(p, api.CodeBadRequest) {
		t.Errorf("%d %s", kind, p)
	}
	// A client that breaks the rules, or leaves, ends the exec.
	for name, breakIt := range map[string]func(net.Conn){
		"unknown kind":  func(nc net.Conn) { send(nc, 99, "") },
		"server's kind": func(nc net.Conn) { send(nc, api.FrameStdout, "x") },
		"short resize":  func(nc net.Conn) { send(nc, api.FrameResize, "x") },
		"signal 0":      func(nc net.Conn) { send(nc, api.FrameSignal, "\x00") },
		"beyond window": func(nc net.Conn) {
			for range 64 { // more than the guest takes ahead of a program that does not read
				send(nc, api.FrameStdin, strings.Repeat("x", api.MaxFrame))
			}
		},
		"leaves": func(nc net.Conn) { nc.Close() },
	} {
		nc, r := e.upgrade(id, `{"args":["sleep","60"],"stdin":true}`)
		began := time.Now()
		go breakIt(nc)
		kind, p := last(t, r)
		if kind == api.FrameResult && !strings.Contains(p, `"ending":"killed"`) {
			t.Errorf("%s: %s", name, p)
		}
		if d := time.Since(began); d > 5*time.Second {
			t.Errorf("%s: took %v", name, d)
		}
	}
}

// A client that never reads ends with its exec's time, and holds nothing.
func TestNeverRead(t *testing.T) {
	testkit.NoLeak(t)
	eng := sandbox.New([]backend.Backend{mem.New(mem.Options{Boundary: api.BoundaryUserKernel, Dir: t.TempDir()})},
		sandbox.Options{Drain: 100 * time.Millisecond})
	defer eng.Close(t.Context())
	e := &edge{t, testkit.Serve(t, server.New(eng, server.Options{LastWord: 200 * time.Millisecond}))}
	for _, cmd := range []string{`["yes"]`, `["sleep","60"]`, `["echo","hi"]`} {
		id := e.create()
		nc, r := e.upgrade(id, `{"args":`+cmd+`,"timeout_seconds":0.3}`)
		time.Sleep(2500 * time.Millisecond)
		nc.SetDeadline(time.Now().Add(time.Second))
		if kind, p := last(t, r); kind != 0 || !strings.Contains(p, "EOF") {
			t.Errorf("%s: the connection still lives: %d %s", cmd, kind, p)
		}
		status, body := e.do("DELETE", "/v1/sandboxes/"+id+"?report=1", "")
		if status != 200 {
			t.Errorf("%s: delete: %d %s", cmd, status, body)
		}
	}
}
