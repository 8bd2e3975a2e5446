package auth

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/policy"
)

// Bounds of the templates that a policy names.
const maxTemplates = 64

var templateShape = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/:@-]{0,127}$`)

// within is p as a ceiling below max: what p leaves open is as in max, and what
// goes beyond max is refused. Both may be nil.
func within(max, p *api.Policy) (*api.Policy, error) {
	if p != nil {
		if err := valid(p); err != nil {
			return nil, err
		}
	}
	if max == nil {
		return p, nil
	}
	var out api.Policy
	if p != nil {
		out = *p
	}
	m := *max
	if err := least(
		bound("limits.timeout_seconds", m.Limits.TimeoutSeconds, &out.Limits.TimeoutSeconds),
		bound("limits.memory_bytes", m.Limits.MemoryBytes, &out.Limits.MemoryBytes),
		bound("limits.cpus", m.Limits.CPUs, &out.Limits.CPUs),
		bound("limits.pids", m.Limits.Pids, &out.Limits.Pids),
		bound("limits.disk_bytes", m.Limits.DiskBytes, &out.Limits.DiskBytes),
		bound("limits.output_bytes", m.Limits.OutputBytes, &out.Limits.OutputBytes),
		bound("ttl_seconds", m.TTLSeconds, &out.TTLSeconds),
		bound("idle_timeout_seconds", m.IdleTimeoutSeconds, &out.IdleTimeoutSeconds),
	); err != nil {
		return nil, err
	}
	if out.MinIsolation == "" {
		out.MinIsolation = m.MinIsolation
	}
	if api.Strength(out.MinIsolation) < api.Strength(m.MinIsolation) {
		return nil, beyond("min_isolation", out.MinIsolation, m.MinIsolation)
	}
	switch {
	case !policy.Present(m.Egress):
	case !policy.Present(out.Egress):
		out.Egress = m.Egress
	default:
		now := time.Now() // one, for times that count from it
		most, err := egress(m.Egress, now)
		if err != nil {
			return nil, err
		}
		own, err := egress(out.Egress, now)
		if err != nil {
			return nil, err
		}
		if err := policy.EgressCeiling(own, most).Err(); err != nil {
			return nil, err
		}
	}
	if m.Templates != nil {
		if out.Templates == nil {
			out.Templates = m.Templates
		}
		for _, name := range out.Templates {
			if !slices.Contains(m.Templates, name) {
				return nil, beyond("templates", name, m.Templates)
			}
		}
	}
	return &out, nil
}

func least(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// bound holds one field against its ceiling: 0 and api.Unlimited in the ceiling
// are none, 0 below it takes it over.
func bound[N int64 | float64](name string, max N, v *N) error {
	switch {
	case max <= 0:
		return nil
	case *v == 0:
		*v = max
		return nil
	case *v < 0 || *v > max:
		return beyond(name, *v, max)
	}
	return nil
}

func beyond(name string, v, max any) error {
	return refuse(api.CodePolicyCeiling, fmt.Sprintf("%s: %v is beyond what this token may give, %v", name, v, max),
		"ask for less, or use a token with a higher ceiling")
}

// valid says what no policy can hold.
func valid(p *api.Policy) error {
	bad := func(what string) error {
		return refuse(api.CodeBadRequest, "policy: "+what, "berm help token create")
	}
	l := p.Limits
	for _, v := range []float64{l.TimeoutSeconds, l.CPUs, float64(l.MemoryBytes), float64(l.Pids), float64(l.DiskBytes), float64(l.OutputBytes)} {
		if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 && v != api.Unlimited {
			return bad("a limit is a number from 0 on, or -1 for none")
		}
	}
	for _, v := range []float64{p.TTLSeconds, p.IdleTimeoutSeconds} {
		if math.IsNaN(v) || v < 0 || v > api.MaxTTLSeconds {
			return bad(fmt.Sprintf("a time is between 0 and %d seconds", api.MaxTTLSeconds))
		}
	}
	switch {
	case p.MinIsolation != "" && api.Strength(p.MinIsolation) == 0:
		return bad("min_isolation is gvisor or microvm")
	case len(p.Templates) > maxTemplates:
		return bad(fmt.Sprintf("more than %d templates", maxTemplates))
	case slices.ContainsFunc(p.Templates, func(name string) bool { return !templateShape.MatchString(name) }):
		return bad("a template's name is of letters, digits and . _ - / : @ and has 128 characters at most")
	}
	if policy.Present(p.Egress) {
		_, err := egress(p.Egress, time.Now())
		return err
	}
	return nil
}

var presetShape = regexp.MustCompile(`^[a-z0-9]([a-z0-9_-]{0,38}[a-z0-9])?$`)

// egress reads the egress part of a policy. What a preset stands for is known
// when a sandbox is made; here it is its name, and stands for that alone.
func egress(raw json.RawMessage, now time.Time) (*policy.Egress, error) {
	return policy.ParseEgress(raw, now, func(name string) (policy.Preset, error) {
		if !presetShape.MatchString(name) {
			return policy.Preset{}, refuse(api.CodePolicyInvalid, fmt.Sprintf("egress: %.40q is not the name of a preset", name), "preset:pip")
		}
		return policy.Preset{Hosts: []string{strings.ReplaceAll(name, "_", "--") + ".preset.invalid:443"}}, nil
	})
}
