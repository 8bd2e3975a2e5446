package auth

import (
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
)

// memBucket keeps records and fails when told to.
type memBucket struct {
	rec  map[string]json.RawMessage
	fail error
}

func (b *memBucket) Put(key string, v any) error {
	if b.fail != nil {
		return b.fail
	}
	raw, err := json.Marshal(v)
	b.rec[key] = raw
	return err
}

func (b *memBucket) Delete(key string) error { delete(b.rec, key); return nil }

func (b *memBucket) Each(f func(string, json.RawMessage) error) error {
	for k, v := range b.rec {
		if err := f(k, v); err != nil {
			return err
		}
	}
	return nil
}

type fixture struct {
	*Tokens
	bucket *memBucket
	events []api.Event
	fail   error
	now    time.Time
}

func open(t *testing.T, b *memBucket) *fixture {
	t.Helper()
	f := &fixture{bucket: b, now: time.Now()}
	var err error
	f.Tokens, err = Open(b, func(_ context.Context, events ...api.Event) error {
		if f.fail == nil {
			f.events = append(f.events, events...)
		}
		return f.fail
	})
	if err != nil {
		t.Fatal(err)
	}
	f.Tokens.now = func() time.Time { return f.now }
	return f
}

func code(err error) string {
	var e *api.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

func (f *fixture) make(t *testing.T, by Identity, r api.TokenRequest) (api.NewToken, Identity) {
	t.Helper()
	n, err := f.Create(context.Background(), by, r)
	if err != nil {
		t.Fatal(err)
	}
	id, err := f.Check(n.Token)
	if err != nil {
		t.Fatal(err)
	}
	return n, id
}

func TestLife(t *testing.T) {
	b := &memBucket{rec: map[string]json.RawMessage{}}
	f := open(t, b)
	n, id := f.make(t, Local, api.TokenRequest{Role: api.RoleAgent, Tenant: "acme", Label: "ci", TTLSeconds: 60})
	if !regexp.MustCompile(`^e2b_[0-9a-f]{40}$`).MatchString(n.Token) || n.Info.Prefix != n.Token[:12] || !api.ValidID(n.Info.TokenID) {
		t.Errorf("%+v", n)
	}
	if id.Tenant != "acme" || id.Role != api.RoleAgent || id.TokenID != n.Info.TokenID {
		t.Errorf("%+v", id)
	}
	for _, raw := range b.rec {
		if strings.Contains(string(raw), n.Token[12:]) {
			t.Error("the token itself is kept")
		}
	}
	if len(f.events) != 1 || f.events[0].Type != api.EventTokenCreated || f.events[0].Tenant != "acme" || f.events[0].Actor != "local" ||
		strings.Contains(string(f.events[0].Data), n.Token[12:]) {
		t.Errorf("%+v", f.events)
	}
	for _, bad := range []string{n.Token[:43], n.Token + "0", strings.ToUpper(n.Token), "x", "e2b_" + strings.Repeat("0", 40)} {
		if _, err := f.Check(bad); code(err) != api.CodeTokenInvalid {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if _, err := f.Check(""); code(err) != api.CodeTokenMissing {
		t.Error(err)
	}
	again := open(t, b)
	if _, err := again.Check(n.Token); err != nil {
		t.Error("lost:", err)
	}
	f.now = f.now.Add(61 * time.Second)
	if _, err := f.Check(n.Token); code(err) != api.CodeTokenInvalid {
		t.Error("expired:", err)
	}
	other, _ := f.make(t, Local, api.TokenRequest{Role: api.RoleAdmin})
	if err := f.Revoke(context.Background(), Local, other.Info.Prefix); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Check(other.Token); code(err) != api.CodeTokenInvalid {
		t.Error("revoked:", err)
	}
	if err := f.Revoke(context.Background(), Local, other.Info.TokenID); code(err) != api.CodeTokenNotFound {
		t.Error("revoked twice:", err)
	}
	if list := f.List(Local); len(list) != 2 || list[0].TokenID != other.Info.TokenID || !list[0].Revoked {
		t.Errorf("%+v", list)
	}
	f.now = f.now.Add(keepDead + time.Hour)
	f.Tokens.purge()
	if len(f.List(Local)) != 0 || len(b.rec) != 0 {
		t.Error("dead tokens are kept for ever")
	}
}

// TestRecordFirst: without a record there is no effect, and a record that no
// effect followed harms nobody.
func TestRecordFirst(t *testing.T) {
	b := &memBucket{rec: map[string]json.RawMessage{}}
	f := open(t, b)
	n, _ := f.make(t, Local, api.TokenRequest{Role: api.RoleAgent})
	f.fail = errors.New("disk full")
	if _, err := f.Create(context.Background(), Local, api.TokenRequest{Role: api.RoleAgent}); err == nil || len(b.rec) != 1 {
		t.Error("made without a record")
	}
	if err := f.Revoke(context.Background(), Local, n.Info.TokenID); err == nil {
		t.Error("revoked without a record")
	}
	if _, err := f.Check(n.Token); err != nil {
		t.Error(err)
	}
	f.fail, b.fail = nil, errors.New("disk full")
	if _, err := f.Create(context.Background(), Local, api.TokenRequest{Role: api.RoleAgent}); err == nil || len(f.List(Local)) != 1 {
		t.Error("made without being kept")
	}
	if err := f.Revoke(context.Background(), Local, n.Info.TokenID); err != nil {
		t.Error(err) // it is on record: see TestSettle
	}
}

func TestTenants(t *testing.T) {
	f := open(t, &memBucket{rec: map[string]json.RawMessage{}})
	ctx := context.Background()
	node, nodeID := f.make(t, Local, api.TokenRequest{Role: api.RoleAdmin})
	acme, acmeID := f.make(t, nodeID, api.TokenRequest{Role: api.RoleAdmin, Tenant: "acme"})
	_, own := f.make(t, acmeID, api.TokenRequest{Role: api.RoleOperator})
	if own.Tenant != "acme" {
		t.Errorf("%+v", own)
	}
	for _, by := range []Identity{acmeID, own, {Tenant: api.DefaultTenant, Role: api.RoleOperator}, {}} {
		if _, err := f.Create(ctx, by, api.TokenRequest{Role: api.RoleAgent, Tenant: api.DefaultTenant}); code(err) != api.CodeTokenForbidden {
			t.Errorf("%+v makes one of another tenant: %v", by, err)
		}
		if err := f.Revoke(ctx, by, node.Info.Prefix); code(err) != api.CodeTokenNotFound {
			t.Errorf("%+v revokes one of another tenant: %v", by, err)
		}
	}
	if got := len(f.List(acmeID)); got != 2 {
		t.Errorf("acme sees %d", got)
	}
	if got := len(f.List(nodeID)); got != 3 {
		t.Errorf("the node sees %d", got)
	}
	if got := len(f.List(own)); got != 0 {
		t.Errorf("an operator sees %d", got)
	}
	if err := f.Revoke(ctx, nodeID, acme.Info.TokenID); err != nil {
		t.Error(err)
	}
	for _, r := range []api.TokenRequest{{}, {Role: "root"}, {Role: "agent", Tenant: "A"}, {Role: "agent", Tenant: "../x"}, {Role: "agent", TTLSeconds: -1},
		{Role: "agent", TTLSeconds: 1e18}, {Role: "agent", Label: strings.Repeat("x", 201)}, {Role: "agent", Label: "a\x1b[m"},
		{Role: "agent", Ceiling: &api.Policy{MinIsolation: "none"}}, {Role: "agent", Ceiling: &api.Policy{Limits: api.Limits{Pids: -2}}}} {
		if _, err := f.Create(ctx, nodeID, r); code(err) != api.CodeBadRequest {
			t.Errorf("%+v: %v", r, err)
		}
	}
	for _, s := range []string{`{}`, `[7]`, `["a.test"]`, `[{"allow":""}]`, `[{"allow":"preset:../x"}]`, `[{"allow":"a.test","no":1}]`} {
		for _, r := range []api.TokenRequest{{Ceiling: &api.Policy{Egress: json.RawMessage(s)}}, {Default: &api.Policy{Egress: json.RawMessage(s)}}} {
			r.Role = "agent"
			var ae *api.Error
			if _, err := f.Create(ctx, nodeID, r); code(err) != api.CodePolicyInvalid || !errors.As(err, &ae) || ae.Hint == "" {
				t.Errorf("%s: %v", s, err)
			}
		}
	}
}

// What a token may reach is kept as it was written, goes on to the tokens made
// with it, and is never more there.
func TestEgressOfTokens(t *testing.T) {
	f := open(t, &memBucket{rec: map[string]json.RawMessage{}})
	written := json.RawMessage(`[ {"allow": "preset:pip", "expires": "1h"}, {"allow": "a.test:443"} ]`)
	made, small := f.make(t, Local, api.TokenRequest{Role: api.RoleAdmin, Ceiling: &api.Policy{Egress: written}, Default: &api.Policy{Egress: json.RawMessage("[]")}})
	if string(small.Ceiling.Egress) != string(written) || string(small.Default.Egress) != "[]" {
		t.Errorf("%s: ceiling %s, default %s", made.Info.TokenID, small.Ceiling.Egress, small.Default.Egress)
	}
	if _, child := f.make(t, small, api.TokenRequest{Role: api.RoleAgent}); string(child.Ceiling.Egress) != string(written) || child.Default != nil {
		t.Errorf("a token made with it: %+v, %+v", child.Ceiling, child.Default)
	}
	for _, less := range []string{string(written), `[{"allow":"a.test:443"}]`, `[{"deny":"a.test"},{"allow":"preset:pip","expires":"1m"}]`} {
		p := &api.Policy{Egress: json.RawMessage(less)}
		if _, child := f.make(t, small, api.TokenRequest{Role: api.RoleAgent, Ceiling: p, Default: p}); string(child.Ceiling.Egress) != less || string(child.Default.Egress) != less {
			t.Errorf("%s: %+v", less, child)
		}
	}
	if _, child := f.make(t, small, api.TokenRequest{Role: api.RoleAgent, Ceiling: &api.Policy{Egress: json.RawMessage("[]")}}); string(child.Ceiling.Egress) != "[]" {
		t.Errorf("a narrower one: %+v", child.Ceiling)
	}
	more := json.RawMessage(`[{"allow":"b.test"}]`)
	for name, r := range map[string]api.TokenRequest{
		"ceiling": {Ceiling: &api.Policy{Egress: more}}, "default": {Default: &api.Policy{Egress: more}},
		"default over its own ceiling": {Ceiling: &api.Policy{Egress: json.RawMessage("[]")}, Default: &api.Policy{Egress: written}},
		"another preset":               {Ceiling: &api.Policy{Egress: json.RawMessage(`[{"allow":"preset:npm"}]`)}},
	} {
		r.Role = api.RoleAgent
		if _, err := f.Create(t.Context(), small, r); code(err) != api.CodePolicyCeiling {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestCeiling: whoever makes a token gives at most what they have, whatever the
// field.
func TestCeiling(t *testing.T) {
	max := &api.Policy{Limits: api.Limits{TimeoutSeconds: 10, MemoryBytes: 100, CPUs: 2, Pids: 10, DiskBytes: 100, OutputBytes: 100},
		MinIsolation: "gvisor", TTLSeconds: 60, IdleTimeoutSeconds: 30, Templates: []string{"a", "b"}}
	same, err := within(max, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := mustJSON(same), mustJSON(max); got != want {
		t.Errorf("nothing said: %s, not %s", got, want)
	}
	for name, more := range map[string]func(*api.Policy){
		"timeout":   func(p *api.Policy) { p.Limits.TimeoutSeconds = 10.5 },
		"memory":    func(p *api.Policy) { p.Limits.MemoryBytes = 101 },
		"cpus":      func(p *api.Policy) { p.Limits.CPUs = 3 },
		"pids":      func(p *api.Policy) { p.Limits.Pids = api.Unlimited },
		"disk":      func(p *api.Policy) { p.Limits.DiskBytes = 1 << 62 },
		"output":    func(p *api.Policy) { p.Limits.OutputBytes = api.Unlimited },
		"ttl":       func(p *api.Policy) { p.TTLSeconds = 61 },
		"idle":      func(p *api.Policy) { p.IdleTimeoutSeconds = 31 },
		"templates": func(p *api.Policy) { p.Templates = []string{"a", "c"} },
	} {
		var p api.Policy
		more(&p)
		if _, err := within(max, &p); code(err) != api.CodePolicyCeiling {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := within(nil, &p); err != nil {
			t.Errorf("%s without a ceiling: %v", name, err)
		}
	}
	if _, err := within(&api.Policy{MinIsolation: "microvm"}, &api.Policy{MinIsolation: "gvisor"}); code(err) != api.CodePolicyCeiling {
		t.Error(err)
	}
	p, err := within(max, &api.Policy{Limits: api.Limits{Pids: 5}, MinIsolation: "microvm", Templates: []string{"b"}})
	if err != nil || p.Limits.Pids != 5 || p.Limits.MemoryBytes != 100 || p.MinIsolation != "microvm" || len(p.Templates) != 1 {
		t.Errorf("%+v, %v", p, err)
	}

	f := open(t, &memBucket{rec: map[string]json.RawMessage{}})
	_, small := f.make(t, Local, api.TokenRequest{Role: api.RoleAdmin, Ceiling: &api.Policy{Limits: api.Limits{MemoryBytes: 100}}})
	_, child := f.make(t, small, api.TokenRequest{Role: api.RoleAdmin})
	_, grandchild := f.make(t, child, api.TokenRequest{Role: api.RoleAgent, Ceiling: &api.Policy{TTLSeconds: 5}})
	if grandchild.Ceiling == nil || grandchild.Ceiling.Limits.MemoryBytes != 100 || grandchild.Ceiling.TTLSeconds != 5 {
		t.Errorf("%+v", grandchild.Ceiling)
	}
	if _, err := f.Create(context.Background(), small, api.TokenRequest{Role: api.RoleAgent, Default: &api.Policy{Limits: api.Limits{MemoryBytes: 200}}}); code(err) != api.CodePolicyCeiling {
		t.Error("a default beyond the ceiling:", err)
	}
}

func mustJSON(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(raw)
}

func TestBootstrap(t *testing.T) {
	b := &memBucket{rec: map[string]json.RawMessage{}}
	f := open(t, b)
	ctx := context.Background()
	first, made, err := f.Bootstrap(ctx, "")
	if err != nil || !made {
		t.Fatal(made, err)
	}
	again, made, err := open(t, b).Bootstrap(ctx, first+"\n")
	if err != nil || made || again != first {
		t.Error(again, made, err)
	}
	// A crash before the file was written: the token that nobody has ends.
	f = open(t, b)
	second, made, err := f.Bootstrap(ctx, "")
	if err != nil || !made || second == first {
		t.Error(second, made, err)
	}
	if _, err := f.Check(first); err == nil {
		t.Error("the first one still works")
	}
	_, id := f.make(t, Local, api.TokenRequest{Role: api.RoleAdmin, Label: "mine"})
	if err := f.Revoke(ctx, id, second[:12]); err != nil {
		t.Fatal(err)
	}
	if third, made, err := f.Bootstrap(ctx, second); err != nil || made || third != "" {
		t.Error("a revoked first token comes back though there is another admin:", third, made, err)
	}
}

// TestSettle: what the log says was revoked is revoked, whatever the bucket says.
func TestSettle(t *testing.T) {
	b := &memBucket{rec: map[string]json.RawMessage{}}
	f := open(t, b)
	n, _ := f.make(t, Local, api.TokenRequest{Role: api.RoleAgent})
	other, _ := f.make(t, Local, api.TokenRequest{Role: api.RoleAgent})
	full := errors.New("no space")
	b.fail = full
	if err := f.Revoke(context.Background(), Local, n.Info.TokenID); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Check(n.Token); code(err) != api.CodeTokenInvalid {
		t.Errorf("revoked while the disk is full: %v", err)
	}
	for _, round := range []struct {
		before string // of Check, before it is settled
		fail   error
	}{{"", full}, {"", nil}, {api.CodeTokenInvalid, nil}} {
		b.fail = round.fail
		next := open(t, b)
		if _, err := next.Check(n.Token); code(err) != round.before {
			t.Fatalf("%+v: %v", round, err)
		}
		for i := range f.events {
			f.events[i].Time = f.now.UTC().Format(time.RFC3339Nano)
			if err := next.Settle(&f.events[i]); err != nil && !errors.Is(err, round.fail) {
				t.Fatal(err)
			}
		}
		if _, err := next.Check(n.Token); code(err) != api.CodeTokenInvalid {
			t.Errorf("%+v: %v", round, err)
		}
		if _, err := next.Check(other.Token); err != nil {
			t.Errorf("another token: %v", err)
		}
	}
}
