package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/bermhq/berm/api"
)

// field is one number of a create request as ceilings and defaults see it.
type field struct {
	name      string // in the request
	value     *float64
	max, def  float64 // of the token; 0: says nothing
	builtin   float64 // without a default
	unlimited bool    // api.Unlimited means no bound
	text      func(float64) string
}

// Ceiling fills in what a request leaves open and holds it against the most
// that its token may have. nil policies say nothing: then the daemon's own
// bounds are the ceiling, and the default is closed. What is asked for and is
// too much is refused; what is not asked for is never more than the ceiling.
func Ceiling(req api.CreateRequest, ceiling, def *api.Policy) (api.CreateRequest, Verdict) {
	if ceiling == nil {
		ceiling = &api.Policy{}
	}
	if def == nil {
		def = &api.Policy{}
	}
	if v := isolation(&req, *ceiling, *def); !v.Allow {
		return req, v
	}
	if req.Persistent && ceiling.IdleTimeoutSeconds > 0 {
		return req, over("persistent", "true", timeText(ceiling.IdleTimeoutSeconds)+" without a request", "leave persistent out")
	}
	own, most, std := &req.Limits, ceiling.Limits, def.Limits
	base := api.Limits{}.WithDefaults()
	memory, pids, disk, output := float64(own.MemoryBytes), float64(own.Pids), float64(own.DiskBytes), float64(own.OutputBytes)
	ttl := float64(api.DefaultTTLSeconds)
	if req.Persistent {
		ttl = api.PersistentTTL
	}
	for _, f := range []field{
		{"limits.timeout_seconds", &own.TimeoutSeconds, most.TimeoutSeconds, std.TimeoutSeconds, base.TimeoutSeconds, true, timeText},
		{"limits.memory_bytes", &memory, float64(most.MemoryBytes), float64(std.MemoryBytes), float64(base.MemoryBytes), true, sizeText},
		{"limits.cpus", &own.CPUs, most.CPUs, std.CPUs, base.CPUs, true, plain},
		{"limits.pids", &pids, float64(most.Pids), float64(std.Pids), float64(base.Pids), true, plain},
		{"limits.disk_bytes", &disk, float64(most.DiskBytes), float64(std.DiskBytes), float64(base.DiskBytes), true, sizeText},
		{"limits.output_bytes", &output, float64(most.OutputBytes), float64(std.OutputBytes), float64(base.OutputBytes), true, sizeText},
		{"ttl_seconds", &req.TTLSeconds, ceiling.TTLSeconds, def.TTLSeconds, ttl, false, timeText},
		{"idle_timeout_seconds", &req.IdleTimeoutSeconds, ceiling.IdleTimeoutSeconds, def.IdleTimeoutSeconds, api.DefaultIdleSeconds, false, timeText},
	} {
		if v := f.settle(); !v.Allow {
			return req, v
		}
	}
	own.MemoryBytes, own.Pids, own.DiskBytes, own.OutputBytes = int64(memory), int64(pids), int64(disk), int64(output)
	return req, Verdict{Allow: true, Rule: "ceiling"}
}

// more says whether a is beyond the bound b, 0 for none.
func (f field) more(a, b float64) bool {
	switch {
	case b == 0 || f.unlimited && b == api.Unlimited:
		return false
	case f.unlimited && a == api.Unlimited:
		return true
	}
	return a > b
}

// settle puts the value in force into f, or refuses. A value that is left at 0
// stays 0 where no policy says otherwise.
func (f field) settle() Verdict {
	if *f.value != 0 {
		if f.more(*f.value, f.max) {
			asked := f.text(*f.value)
			if *f.value == api.Unlimited {
				asked = "unlimited"
			}
			return over(f.name, asked, f.text(f.max), fmt.Sprintf("ask for %s = %s at most", f.name, plain(f.max)))
		}
		return Verdict{Allow: true}
	}
	*f.value = f.def
	if f.more(f.def, f.max) || f.def == 0 && f.more(f.builtin, f.max) {
		*f.value = f.max
	}
	return Verdict{Allow: true}
}

func over(name, asked, most, fix string) Verdict {
	return refuse(api.CodePolicyCeiling, "ceiling."+name,
		fmt.Sprintf("%s: %s is more than this token may have: %s", name, asked, most), fix+", or use a token with a higher ceiling")
}

// Change says whether a running sandbox may get these times; nil is unchanged.
func Change(c api.LifecycleChange, ceiling *api.Policy) Verdict {
	req := api.CreateRequest{}
	if c.TTLSeconds != nil {
		req.TTLSeconds = *c.TTLSeconds
	}
	if c.IdleTimeoutSeconds != nil {
		req.IdleTimeoutSeconds = *c.IdleTimeoutSeconds
	}
	if c.Persistent != nil {
		req.Persistent = *c.Persistent
	}
	_, v := Ceiling(req, ceiling, nil)
	return v
}

// Template says whether a token's ceiling allows a template: by the name that
// was asked for or by the one it stands for.
func Template(ceiling *api.Policy, asked, resolved string) Verdict {
	if ceiling == nil || ceiling.Templates == nil || slices.Contains(ceiling.Templates, asked) || slices.Contains(ceiling.Templates, resolved) {
		return Verdict{Allow: true, Rule: "template"}
	}
	fix := "use a token with a higher ceiling"
	if len(ceiling.Templates) > 0 {
		fix = "ask for the template " + ceiling.Templates[0] + ", or " + fix
	}
	return refuse(api.CodePolicyCeiling, "ceiling.template", fmt.Sprintf("template: %.60q is not one of those that this token may use: %q", asked, ceiling.Templates), fix)
}

// Present says whether a raw field of a request holds anything.
func Present(raw []byte) bool {
	raw = bytes.TrimSpace(raw)
	return len(raw) > 0 && !bytes.Equal(raw, []byte("null"))
}

// Asked is the egress document that a request stands for: its own, else the
// one of its token's default; nil is no link at all. A request that learns has
// no rules, whatever the default says.
func Asked(req api.CreateRequest, def *api.Policy) (json.RawMessage, Verdict) {
	none := json.RawMessage("[]")
	switch own := bytes.TrimSpace(req.Egress); {
	case req.Learn && Present(own) && !bytes.Equal(bytes.Join(bytes.Fields(own), nil), none):
		return nil, refuse(api.CodePolicyInvalid, "egress.learn", "learn: it denies all and finds out what was wanted, so there can be no rules beside it", "leave egress out, or send []")
	case req.Learn:
		return none, Verdict{Allow: true, Rule: "egress.learn"}
	case Present(own):
		return json.RawMessage(own), Verdict{Allow: true, Rule: "egress"}
	case def != nil && Present(def.Egress):
		return def.Egress, Verdict{Allow: true, Rule: "egress.default"}
	}
	return nil, Verdict{Allow: true, Rule: "egress.none"}
}

// isolation settles on the strongest floor that anybody asks for.
func isolation(req *api.CreateRequest, ceiling, def api.Policy) Verdict {
	own := api.Strength(req.MinIsolation)
	if req.MinIsolation != "" && own == 0 {
		return refuse(api.CodeBadRequest, "min_isolation", fmt.Sprintf("min_isolation: %.40q is none of gvisor, microvm", req.MinIsolation), "min_isolation: gvisor")
	}
	if own == 0 && api.Strength(def.MinIsolation) > 0 {
		req.MinIsolation = def.MinIsolation
	}
	if api.Strength(ceiling.MinIsolation) > api.Strength(req.MinIsolation) {
		req.MinIsolation = ceiling.MinIsolation
	}
	if req.Isolation == "" || req.Isolation == api.IsolationAuto || api.Strength(req.Isolation) >= api.Strength(req.MinIsolation) {
		return Verdict{Allow: true}
	}
	if own >= api.Strength(req.MinIsolation) {
		return refuse(api.CodeBadRequest, "min_isolation", fmt.Sprintf("isolation %.40q is weaker than min_isolation %s", req.Isolation, req.MinIsolation), "isolation: auto")
	}
	return over("isolation", fmt.Sprintf("%.40q", req.Isolation), "nothing weaker than "+req.MinIsolation, "isolation: auto")
}
