package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
)

// serving is a client of a handler, and who asked what.
func serving(t *testing.T, h http.HandlerFunc) *Client {
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	c := New(Options{URL: srv.URL, Token: "e2b_test"})
	t.Cleanup(c.Close)
	return c
}

// routeOf is the name of the route that a request means, or "".
func routeOf(method, path string) string {
	got := strings.Split(path, "/")
	best := ""
	for _, r := range api.Routes {
		want := strings.Split(r.Path, "/")
		if r.Method != method || len(want) != len(got) {
			continue
		}
		ok, named := true, false
		for i := range want {
			name := strings.HasPrefix(want[i], "{")
			named = named || name && i == len(want)-1
			ok = ok && (name && got[i] != "" || want[i] == got[i])
		}
		if ok && (best == "" || !named) {
			best = r.Name
		}
	}
	return best
}

// Every route that there is has a call, and every call is of a route.
func TestEveryRoute(t *testing.T) {
	var mu sync.Mutex
	asked := map[string]bool{}
	c := serving(t, func(w http.ResponseWriter, r *http.Request) {
		name := routeOf(r.Method, r.URL.EscapedPath())
		if name == "" {
			t.Errorf("%s %s is not a route", r.Method, r.URL.Path)
		}
		if r.Header.Get("Authorization") != "Bearer e2b_test" {
			t.Errorf("%s: no token", name)
		}
		mu.Lock()
		asked[name] = true
		mu.Unlock()
		w.WriteHeader(http.StatusTeapot)
	})
	ctx := t.Context()
	drop := func(a ...any) {}
	drop(c.Healthy(ctx))
	drop(c.Version(ctx))
	drop(c.Routes(ctx))
	drop(c.Me(ctx))
	drop(c.Doctor(ctx))
	drop(c.Leaks(ctx))
	drop(c.Top(ctx))
	drop(c.Egress(ctx, "s1"))
	drop(c.ChangeEgress(ctx, "s1", json.RawMessage("[]")))
	drop(c.Create(ctx, api.CreateRequest{}))
	drop(c.CreateBound(ctx, api.CreateRequest{}))
	drop(c.Sandboxes(ctx, Filter{}))
	drop(c.Get(ctx, "s"))
	drop(c.Delete(ctx, "s"))
	drop(c.Report(ctx, "s"))
	drop(c.Lifecycle(ctx, "s"))
	drop(c.SetLifecycle(ctx, "s", api.LifecycleChange{}))
	drop(c.Tags(ctx, "s"))
	drop(c.SetTags(ctx, "s", api.MetadataChange{}))
	drop(c.Pause(ctx, "s"))
	drop(c.Resume(ctx, "s"))
	drop(c.Metrics(ctx, "s"))
	drop(c.Logs(ctx, "s", LogOptions{}, io.Discard))
	drop(c.Ports(ctx, "s"))
	drop(c.DialPort(ctx, "s", 80))
	drop(c.ExecPlain(ctx, "s", api.ExecRequest{}))
	drop(c.Execs(ctx, "s"))
	drop(c.GetExec(ctx, "s", "x"))
	drop(c.KillExec(ctx, "s", "x"))
	drop(c.Follow(ctx, "s", "x", 0, true, nil))
	drop(c.Signal(ctx, "s", "x", "TERM"))
	drop(c.WriteStdin(ctx, "s", "x", strings.NewReader("x"), true))
	drop(c.OpenFile(ctx, "s", "/x"))
	drop(c.WriteFile(ctx, "s", "/x", 0o755, strings.NewReader("x")))
	drop(c.Remove(ctx, "s", "/x"))
	drop(c.ListDir(ctx, "s", "/x"))
	drop(c.Mkdir(ctx, "s", "/x"))
	drop(c.Stat(ctx, "s", "/x"))
	drop(c.Move(ctx, "s", "/x", "/y"))
	drop(c.Watch(ctx, "s", "/x", true, nil, nil))
	drop(c.TarOut(ctx, "s", "/x", "a"))
	drop(c.TarIn(ctx, "s", "/x", strings.NewReader("x")))
	drop(c.Glob(ctx, "s", "*"))
	drop(c.List(ctx, "s", "/x"))
	drop(c.ReadFile(ctx, "s", "/x", 1))
	drop(c.Events(ctx, EventQuery{Wait: time.Second}))
	drop(c.AuditHead(ctx))
	drop(c.AuditVerify(ctx, nil))
	drop(c.AuditExport(ctx))
	drop(c.AuditReport(ctx, "s"))
	drop(c.Templates(ctx))
	drop(c.Template(ctx, "host"))
	drop(c.RemoveTemplate(ctx, "a/b:c"))
	drop(c.ExportTemplate(ctx, "a/b:c", "oci"))
	drop(c.ImportTemplate(ctx, Import{Name: "x"}, strings.NewReader("x")))
	drop(c.PullTemplate(ctx, api.BuildRequest{ImageRef: "x"}))
	drop(c.BuildTemplate(ctx, api.BuildRequest{Name: "x"}, strings.NewReader("x")))
	drop(c.Builds(ctx))
	drop(c.WaitBuild(ctx, "b", nil))
	drop(c.CancelBuild(ctx, "b"))
	drop(c.FollowBuild(ctx, "b", nil))
	drop(c.PutWorkspace(ctx, "", strings.NewReader("x")))
	drop(c.Workspace(ctx, "w"))
	drop(c.Changes(ctx, "s", "/"))
	drop(c.Tokens(ctx))
	drop(c.CreateToken(ctx, api.TokenRequest{}))
	drop(c.RevokeToken(ctx, "t"))

	// These are the same in other words, for other clients.
	other := []string{"openapi", "metrics", "sandbox.events", "sandbox.proxy", "exec.stream", "exec.ws", "exec.pty",
		"me.tokens", "me.tokens.create", "me.tokens.revoke"}
	for _, r := range api.Routes {
		if r.Missing == "" && !asked[r.Name] && !slices.Contains(other, r.Name) {
			t.Errorf("no call for %s: %s %s", r.Name, r.Method, r.Path)
		}
	}
}

// A create that was sent again after a broken connection has the same key.
func TestCreateOnce(t *testing.T) {
	var mu sync.Mutex
	var keys []string
	c := serving(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		keys = append(keys, r.Header.Get("Idempotency-Key"))
		n := len(keys)
		mu.Unlock()
		if n < 3 {
			panic(http.ErrAbortHandler)
		}
		json.NewEncoder(w).Encode(api.Sandbox{SandboxID: "s1"})
	})
	sb, err := c.Create(t.Context(), api.CreateRequest{})
	if err != nil || sb.SandboxID != "s1" || len(keys) < 3 || keys[0] == "" {
		t.Fatalf("%+v %v %q", sb, err, keys)
	}
	for _, k := range keys {
		if k != keys[0] {
			t.Errorf("keys = %q", keys)
		}
	}
	first := keys[0]
	if _, err := c.Create(t.Context(), api.CreateRequest{}); err != nil || keys[len(keys)-1] == first {
		t.Errorf("%v: a second call has the first's key", err)
	}
}

// What must not run twice is sent once.
func TestNotTwice(t *testing.T) {
	var n atomic.Int32
	c := serving(t, func(w http.ResponseWriter, r *http.Request) {
		n.Add(1)
		panic(http.ErrAbortHandler)
	})
	for _, call := range []func() error{
		func() error { _, err := c.ExecPlain(t.Context(), "s", api.ExecRequest{Cmd: "x"}); return err },
		func() error { _, err := c.Spawn(t.Context(), "s", api.ExecRequest{Cmd: "x"}); return err },
		func() error { _, err := c.CreateToken(t.Context(), api.TokenRequest{}); return err },
	} {
		n.Store(0)
		if err := call(); !Broken(err) || n.Load() != 1 {
			t.Errorf("sent %d times: %v", n.Load(), err)
		}
	}
}

func TestURLs(t *testing.T) {
	for _, bad := range []string{"127.0.0.1:7070", "ftp://x", "http://", "http://u:p@x", "http://x/v1", "http://x?y=1", "unix:///x", "http://x:y"} {
		if err := New(Options{URL: bad}).Healthy(t.Context()); err == nil || Broken(err) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if err := New(Options{}).Healthy(t.Context()); err == nil {
		t.Error("no server, no error")
	}
	if err := New(Options{URL: "http://127.0.0.1:1", Token: "a\r\nb"}).Healthy(t.Context()); err == nil || Broken(err) {
		t.Errorf("token with a line end: %v", err)
	}
}

func TestTLS(t *testing.T) {
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == api.StreamProtocol {
			nc, rw, _ := http.NewResponseController(w).Hijack()
			io.WriteString(nc, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: berm-stream\r\nConnection: Upgrade\r\n\r\nhello")
			io.Copy(nc, rw)
			nc.Close()
			return
		}
		io.WriteString(w, "{}")
	}))
	defer srv.Close()
	c := New(Options{URL: srv.URL})
	if err := c.Healthy(t.Context()); err == nil {
		t.Error("an unknown certificate was taken")
	}
	if _, err := c.DialPort(t.Context(), "s", 1); err == nil {
		t.Error("an unknown certificate was taken for a stream")
	}
	c = New(Options{URL: srv.URL, RootCAs: srv.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs})
	defer c.Close()
	if err := c.Healthy(t.Context()); err != nil {
		t.Error(err)
	}
	s, err := c.DialPort(t.Context(), "s", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	io.WriteString(s, " you")
	s.CloseWrite()
	b, err := io.ReadAll(s)
	if string(b) != "hello you" || err != nil {
		t.Errorf("%q %v", b, err)
	}
}

func TestHostileUpgrade(t *testing.T) {
	const ok = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: berm-bound\r\nConnection: Upgrade\r\n\r\n"
	for _, tt := range []struct{ name, raw, says string }{
		{"refused", "HTTP/1.1 403 No\r\nContent-Length: 35\r\n\r\n" + `{"error":"no","code":"token.forbid"}`[:35], "answered 403 without"},
		{"other protocol", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n{}\n", "instead of upgrading"},
		{"redirect", "HTTP/1.1 307 Else\r\nLocation: http://other/\r\nContent-Length: 0\r\n\r\n", "instead of upgrading"},
		{"long header", "HTTP/1.1 101 S\r\nX: " + strings.Repeat("x", 1<<20), "unexpected EOF"},
		{"not json", ok + "hello\n", "not what the API says"},
		{"no id", ok + "{}\n", "not what the API says"},
		{"endless line", ok + `{"state":"` + strings.Repeat("x", 2<<20), "longer"},
		{"cut", ok + `{"sandbox_id":"s1"`, "not what the API says"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := New(Options{Dial: func(context.Context) (net.Conn, error) {
				ours, theirs := net.Pipe()
				go func() {
					defer theirs.Close()
					if req, err := http.ReadRequest(bufio.NewReader(theirs)); err == nil {
						io.Copy(io.Discard, req.Body)
					}
					io.WriteString(theirs, tt.raw)
				}()
				return ours, nil
			}})
			_, _, err := c.CreateBound(t.Context(), api.CreateRequest{})
			if err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("err = %v, want %q", err, tt.says)
			}
		})
	}
}

// A server that answers nothing holds nobody whose context ends.
func TestUpgradeEndsWithItsContext(t *testing.T) {
	c := New(Options{Dial: func(context.Context) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go io.Copy(io.Discard, theirs)
		return ours, nil
	}})
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("the user left")
	time.AfterFunc(30*time.Millisecond, func() { cancel(cause) })
	if _, err := c.DialPort(ctx, "s", 1); !errors.Is(err, cause) {
		t.Errorf("err = %v", err)
	}
}

func TestReadEvents(t *testing.T) {
	for _, tt := range []struct{ name, in, want, err string }{
		{"plain", "event: a\ndata: 1\n\nevent: b\ndata:2\n\n", "a=1 b=2", ""},
		{"comments and ids", ": hi\nid: 7\nevent: a\ndata: 1\n\n:\n\n", "a=1", ""},
		{"lines", "data: 1\ndata: 2\n\n", "=1\n2", ""},
		{"crlf", "event: a\r\ndata: 1\r\n\r\n", "a=1", ""},
		{"no data", "event: a\n\n", "", ""},
		{"cut", "event: a\ndata: 1\n", "", ""},
		{"long line", "data: " + strings.Repeat("x", maxLine+1) + "\n\n", "", "longer"},
		{"many lines", strings.Repeat("data: "+strings.Repeat("x", 1<<19)+"\n", 5), "", "longer"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			err := readEvents(strings.NewReader(tt.in), func() {}, func(name string, data []byte) error {
				got = append(got, name+"="+string(data))
				return nil
			})
			if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("err = %v", err)
			}
			if strings.Join(got, " ") != tt.want {
				t.Errorf("got %q", got)
			}
		})
	}
}

func FuzzReadEvents(f *testing.F) {
	f.Add([]byte("event: a\ndata: {}\n\n: x\nid: 1\n\n"))
	f.Add([]byte("data\n\r\n\ndata:"))
	f.Fuzz(func(t *testing.T, in []byte) {
		n := 0
		readEvents(bytes.NewReader(in), func() {}, func(name string, data []byte) error {
			if n += len(data); n > 2*len(in) {
				t.Errorf("%d bytes of events out of %d", n, len(in))
			}
			return nil
		})
	})
}

func TestFollow(t *testing.T) {
	answer := "event: chunk\ndata: {\"stream\":\"stdout\",\"offset\":0,\"data\":\"aGk=\"}\n\n: beat\n\n" +
		"event: later\ndata: {}\n\nevent: exit\ndata: {\"exec_id\":\"x1\",\"state\":\"ended\",\"result\":{\"ending\":\"exit\",\"exit_code\":3}}\n\n"
	for _, tt := range []struct {
		name, body, out string
		broken          bool
		says            string
	}{
		{"good", answer, "hi", false, ""},
		{"cut before the exit", answer[:80], "hi", true, "unexpected EOF"},
		{"error", "event: error\ndata: {\"error\":\"gone\",\"code\":\"sandbox.ended\"}\n\n", "", false, "gone"},
		{"error without text", "event: error\ndata: x\n\n", "", false, "without saying why"},
		{"chunk of another kind", "event: chunk\ndata: []\n\n", "", false, "not what the API says"},
		{"offset below zero", "event: chunk\ndata: {\"offset\":-1}\n\n", "", false, "not what the API says"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := serving(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
				io.WriteString(w, tt.body)
			})
			var out bytes.Buffer
			x, err := c.Follow(t.Context(), "s", "x", 0, true, func(ch api.Chunk) error { out.Write(ch.Data); return nil })
			if out.String() != tt.out || Broken(err) != tt.broken {
				t.Errorf("out %q, err %v", out.String(), err)
			}
			if tt.says == "" && (err != nil || x.Result == nil || x.Result.ExitCode != 3) || tt.says != "" && (err == nil || !strings.Contains(err.Error(), tt.says)) {
				t.Errorf("%+v, %v", x, err)
			}
		})
	}
	c := serving(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "{}") })
	if _, err := c.Follow(t.Context(), "s", "x", 0, true, nil); err == nil || !strings.Contains(err.Error(), "instead of events") {
		t.Errorf("not events: %v", err)
	}
}

// A stream that says nothing for too long is broken, not waited for.
func TestSilentStream(t *testing.T) {
	stop := make(chan struct{})
	defer close(stop)
	c := serving(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		http.NewResponseController(w).Flush()
		select {
		case <-r.Context().Done():
		case <-stop:
		}
	})
	c.quiet = 50 * time.Millisecond
	if err := c.FollowEvents(t.Context(), EventQuery{}, nil); !Broken(err) || !errors.Is(err, errQuiet) {
		t.Errorf("err = %v", err)
	}
}

// A plain exec that goes wrong after its answer began is an error, not success.
func TestExecPlainHalfAnswer(t *testing.T) {
	for _, body := range []string{`  {"error":"sandbox expired","code":"sandbox.ended"}`, `{}`, ``, `   `, `{"exit_code":0`} {
		c := serving(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, body) })
		if a, err := c.ExecPlain(t.Context(), "s", api.ExecRequest{}); err == nil {
			t.Errorf("%q: %+v", body, a)
		}
	}
}

// An id is never a path.
func TestIDsAreNoPaths(t *testing.T) {
	for id, want := range map[string]string{"..": "/v1/sandboxes/none", ".": "/v1/sandboxes/none", "": "/v1/sandboxes/none",
		"a/b": "/v1/sandboxes/a%2Fb", "a?b": "/v1/sandboxes/a%3Fb"} {
		if got := sandboxPath(id, ""); got != want {
			t.Errorf("%q: %s", id, got)
		}
	}
}
