package sandbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/egress"
	"github.com/bermhq/berm/internal/policy"
	"github.com/bermhq/berm/internal/sandbox"
)

// linked are options of an engine whose sandboxes can have a link.
func linked() sandbox.Options {
	opt := quick
	opt.Egress = egress.New(egress.Options{})
	return opt
}

func rules(s string) json.RawMessage { return json.RawMessage(s) }

// by is a context of a token of that role.
func by(t *testing.T, role string) context.Context {
	return sandbox.As(t.Context(), sandbox.Caller{Tenant: api.DefaultTenant, Actor: "t-" + role, Role: role})
}

func TestEgressOfCreate(t *testing.T) {
	r, p := newDurable(t, linked())
	open := &api.Policy{Egress: rules(`[{"allow":"default.test"}]`)}
	for _, tt := range []struct {
		name    string
		req     api.CreateRequest
		ceiling *api.Policy
		def     *api.Policy
		want    string // the document in force; "" for none
		code    string
	}{
		{name: "nothing"},
		{name: "null", req: api.CreateRequest{Egress: rules("null")}},
		{name: "no rules", req: api.CreateRequest{Egress: rules(" [ ] ")}, want: `[]`},
		{name: "rules", req: api.CreateRequest{Egress: rules(`[ {"allow": "a.test:443"}, {"deny": "*.b.test"} ]`)}, want: `[{"allow":"a.test:443"},{"deny":"*.b.test"}]`},
		{name: "default", def: open, want: `[{"allow":"default.test"}]`},
		{name: "null with a default", req: api.CreateRequest{Egress: rules("null")}, def: open, want: `[{"allow":"default.test"}]`},
		{name: "not the default", req: api.CreateRequest{Egress: rules("[]")}, def: open, want: `[]`},
		{name: "learn", req: api.CreateRequest{Learn: true}, def: open, want: `[]`},
		{name: "learn with rules", req: api.CreateRequest{Learn: true, Egress: rules(`[{"allow":"a.test"}]`)}, code: api.CodePolicyInvalid},
		{name: "no list", req: api.CreateRequest{Egress: rules(`{"allow":"a.test"}`)}, code: api.CodePolicyInvalid},
		{name: "no rule", req: api.CreateRequest{Egress: rules(`["a.test"]`)}, code: api.CodePolicyInvalid},
		{name: "no preset", req: api.CreateRequest{Egress: rules(`[{"allow":"preset:pip"}]`)}, code: api.CodePolicyInvalid},
		{name: "before all else", req: api.CreateRequest{Egress: rules(`7`), TTLSeconds: -1}, code: api.CodePolicyInvalid},
		{name: "over the ceiling", req: api.CreateRequest{Egress: rules(`[{"allow":"a.test"}]`)}, ceiling: &api.Policy{Egress: rules("[]")}, code: api.CodePolicyCeiling},
		{name: "a default over the ceiling", def: open, ceiling: &api.Policy{Egress: rules("[]")}, code: api.CodePolicyCeiling},
		{name: "below the ceiling", req: api.CreateRequest{Egress: rules("[]")}, ceiling: &api.Policy{Egress: rules("[]")}, want: `[]`},
		{name: "a ceiling that says nothing", req: api.CreateRequest{Egress: rules(`[{"allow":"a.test"}]`)}, ceiling: &api.Policy{TTLSeconds: 60}, want: `[{"allow":"a.test"}]`},
	} {
		n := len(p.types(""))
		ctx := sandbox.As(t.Context(), sandbox.Caller{Tenant: api.DefaultTenant, Actor: "t", Role: api.RoleAgent, Ceiling: tt.ceiling, Default: tt.def})
		sb, err := r.Create(ctx, tt.req)
		if tt.code != "" {
			if code(err) != tt.code || err.(*api.Error).Hint == "" || len(p.types("")) != n {
				t.Errorf("%s: %v, %v", tt.name, err, p.types("")[n:])
			}
			continue
		}
		if err != nil || string(sb.Egress) != tt.want {
			t.Errorf("%s: %s, %v", tt.name, sb.Egress, err)
			continue
		}
		var made struct {
			Egress json.RawMessage
			Learn  bool
		}
		p.last(t, api.EventSandboxCreated, &made)
		if string(made.Egress) != tt.want || made.Learn != tt.req.Learn {
			t.Errorf("%s: the log has %+v", tt.name, made)
		}
		st, err := r.Egress(ctx, sb.ID)
		if err != nil || st.Link != (tt.want != "") || string(st.Egress) != tt.want || st.Learn != tt.req.Learn || st.Hosts == nil || st.Denied == nil {
			t.Errorf("%s: %+v, %v", tt.name, st, err)
		}
		rep, err := r.Delete(ctx, sb.ID)
		if err != nil || rep.Hosts == nil || rep.Denied == nil {
			t.Errorf("%s: %+v, %v", tt.name, rep, err)
		}
		if after, err := r.Egress(ctx, sb.ID); err != nil || string(after.Egress) != tt.want || after.Hosts == nil || after.Denied == nil {
			t.Errorf("%s, ended: %+v, %v", tt.name, after, err)
		}
	}
}

// A build without a broker, and a backend without links, promise none.
func TestNoLinkToGive(t *testing.T) {
	r, _ := newDurable(t, quick)
	for _, s := range []string{`[]`, `[{"allow":"preset:pip"}]`, `7`} {
		if _, err := r.Create(t.Context(), api.CreateRequest{Egress: rules(s)}); code(err) != api.CodeEgressUnavailable {
			t.Errorf("%s: %v", s, err)
		}
	}
	r, p := newDurable(t, linked())
	r.flaky.StartErr = &api.Error{Code: api.CodeEgressUnavailable, Message: "no links here"}
	if _, err := r.Create(t.Context(), api.CreateRequest{Egress: rules("[]")}); code(err) != api.CodeEgressUnavailable {
		t.Error(err)
	}
	if len(p.records) != 0 || r.mem.Live() != 0 {
		t.Errorf("%d records, %d instances are left", len(p.records), r.mem.Live())
	}
}

// Times that count from now count from the acceptance, once.
func TestEgressTimesAreAbsolute(t *testing.T) {
	r, p := newMortal(t, linked())
	before := time.Now()
	sb, err := r.Create(t.Context(), api.CreateRequest{Egress: rules(`[{"expires":"1h","allow":"a.test"},{"allow":"b.test","expires":"2090-01-02T03:04:05Z"}]`)})
	if err != nil {
		t.Fatal(err)
	}
	var got []struct {
		Allow   string
		Expires time.Time
	}
	if err := json.Unmarshal(sb.Egress, &got); err != nil || len(got) != 2 || got[0].Allow != "a.test" || got[1].Allow != "b.test" {
		t.Fatalf("%s: %v", sb.Egress, err)
	}
	if d := got[0].Expires.Sub(before); d < time.Hour || d > time.Hour+time.Minute {
		t.Errorf("%s: an hour is %v", sb.Egress, d)
	}
	if !got[1].Expires.Equal(time.Date(2090, 1, 2, 3, 4, 5, 0, time.UTC)) {
		t.Errorf("%s", sb.Egress)
	}
	next := r.successor(t, linked(), p)
	if err := next.Adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	if again, err := next.Get(t.Context(), sb.ID); err != nil || string(again.Egress) != string(sb.Egress) {
		t.Errorf("after a restart: %s, %v", again.Egress, err)
	}
	if st, err := next.SetEgress(t.Context(), sb.ID, rules("[]")); err != nil || string(st.Egress) != "[]" {
		t.Errorf("the next engine: %s, %v", st.Egress, err)
	}
}

func TestSetEgress(t *testing.T) {
	r, p := newDurable(t, linked())
	agent, operator := by(t, api.RoleAgent), by(t, api.RoleOperator)
	none := r.create(t, api.Limits{})
	sb, err := r.Create(agent, api.CreateRequest{Egress: rules(`[{"allow":"a.test:443"}]`)})
	if err != nil {
		t.Fatal(err)
	}
	low := sandbox.As(t.Context(), sandbox.Caller{Tenant: api.DefaultTenant, Actor: "t-low", Role: api.RoleOperator, Ceiling: &api.Policy{Egress: rules("[]")}})
	other := sandbox.As(t.Context(), sandbox.Caller{Tenant: "other", Role: api.RoleAdmin})
	for _, tt := range []struct {
		name  string
		ctx   context.Context
		id    string
		rules string
		code  string
	}{
		{"no link", agent, none, `[]`, api.CodeEgressNoLink},
		{"no link, admin", t.Context(), none, `[]`, api.CodeEgressNoLink},
		{"another tenant's", other, sb.ID, `[]`, api.CodeSandboxNotFound},
		{"wider", agent, sb.ID, `[{"allow":"b.test"},{"allow":"a.test:443"}]`, api.CodePolicyWider},
		{"wider without a role", sandbox.As(t.Context(), sandbox.Caller{Tenant: api.DefaultTenant, Role: ""}), sb.ID, `[{"allow":"b.test"}]`, api.CodePolicyWider},
		{"over the ceiling", low, sb.ID, `[{"allow":"b.test"}]`, api.CodePolicyCeiling},
		{"nothing", operator, sb.ID, ``, api.CodePolicyInvalid},
		{"null", operator, sb.ID, `null`, api.CodePolicyInvalid},
		{"no list", operator, sb.ID, `{}`, api.CodePolicyInvalid},
		{"no rule", operator, sb.ID, `[{"allow":"a.test"},{"allow":""}]`, api.CodePolicyInvalid},
	} {
		n := len(p.types(""))
		_, err := r.SetEgress(tt.ctx, tt.id, rules(tt.rules))
		if code(err) != tt.code || len(p.types("")) != n {
			t.Errorf("%s: %v, %v", tt.name, err, p.types("")[n:])
		}
		if code(err) == api.CodePolicyWider && !strings.Contains(err.(*api.Error).Hint, "b.test") {
			t.Errorf("%s: the hint names no rule: %q", tt.name, err.(*api.Error).Hint)
		}
		if got, _ := r.Get(agent, sb.ID); string(got.Egress) != `[{"allow":"a.test:443"}]` {
			t.Errorf("%s: now %s", tt.name, got.Egress)
		}
	}
	changed := func(ctx context.Context, to, actor, old string) {
		t.Helper()
		st, err := r.SetEgress(ctx, sb.ID, rules(to))
		if err != nil || string(st.Egress) != to || !st.Link {
			t.Fatalf("%s: %+v, %v", to, st, err)
		}
		var d struct{ Old, New json.RawMessage }
		if ev := p.last(t, api.EventPolicyChanged, &d); ev.Actor != actor || string(d.Old) != old || string(d.New) != to {
			t.Errorf("%s: the log has %s by %s", to, ev.Data, ev.Actor)
		}
		if got, _ := r.Get(agent, sb.ID); string(got.Egress) != to {
			t.Errorf("%s: now %s", to, got.Egress)
		}
	}
	wide := `[{"allow":"*.test"},{"allow":"192.0.2.0/24:80"}]`
	changed(operator, wide, "t-operator", `[{"allow":"a.test:443"}]`)
	n := len(p.types(""))
	if _, err := r.SetEgress(operator, sb.ID, rules(" "+wide)); err != nil || len(p.types("")) != n {
		t.Errorf("the same again: %v, %v", err, p.types("")[n:])
	}
	if err := r.Pause(agent, sb.ID); err != nil {
		t.Fatal(err)
	}
	narrow := `[{"deny":"b.test"},{"allow":"*.test:443"}]`
	changed(agent, narrow, "t-agent", wide)
	changed(agent, `[]`, "t-agent", narrow)
	if err := r.Resume(agent, sb.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := r.SetEgress(agent, sb.ID, rules(wide)); code(err) != api.CodePolicyWider {
		t.Errorf("what was given up is back: %v", err)
	}
	if _, err := r.Delete(agent, sb.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := r.SetEgress(operator, sb.ID, rules(`[]`)); code(err) != api.CodeSandboxEnded {
		t.Errorf("of one that ended: %v", err)
	}
}

// What rules have used goes with their text, so its user may drop a rule that
// counts, and not write it anew.
func TestNarrowingKeepsCounts(t *testing.T) {
	r, _ := newDurable(t, linked())
	agent := by(t, api.RoleAgent)
	const twice, plain = `{"allow":"a.test:443","uses":2}`, `{"allow":"b.test:443"}`
	for to, want := range map[string]string{
		"[" + twice + "," + plain + "]": "<nil>", "[" + twice + "]": "<nil>", "[" + plain + "]": "<nil>", "[]": "<nil>",
		`[{"deny":"b.test"},` + twice + `]`:                                 "<nil>",
		`[{"allow":"a.test:443","uses":1},` + plain + `]`:                   api.CodePolicyWider,
		`[{"allow":"a.test:443","uses":2,"connections":1}]`:                 api.CodePolicyWider,
		`[{"allow":"a.test:443"}]`:                                          api.CodePolicyWider,
		`[{"allow":"a.test:443","uses":3}]`:                                 api.CodePolicyWider,
		`[{"allow":"a.test:443","uses":2,"expires":"1h"}]`:                  api.CodePolicyWider,
		`[` + twice + `,{"allow":"a.test:443","methods":["GET"],"uses":1}]`: api.CodePolicyWider,
	} {
		id := r.linked(t, "["+twice+","+plain+"]")
		if _, err := r.SetEgress(agent, id, rules(to)); code(err) != want {
			t.Errorf("%s: %v", to, err)
		}
		r.Delete(agent, id)
	}
}

// A change that cannot be recorded is none, and the log says what holds.
func TestSetEgressIsRecordedFirst(t *testing.T) {
	r, p := newDurable(t, linked())
	sb, err := r.Create(t.Context(), api.CreateRequest{Egress: rules(`[]`)})
	if err != nil {
		t.Fatal(err)
	}
	to := rules(`[{"allow":"a.test"}]`)
	for _, what := range []string{api.EventPolicyChanged, "save"} {
		broke := false
		p.breaks(func(w string) error {
			if w == what && !broke {
				broke = true
				return errors.New("the disk is full")
			}
			return nil
		})
		if _, err := r.SetEgress(t.Context(), sb.ID, to); err == nil {
			t.Errorf("%s: no error", what)
		}
		if !broke {
			t.Errorf("%s was not asked for", what)
		}
		if st, err := r.Egress(t.Context(), sb.ID); err != nil || string(st.Egress) != `[]` {
			t.Errorf("%s: %s, %v", what, st.Egress, err)
		}
	}
	var d struct {
		New    json.RawMessage
		Failed string
	}
	if p.last(t, api.EventPolicyChanged, &d); string(d.New) != `[]` || d.Failed == "" {
		t.Errorf("the log says %+v", d)
	}
}

// The log is right where the record is behind it.
func TestEgressChangeSurvives(t *testing.T) {
	r, p := newMortal(t, linked())
	sb, err := r.Create(t.Context(), api.CreateRequest{Egress: rules(`[{"allow":"a.test"}]`)})
	if err != nil {
		t.Fatal(err)
	}
	p.breaks(func(what string) error {
		if what == "save" {
			r.pen.dead.Store(true) // between the event and the record
			return errDead
		}
		return nil
	})
	r.SetEgress(t.Context(), sb.ID, rules(`[]`))
	next := r.successor(t, linked(), p)
	if err := next.Adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	if st, err := next.Egress(t.Context(), sb.ID); err != nil || !st.Link || string(st.Egress) != `[]` {
		t.Errorf("%+v, %v", st, err)
	}
	if _, err := next.SetEgress(by(t, api.RoleAgent), sb.ID, rules(`[{"allow":"a.test"}]`)); code(err) != api.CodePolicyWider {
		t.Errorf("what was taken is back: %v", err)
	}
}

func TestPresets(t *testing.T) {
	opt := linked()
	asked := 0
	opt.Presets = func(name string) (policy.Preset, error) {
		asked++
		switch name {
		case "pip":
			return policy.Preset{Hosts: []string{"pip.test:443"}, Env: map[string]string{"A": "preset", "B": "preset"}, Files: map[string]string{"/etc/deep/er/pip.conf": "[global]\n"}}, nil
		case "bad":
			return policy.Preset{Hosts: []string{"bad.test:443"}, Files: map[string]string{api.Workspace: "a directory is there"}}, nil
		}
		return policy.Preset{}, fmt.Errorf("there is no preset %s", name)
	}
	for name, durable := range map[string]bool{"with a journal": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			var r *rig
			if durable {
				r, _ = newDurable(t, opt)
			} else {
				r = newRig(t, opt)
			}
			asked = 0
			sb, err := r.Create(t.Context(), api.CreateRequest{Egress: rules(`[{"allow":"preset:pip"},{"allow":"preset:pip","uses":1}]`), Env: map[string]string{"B": "own"}})
			if err != nil || string(sb.Egress) != `[{"allow":"preset:pip"},{"allow":"preset:pip","uses":1}]` || asked != 1 {
				t.Fatalf("%s, %v; asked %d times", sb.Egress, err, asked)
			}
			if _, out := r.exec(t, sb.ID, "cat", "/etc/deep/er/pip.conf"); out != "[global]\n" {
				t.Errorf("the file holds %q", out)
			}
			if _, out := r.exec(t, sb.ID, "env"); !slices.Contains(strings.Split(out, "\n"), "A=preset") || !slices.Contains(strings.Split(out, "\n"), "B=own") {
				t.Errorf("env: %q", out)
			}
			if _, err := r.Create(t.Context(), api.CreateRequest{Egress: rules(`[{"allow":"preset:bad"}]`)}); code(err) != api.CodeHostFailure || !strings.Contains(err.Error(), api.Workspace) {
				t.Errorf("a file that cannot be written: %v", err)
			}
			if _, err := r.Create(t.Context(), api.CreateRequest{Egress: rules(`[{"allow":"preset:none"}]`)}); code(err) != api.CodePolicyInvalid {
				t.Errorf("no such preset: %v", err)
			}
			if n := r.mem.Live(); n != 1 {
				t.Errorf("%d instances live", n)
			}
		})
	}
}
