package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/auth"
	"github.com/bermhq/berm/internal/backend"
	"github.com/bermhq/berm/internal/backend/mem"
	"github.com/bermhq/berm/internal/sandbox"
	"github.com/bermhq/berm/internal/server"
	"github.com/bermhq/berm/internal/store"
	"github.com/bermhq/berm/internal/testkit"
	"github.com/bermhq/berm/internal/testkit/shelves"
)

// A world is a whole server on a TCP port, with tokens, over the fake backend.
type world struct {
	t     *testing.T
	eng   *sandbox.Engine
	store *fakeStore
	auth  *fakeAuth
	log   *syncBuffer
	url   string
	http  *http.Client

	shelf  *shelves.Shelf
	builds *shelves.Builds

	be     *mem.Backend
	opt    server.Options
	tokens map[string]string // what the names of tokens stand for; nil: themselves
}

func newWorld(t *testing.T, adjust ...func(*server.Options)) *world {
	return newWorldWith(t, sandbox.Options{}, adjust...)
}

func newWorldWith(t *testing.T, engine sandbox.Options, adjust ...func(*server.Options)) *world {
	testkit.NoLeak(t)
	w := &world{t: t, store: newFakeStore(), auth: newFakeAuth(), log: &syncBuffer{}}
	w.be = mem.New(mem.Options{Boundary: api.BoundaryUserKernel, Dir: t.TempDir(), Gateway: func(id string, c *net.UnixConn) { go engine.Egress.Serve(id, c) }})
	opt := server.Options{
		Log: slog.New(slog.NewTextHandler(w.log, nil)), Auth: w.auth, Store: w.store, BadTokens: 1 << 20,
		Version: api.Version{Version: "v1"},
	}
	w.shelf = shelves.New()
	w.builds = &shelves.Builds{Shelf: w.shelf}
	opt.Shelf, opt.Builds = w.shelf, w.builds
	for _, f := range adjust {
		f(&opt)
	}
	w.opt = opt
	return w.serve(engine)
}

// another is a second daemon on what the first leaves as if it had been killed.
func (w *world) another(t *testing.T, engine sandbox.Options) *world {
	next := *w
	next.be = w.be.Restart()
	return next.serve(engine)
}

func (w *world) serve(engine sandbox.Options) *world {
	t := w.t
	w.eng = sandbox.New([]backend.Backend{w.be}, engine)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := server.Harden(&http.Server{Handler: server.New(w.eng, w.opt), ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)})
	w.url = "http://" + l.Addr().String()
	if f := bounds[t]; f != nil {
		l = f(l)
	}
	stopped := make(chan struct{})
	go func() { defer close(stopped); srv.Serve(l) }()
	w.http = &http.Client{Transport: &http.Transport{DisableCompression: true}, CheckRedirect: func(*http.Request, []*http.Request) error {
		return errors.New("a redirect")
	}}
	t.Cleanup(func() {
		w.http.CloseIdleConnections()
		srv.Close()
		<-stopped
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := w.eng.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return w
}

// A got is an answer.
type got struct {
	status int
	header http.Header
	body   string
	err    api.Error // where the answer is one
}

// ask sends a request with a token ("" for none); header holds names and values
// in turn.
func (w *world) ask(token, method, path, body string, header ...string) got {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, w.url+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	if real, ok := w.tokens[token]; ok {
		token = real
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			req.Host = header[i+1]
			continue
		}
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := w.http.Do(req)
	if err != nil {
		w.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	g := got{status: resp.StatusCode, header: resp.Header}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		// It has no end: the head is what was asked for.
		return g
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatalf("%s %s: %v", method, path, err)
	}
	g.body = string(b)
	if g.status >= 400 && method != http.MethodHead {
		if err := json.Unmarshal(b, &g.err); err != nil || g.err.Message == "" || g.err.Code == "" || g.err.RequestID == "" {
			w.t.Errorf("%s %s: the error %d is not an api.Error: %q", method, path, g.status, b)
		}
	}
	return g
}

// create makes a sandbox and returns its id.
func (w *world) create(token, body string, header ...string) string {
	w.t.Helper()
	g := w.ask(token, "POST", "/v1/sandboxes", body, header...)
	var sb api.Sandbox
	if err := json.Unmarshal([]byte(g.body), &sb); err != nil || g.status != 201 {
		w.t.Fatalf("create: %d %s", g.status, g.body)
	}
	return sb.SandboxID
}

// Tokens of the test.
const (
	agent, operator, admin       = "e2b_agent", "e2b_operator", "e2b_admin"
	otherAgent, otherOperator    = "e2b_other-agent", "e2b_other-operator"
	wrongToken, expired, revoked = "e2b_wrong", "e2b_expired", "e2b_revoked"
)

type fakeAuth struct{ ids map[string]auth.Identity }

func newFakeAuth() *fakeAuth {
	f := &fakeAuth{ids: map[string]auth.Identity{}}
	for token, id := range map[string]auth.Identity{
		agent:         {TokenID: "t-agent", Tenant: api.DefaultTenant, Role: api.RoleAgent},
		operator:      {TokenID: "t-operator", Tenant: api.DefaultTenant, Role: api.RoleOperator},
		admin:         {TokenID: "t-admin", Tenant: api.DefaultTenant, Role: api.RoleAdmin},
		otherAgent:    {TokenID: "t-other-agent", Tenant: "other", Role: api.RoleAgent},
		otherOperator: {TokenID: "t-other-operator", Tenant: "other", Role: api.RoleOperator},
	} {
		f.ids[token] = id
	}
	return f
}

func (f *fakeAuth) Check(token string) (auth.Identity, error) {
	if id, ok := f.ids[token]; ok {
		return id, nil
	}
	return auth.Identity{}, fmt.Errorf("the token %s is no good", token)
}

func (f *fakeAuth) Alive(ctx context.Context, tokenID string) (context.Context, context.CancelFunc) {
	return context.WithCancel(ctx)
}

func (f *fakeAuth) Create(_ context.Context, by auth.Identity, req api.TokenRequest) (api.NewToken, error) {
	return api.NewToken{Token: "e2b_new", Info: api.Token{TokenID: "t-new", Prefix: "e2b_new", Role: req.Role, Tenant: req.Tenant, Label: req.Label}}, nil
}

func (f *fakeAuth) Revoke(_ context.Context, by auth.Identity, id string) error {
	if id != "t-agent" {
		return &api.Error{Code: api.CodeTokenNotFound, Message: "there is no such token"}
	}
	return nil
}

func (f *fakeAuth) List(by auth.Identity) []api.Token {
	return []api.Token{{TokenID: "t-agent", Prefix: "e2b_agent", Role: api.RoleAgent, Tenant: by.Tenant}}
}

// A fakeStore is a log in memory.
type fakeStore struct {
	mu     sync.Mutex
	events []api.Event
	notes  []api.Event
	more   chan struct{} // closed when something was added
	slow   func(tenant string)
}

func newFakeStore() *fakeStore { return &fakeStore{more: make(chan struct{})} }

func (f *fakeStore) add(events ...api.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range events {
		e.Seq = uint64(len(f.events) + 1)
		e.ID, e.Data, e.Tags = api.NewID(api.KindEvent), json.RawMessage(`{"x":1}`), map[string]string{}
		f.events = append(f.events, e)
	}
	close(f.more)
	f.more = make(chan struct{})
}

func (f *fakeStore) Events(q store.Query) (list []api.Event, next uint64, err error) {
	if f.slow != nil { // the past is on disk
		done, err := q.Turn()
		if err != nil {
			return nil, q.After, err
		}
		defer done()
		f.slow(q.Tenant)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	next = q.After
	for _, e := range f.events {
		if e.Seq <= q.After {
			continue
		}
		if len(list) == q.Limit || e.Seq > q.After+50 { // a look is bounded, as in the real one
			return list, next, nil
		}
		next = e.Seq
		if e.Tenant == q.Tenant && (q.SandboxID == "" || e.SandboxID == q.SandboxID) && (len(q.Types) == 0 || slices.Contains(q.Types, e.Type)) {
			list = append(list, e)
		}
	}
	return list, next, nil
}

func (f *fakeStore) Wait(ctx context.Context, after uint64) error {
	for {
		f.mu.Lock()
		n, more := uint64(len(f.events)), f.more
		f.mu.Unlock()
		if n > after {
			return nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (f *fakeStore) Note(e api.Event) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.notes = append(f.notes, e)
	return nil
}

func (f *fakeStore) Head() api.Head {
	f.mu.Lock()
	defer f.mu.Unlock()
	return api.Head{Seq: uint64(len(f.events)), Hash: "00", Key: "00"}
}

func (f *fakeStore) Verify(ctx context.Context, head *api.Head) (api.Verification, error) {
	return api.Verification{OK: true, TailUnproven: head == nil}, nil
}

func (f *fakeStore) Export(ctx context.Context, w io.Writer) error {
	_, err := io.WriteString(w, "the log")
	return err
}

func (f *fakeStore) Report(ctx context.Context, tenant, subject string) (api.Report, error) {
	if tenant != api.DefaultTenant {
		return api.Report{}, &api.Error{Code: api.CodeSandboxNotFound, Message: "nothing is known of it"}
	}
	return api.Report{}, nil
}

func (f *fakeStore) Degraded() string { return "" }

// A syncBuffer is what was logged.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
