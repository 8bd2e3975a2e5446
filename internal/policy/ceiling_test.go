package policy

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/bermhq/berm/api"
)

func TestCeiling(t *testing.T) {
	ceiling := &api.Policy{
		Limits:     api.Limits{TimeoutSeconds: 60, MemoryBytes: 256 << 20, CPUs: 2, Pids: 64},
		TTLSeconds: 600, IdleTimeoutSeconds: 120,
	}
	def := &api.Policy{Limits: api.Limits{MemoryBytes: 128 << 20, CPUs: 8}, TTLSeconds: 60}
	for _, tt := range []struct {
		name         string
		req          api.CreateRequest
		ceiling, def *api.Policy
		want         api.CreateRequest
		field        string // of the refusal
	}{
		{name: "nothing says anything"},
		{name: "asked, no ceiling", req: api.CreateRequest{TTLSeconds: 5}, want: api.CreateRequest{TTLSeconds: 5}},
		{name: "nothing asked", ceiling: ceiling,
			want: api.CreateRequest{Limits: api.Limits{MemoryBytes: 256 << 20, Pids: 64}, TTLSeconds: 600, IdleTimeoutSeconds: 120}},
		{name: "defaults, cut at the ceiling", ceiling: ceiling, def: def,
			want: api.CreateRequest{Limits: api.Limits{MemoryBytes: 128 << 20, CPUs: 2, Pids: 64}, TTLSeconds: 60, IdleTimeoutSeconds: 120}},
		{name: "exactly the most", ceiling: ceiling,
			req:  api.CreateRequest{Limits: api.Limits{TimeoutSeconds: 60, MemoryBytes: 256 << 20, Pids: 64}, TTLSeconds: 600, IdleTimeoutSeconds: 120},
			want: api.CreateRequest{Limits: api.Limits{TimeoutSeconds: 60, MemoryBytes: 256 << 20, Pids: 64}, TTLSeconds: 600, IdleTimeoutSeconds: 120}},
		{name: "memory", ceiling: ceiling, req: api.CreateRequest{Limits: api.Limits{MemoryBytes: 1 << 30}}, field: "limits.memory_bytes"},
		{name: "unlimited", ceiling: ceiling, req: api.CreateRequest{Limits: api.Limits{Pids: -1}}, field: "limits.pids"},
		{name: "ttl", ceiling: ceiling, req: api.CreateRequest{TTLSeconds: 601}, field: "ttl_seconds"},
		{name: "idle", ceiling: ceiling, req: api.CreateRequest{IdleTimeoutSeconds: 121}, field: "idle_timeout_seconds"},
		{name: "persistent", ceiling: ceiling, req: api.CreateRequest{Persistent: true}, field: "persistent"},
		{name: "isolation", ceiling: &api.Policy{MinIsolation: "microvm"}, req: api.CreateRequest{Isolation: "gvisor"}, field: "isolation"},
		{name: "floor of the token", ceiling: &api.Policy{MinIsolation: "microvm"}, want: api.CreateRequest{MinIsolation: "microvm"}},
	} {
		got, v := Ceiling(tt.req, tt.ceiling, tt.def)
		if tt.field != "" {
			if v.Allow || v.Code != api.CodePolicyCeiling || !strings.HasPrefix(v.Reason, tt.field+":") || v.Fix == "" {
				t.Errorf("%s: %+v", tt.name, v)
			}
			continue
		}
		a, _ := json.Marshal(got)
		b, _ := json.Marshal(tt.want)
		if !v.Allow || string(a) != string(b) {
			t.Errorf("%s: %s, %+v; want %s", tt.name, a, v, b)
		}
	}
}

func TestCeilingRefusals(t *testing.T) {
	for code, req := range map[string]api.CreateRequest{
		api.CodeBadRequest: {MinIsolation: "container"},
	} {
		if _, v := Ceiling(req, nil, nil); v.Allow || v.Code != code {
			t.Errorf("%s: %+v", code, v)
		}
	}
	if _, v := Ceiling(api.CreateRequest{Isolation: "gvisor", MinIsolation: "microvm"}, nil, nil); v.Allow || v.Code != api.CodeBadRequest {
		t.Errorf("contradiction: %+v", v)
	}
}

func TestTemplateOfCeiling(t *testing.T) {
	c := &api.Policy{Templates: []string{"host"}}
	for asked, resolved := range map[string]string{"host": "host", "base": "host"} {
		if v := Template(c, asked, resolved); !v.Allow {
			t.Errorf("%s: %+v", asked, v)
		}
	}
	if v := Template(c, "other", "other"); v.Allow || v.Code != api.CodePolicyCeiling || v.Fix == "" {
		t.Errorf("other: %+v", v)
	}
	if v := Template(&api.Policy{Templates: []string{}}, "host", "host"); v.Allow {
		t.Error("an empty list allows")
	}
	if v := Template(nil, "x", "y"); !v.Allow {
		t.Error("no ceiling refuses")
	}
	ttl := 900.0
	if v := Change(api.LifecycleChange{TTLSeconds: &ttl}, &api.Policy{TTLSeconds: 600}); v.Allow {
		t.Error("a change may not pass the ceiling")
	}
}

func TestAsked(t *testing.T) {
	open := &api.Policy{Egress: json.RawMessage(`[{"allow":"a.test"}]`)}
	for _, tt := range []struct {
		name string
		own  string
		lrn  bool
		def  *api.Policy
		want string
		code string
	}{
		{name: "nothing"},
		{name: "null", own: " null "},
		{name: "an empty default", def: &api.Policy{}},
		{name: "a null default", def: &api.Policy{Egress: json.RawMessage("null")}},
		{name: "the default", def: open, want: `[{"allow":"a.test"}]`},
		{name: "null is nothing", own: "null", def: open, want: `[{"allow":"a.test"}]`},
		{name: "its own", own: ` [] `, def: open, want: `[]`},
		{name: "learn", lrn: true, want: `[]`},
		{name: "learn over a default", lrn: true, def: open, want: `[]`},
		{name: "learn with null", lrn: true, own: "null", def: open, want: `[]`},
		{name: "learn with no rules", lrn: true, own: "[ ]", want: `[]`},
		{name: "learn with rules", lrn: true, own: `[{"allow":"a.test"}]`, code: api.CodePolicyInvalid},
		{name: "learn with what is no list", lrn: true, own: `{}`, code: api.CodePolicyInvalid},
	} {
		got, v := Asked(api.CreateRequest{Egress: json.RawMessage(tt.own), Learn: tt.lrn}, tt.def)
		if v.Allow != (tt.code == "") || v.Code != tt.code || string(got) != tt.want || tt.want == "" && got != nil {
			t.Errorf("%s: %q, %+v", tt.name, got, v)
		}
	}
}
