package alert

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/store"
)

const secret = "0123456789abcdef"

func openStore(t *testing.T) *store.Store {
	t.Helper()
	s, err := store.Open(t.TempDir(), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func write(t *testing.T, s *store.Store, events ...api.Event) {
	t.Helper()
	if err := s.Append(context.Background(), events...); err != nil {
		t.Fatal(err)
	}
}

func event(kind string) api.Event { return api.Event{Type: kind, Tenant: "acme", SandboxID: "s1"} }

// start runs rules until the test ends or stop is called.
func start(t *testing.T, s *store.Store, change func(*Alerts), rules ...Rule) (stop func()) {
	t.Helper()
	a, err := New(rules, s, s.Bucket("alerts"), nil)
	if err != nil {
		t.Fatal(err)
	}
	a.pause = func(int) time.Duration { return time.Millisecond }
	if change != nil {
		change(a)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { a.Run(ctx); close(done) }()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	// A new rule begins where the log ends: wait until each has its place.
	for _, r := range rules {
		eventually(t, func() bool {
			var p place
			ok, err := s.Bucket("alerts").Get(r.Name, &p)
			return ok && err == nil
		})
	}
	return stop
}

func eventually(t *testing.T, f func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !f(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it never happened")
		}
	}
}

// inbox is a webhook that checks what it gets.
type inbox struct {
	t      *testing.T
	mu     sync.Mutex
	got    []Message
	status []int // of the next answers; then 200
	tries  int
}

func (b *inbox) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		b.t.Error(err)
	}
	var at int64
	if _, err := fmt.Sscanf(r.Header.Get(SignatureHeader), "t=%d,", &at); err != nil || Sign(secret, time.Unix(at, 0), body) != r.Header.Get(SignatureHeader) {
		b.t.Errorf("signature %q", r.Header.Get(SignatureHeader))
	}
	if d := time.Since(time.Unix(at, 0)); d < -time.Minute || d > time.Minute {
		b.t.Errorf("signed at %d", at)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tries++
	if len(b.status) > 0 {
		s := b.status[0]
		b.status = b.status[1:]
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(s)
		return
	}
	var m Message
	if err := json.Unmarshal(body, &m); err != nil || m.Event.ID != r.Header.Get(DeliveryHeader) {
		b.t.Errorf("%s: %v", body, err)
	}
	b.got = append(b.got, m)
}

func (b *inbox) messages() []Message {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]Message(nil), b.got...)
}

func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv.URL
}

// TestWebhook: what matches arrives once and in order, over a restart and over
// answers that say to come again.
func TestWebhook(t *testing.T) {
	s := openStore(t)
	b := &inbox{t: t, status: []int{500, 503, 429}}
	rule := Rule{Name: "ends", Types: []string{"sandbox.*"}, Tenant: "acme", Webhook: serve(t, b), Secret: secret}
	write(t, s, event("sandbox.started")) // before the rule was there
	stop := start(t, s, nil, rule)
	other := event("sandbox.ended")
	other.Tenant = "other"
	write(t, s, event("sandbox.created"), event("exec.started"), other, event("sandbox.ended"))
	// What was delivered and not yet noted as such would come twice.
	eventually(t, func() bool { return len(b.messages()) == 2 && noted(s, "ends") == s.Head().Seq })
	stop()
	write(t, s, event("sandbox.paused")) // while nobody follows
	start(t, s, nil, rule)
	write(t, s, event("sandbox.resumed"))
	eventually(t, func() bool { return len(b.messages()) == 4 })
	var got []string
	for _, m := range b.messages() {
		got = append(got, m.Event.Type)
	}
	if fmt.Sprint(got) != "[sandbox.created sandbox.ended sandbox.paused sandbox.resumed]" || b.tries != 7 {
		t.Errorf("%v, %d tries", got, b.tries)
	}
}

// TestRefused: an answer that will not change is not asked for again, a redirect
// is not followed, and the next alert says what is missing.
func TestRefused(t *testing.T) {
	s := openStore(t)
	b := &inbox{t: t, status: []int{302, 404}}
	start(t, s, nil, Rule{Name: "all", Types: []string{"a.b"}, Webhook: serve(t, b), Secret: secret})
	write(t, s, event("a.b"), event("a.b"), event("a.b"))
	eventually(t, func() bool { return len(b.messages()) == 1 })
	if m := b.messages()[0]; m.Skipped != 2 || b.tries != 3 {
		t.Errorf("%+v, %d tries", m, b.tries)
	}
	b.mu.Lock()
	b.tries = 0
	for range webhookAttempts {
		b.status = append(b.status, 500)
	}
	b.mu.Unlock()
	write(t, s, event("a.b"), event("a.b"))
	eventually(t, func() bool { return len(b.messages()) == 2 })
	if m := b.messages()[1]; m.Skipped != 1 || b.tries != webhookAttempts+1 {
		t.Errorf("%+v, %d tries", m, b.tries)
	}
}

// TestSlow: a target that does not answer holds up neither the log nor another
// rule, and is let go after its time.
func TestSlow(t *testing.T) {
	s := openStore(t)
	var hung atomic.Int32
	release := make(chan struct{})
	slow := serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		hung.Add(1)
		_, _ = io.Copy(io.Discard, r.Body)
		select {
		case <-r.Context().Done():
		case <-release:
		}
	}))
	defer close(release)
	b := &inbox{t: t}
	start(t, s, nil, Rule{Name: "slow", Webhook: slow, Secret: secret, TimeoutSeconds: 0.05},
		Rule{Name: "quick", Types: []string{"a.b"}, Webhook: serve(t, b), Secret: secret})
	for range 50 {
		write(t, s, event("a.b"))
	}
	eventually(t, func() bool { return len(b.messages()) == 50 })
	eventually(t, func() bool { return hung.Load() >= 3 })
}

// noted is how far a rule has come; 0 if nothing says.
func noted(s *store.Store, rule string) uint64 {
	var p place
	if _, err := s.Bucket("alerts").Get(rule, &p); err != nil {
		return 0
	}
	return p.Seq
}

func TestOld(t *testing.T) {
	s := openStore(t)
	b := &inbox{t: t}
	var late atomic.Bool
	late.Store(true)
	start(t, s, func(a *Alerts) {
		a.now = func() time.Time {
			if late.Load() {
				return time.Now().Add(2 * maxAge)
			}
			return time.Now()
		}
	}, Rule{Name: "all", Types: []string{"a.b"}, Webhook: serve(t, b), Secret: secret})
	write(t, s, event("a.b"), event("a.b"))
	eventually(t, func() bool { return noted(s, "all") == s.Head().Seq })
	late.Store(false)
	write(t, s, event("a.b"))
	eventually(t, func() bool { return len(b.messages()) == 1 })
	if m := b.messages()[0]; m.Skipped != 2 {
		t.Errorf("%+v", m)
	}
}

func TestCount(t *testing.T) {
	r := Rule{Count: 5, WindowSeconds: 10}
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var c counter
	add := func(after time.Duration, data string) int {
		at = at.Add(after)
		return c.add(&r, &api.Event{Time: at.Format(time.RFC3339Nano), Data: json.RawMessage(data)})
	}
	for range 4 {
		if n := add(time.Second, "{}"); n != 0 {
			t.Fatal(n)
		}
	}
	if n := add(9*time.Second, "{}"); n != 0 { // the first ones are too old by now
		t.Fatal(n)
	}
	if n := add(0, `{"count":7}`); n != 10 {
		t.Fatal(n)
	}
	if n := add(0, "{}"); n != 0 {
		t.Fatal("it does not begin anew:", n)
	}
}

// TestCommand: the message on its input, nothing of our environment, tried
// again, and ended with all its children when its time is over.
func TestCommand(t *testing.T) {
	t.Setenv("BERM_TOKEN", "not for others")
	s := openStore(t)
	dir := t.TempDir()
	script := func(name, text string) []string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o700); err != nil {
			t.Fatal(err)
		}
		return []string{path, dir}
	}
	good := Rule{Name: "good", Types: []string{"a.b"}, Command: script("good.sh", `cat > "$1/in"; env > "$1/env.new"; mv "$1/env.new" "$1/env"`)}
	again := Rule{Name: "again", Types: []string{"a.b"}, Command: script("again.sh", `echo x >> "$1/tries"; echo no >&2; exit 1`)}
	stuck := Rule{Name: "stuck", Types: []string{"a.b"}, TimeoutSeconds: 0.3, Command: script("stuck.sh", `sleep 1000 & echo $! >> "$1/pids"; wait`)}
	missing := Rule{Name: "missing", Types: []string{"a.b"}, Command: []string{"/does/not/exist"}}
	start(t, s, nil, good, again, stuck, missing)
	write(t, s, event("a.b"))
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		return string(text)
	}
	eventually(t, func() bool { return read("env") != "" && strings.Count(read("tries"), "x") == commandAttempts })
	var m Message
	if err := json.Unmarshal([]byte(read("in")), &m); err != nil || m.Rule != "good" || m.Event.Type != "a.b" {
		t.Errorf("%s: %v", read("in"), err)
	}
	for line := range strings.Lines(read("env")) {
		if name, _, _ := strings.Cut(line, "="); name != "PATH" && name != "PWD" && name != "_" && name != "OLDPWD" && name != "SHLVL" {
			t.Errorf("it gets %s", line)
		}
	}
	eventually(t, func() bool { return strings.Count(read("pids"), "\n") == commandAttempts })
	for pid := range strings.Lines(read("pids")) {
		eventually(t, func() bool {
			state, err := os.ReadFile("/proc/" + strings.TrimSpace(pid) + "/stat")
			return err != nil || strings.Contains(string(state), ") Z ")
		})
	}
}

func TestRules(t *testing.T) {
	good := Rule{Name: "a", Types: []string{"sandbox.*", "cap.hit"}, Webhook: "https://example.com/x?y=z", Secret: secret, Count: 2, WindowSeconds: 60}
	if _, err := New([]Rule{good, {Name: "b", Command: []string{"/bin/true"}}}, nil, nil, nil); err != nil {
		t.Error(err)
	}
	for what, change := range map[string]func(*Rule){
		"no name":       func(r *Rule) { r.Name = "" },
		"odd name":      func(r *Rule) { r.Name = "A b" },
		"odd type":      func(r *Rule) { r.Types = []string{"sandbox"} },
		"any type":      func(r *Rule) { r.Types = []string{"*"} },
		"no window":     func(r *Rule) { r.WindowSeconds = 0 },
		"negative":      func(r *Rule) { r.Count = -1 },
		"no target":     func(r *Rule) { r.Webhook, r.Secret = "", "" },
		"two targets":   func(r *Rule) { r.Command = []string{"/bin/true"} },
		"no secret":     func(r *Rule) { r.Secret = "" },
		"short secret":  func(r *Rule) { r.Secret = "short" },
		"file":          func(r *Rule) { r.Webhook = "file:///etc/passwd" },
		"password":      func(r *Rule) { r.Webhook = "https://a:b@example.com" },
		"relative":      func(r *Rule) { r.Webhook, r.Secret, r.Command = "", "", []string{"true"} },
		"endless":       func(r *Rule) { r.TimeoutSeconds = 1e9 },
		"secret for it": func(r *Rule) { r.Webhook, r.Command = "", []string{"/bin/true"} },
	} {
		r := good
		change(&r)
		var e *api.Error
		if _, err := New([]Rule{r}, nil, nil, nil); !errors.As(err, &e) || e.Hint == "" {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := New([]Rule{good, good}, nil, nil, nil); err == nil {
		t.Error("two of one name")
	}
}
