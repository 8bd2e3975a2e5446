package server_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/auth"
	"github.com/bermhq/berm/internal/sandbox"
	"github.com/bermhq/berm/internal/server"
	"github.com/bermhq/berm/internal/store"
)

// A journal is the engine's side of a real store.
type journal struct {
	*store.Store
	boxes *store.Bucket
}

func (j journal) Save(id string, record json.RawMessage) error { return j.boxes.Put(id, record) }
func (j journal) Drop(id string) error                         { return j.boxes.Delete(id) }
func (j journal) Head() uint64                                 { return j.Store.Head().Seq }

func (j journal) Load() (map[string]json.RawMessage, error) {
	out := map[string]json.RawMessage{}
	return out, j.boxes.Each(func(id string, record json.RawMessage) error { out[id] = record; return nil })
}

func (j journal) Replay(ctx context.Context, after uint64, f func(api.Event) error) error {
	for after < j.Head() {
		events, next, err := j.Events(store.Query{After: after})
		if err != nil {
			return err
		}
		for _, e := range events {
			if e.SandboxID != "" {
				if err := f(e); err != nil {
					return err
				}
			}
		}
		after = next
	}
	return nil
}

// newRealWorld is a world over a store on disk and real tokens.
func newRealWorld(t *testing.T) (*world, journal) {
	st, err := store.Open(t.TempDir(), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	tokens, err := auth.Open(st.Bucket("tokens"), st.Append)
	if err != nil {
		t.Fatal(err)
	}
	j := journal{st, st.Bucket("sandboxes")}
	w := newWorldWith(t, sandbox.Options{Journal: j}, func(o *server.Options) { o.Auth, o.Store = tokens, st })
	w.tokens = map[string]string{}
	for name, req := range map[string]api.TokenRequest{
		agent:         {Role: api.RoleAgent},
		operator:      {Role: api.RoleOperator},
		admin:         {Role: api.RoleAdmin},
		otherAgent:    {Role: api.RoleAgent, Tenant: "other"},
		otherOperator: {Role: api.RoleOperator, Tenant: "other"},
		expired:       {Role: api.RoleAdmin, TTLSeconds: 1},
		revoked:       {Role: api.RoleAdmin},
	} {
		made, err := tokens.Create(t.Context(), auth.Local, req)
		if err != nil {
			t.Fatal(err)
		}
		w.tokens[name] = made.Token
		if name == revoked {
			if err := tokens.Revoke(t.Context(), auth.Local, made.Info.TokenID); err != nil {
				t.Fatal(err)
			}
		}
	}
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		if _, err := tokens.Check(w.tokens[expired]); err != nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal("a token does not expire")
		}
	}
	return w, j
}

// Who asks again under a key after the daemon was killed gets what was made
// before.
func TestKeyOutlives(t *testing.T) {
	w, j := newRealWorld(t)
	first := w.ask(agent, "POST", "/v1/sandboxes", `{"tags":{"a":"b"}}`, "Idempotency-Key", "k")
	if first.status != 201 {
		t.Fatalf("%d %s", first.status, first.body)
	}
	next := w.another(t, sandbox.Options{Journal: j})
	if err := next.eng.Adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	g := next.ask(agent, "POST", "/v1/sandboxes", `{"tags":{"a":"b"}}`, "Idempotency-Key", "k")
	if g.status != 201 || idOf(g) != idOf(first) || g.header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("%d %s", g.status, g.body)
	}
	if g := next.ask(agent, "POST", "/v1/sandboxes", `{}`, "Idempotency-Key", "k"); g.status != 409 {
		t.Errorf("another request: %d %s", g.status, g.body)
	}
	if g := next.ask(otherAgent, "POST", "/v1/sandboxes", `{}`, "Idempotency-Key", "k"); g.status != 201 || idOf(g) == idOf(first) {
		t.Errorf("another tenant: %d %s", g.status, g.body)
	}
}

// What is done is in the log, with the token that did it, and refusals are
// counted there.
func TestOnRecord(t *testing.T) {
	w, j := newRealWorld(t)
	id := w.create(agent, `{"tags":{"run_id":"r1"}}`)
	w.ask(agent, "POST", "/v1/sandboxes/"+id+"/exec", `{"args":["echo","hi"]}`)
	for range 5 {
		w.ask(agent, "GET", "/v1/tokens", "")
	}
	w.ask(agent, "DELETE", "/v1/sandboxes/"+id, "")
	if err := j.Wait(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{api.EventSandboxCreated: true, api.EventExecStarted: true, api.EventExecEnded: true, api.EventSandboxEnded: true, api.EventDenied: true}
	for end := time.Now().Add(10 * time.Second); len(want) > 0; {
		for _, e := range list(t, w.ask(agent, "GET", "/v1/events?limit=1000", "")).Events {
			if want[e.Type] && e.Actor != "" && e.Tenant == api.DefaultTenant && e.Actor != "local" {
				delete(want, e.Type)
			}
		}
		if time.Now().After(end) {
			t.Fatalf("not in the log: %v", want)
		}
	}
	g := w.ask(agent, "GET", "/v1/audit/report/r1", "")
	var r api.Report
	if err := json.Unmarshal([]byte(g.body), &r); err != nil || g.status != 200 || len(r.Commands) != 1 {
		t.Errorf("%d %s", g.status, g.body)
	}
	if g := w.ask(otherAgent, "GET", "/v1/audit/report/r1", ""); g.status != 404 {
		t.Errorf("another tenant's report: %d %s", g.status, g.body)
	}
	if l := list(t, w.ask(otherAgent, "GET", "/v1/events", "")); len(l.Events) > 0 {
		for _, e := range l.Events {
			if e.Tenant != "other" {
				t.Errorf("another tenant sees %+v", e)
			}
		}
	}
	head := w.ask(operator, "GET", "/v1/audit/head", "")
	if g := w.ask(operator, "POST", "/v1/audit/verify", head.body); g.status != 200 || !json.Valid([]byte(g.body)) {
		t.Errorf("verify: %d %s", g.status, g.body)
	}
	if g := w.ask(operator, "GET", "/v1/audit/export", ""); g.status != 200 || len(g.body) < 100 {
		t.Errorf("export: %d, %d bytes", g.status, len(g.body))
	}
}
