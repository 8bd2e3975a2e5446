// Package policy decides. It is pure: facts and time are arguments, the answer
// is a verdict with its reason, and every door asks it instead of knowing
// better. It decides which limits and tags a sandbox may have, and what one with
// a link may reach.
package policy

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/bermhq/berm/api"
)

// Bounds of the limits that a caller may ask for.
const (
	MinMemoryBytes = 32 << 20 // below it the guest's kernel does not come up
	MaxMemoryBytes = 1 << 44
	MinDiskBytes   = 1 << 20
	MaxDiskBytes   = 1 << 44
	MinOutputBytes = 1
	MaxOutputBytes = 1 << 30
	MaxPids        = 1 << 20
	MinCPUs        = 0.01
	MaxCPUs        = 1024
	MaxTimeout     = 30 * 24 * 3600
	MaxTags        = 64
	MaxTagBytes    = 1024
)

// A Verdict is a decision and its reason.
type Verdict struct {
	Allow  bool
	Code   string // the api code of a refusal
	Rule   string // which rule decided
	Reason string
	Fix    string
}

// Err is the verdict as an error: nil if it allows.
func (v Verdict) Err() error {
	if v.Allow {
		return nil
	}
	return &api.Error{Code: v.Code, Message: v.Reason, Hint: v.Fix}
}

// Limits fills the defaults in and says whether they may be.
func Limits(l api.Limits) (api.Limits, Verdict) {
	l = l.WithDefaults()
	for _, c := range []struct {
		name      string
		v         float64
		min, max  float64
		unlimited bool
		text      func(float64) string
	}{
		{"timeout", l.TimeoutSeconds, 0, MaxTimeout, true, timeText},
		{"memory", float64(l.MemoryBytes), MinMemoryBytes, MaxMemoryBytes, true, sizeText},
		{"cpus", l.CPUs, MinCPUs, MaxCPUs, true, plain},
		{"pids", float64(l.Pids), 1, MaxPids, true, plain},
		{"disk", float64(l.DiskBytes), MinDiskBytes, MaxDiskBytes, false, sizeText},
		{"output-limit", float64(l.OutputBytes), MinOutputBytes, MaxOutputBytes, false, sizeText},
	} {
		rule := "limit." + strings.TrimSuffix(c.name, "-limit")
		switch {
		case c.v == api.Unlimited && c.unlimited:
		case c.v == api.Unlimited:
			return l, refuse(api.CodeLimitInvalid, rule, c.name+": cannot be unlimited: this cap can be enforced on every host", "give it a size, as in 2g")
		case math.IsNaN(c.v) || c.v < c.min || c.v > c.max || c.v <= 0:
			near := c.max
			if !(c.v > c.max) {
				near = c.min
			}
			if near == 0 {
				near = api.DefaultTimeoutSeconds // the one that has no least value
			}
			return l, refuse(api.CodeLimitInvalid, rule,
				fmt.Sprintf("%s: %s is outside %s to %s", c.name, c.text(c.v), c.text(c.min), c.text(c.max)), "--"+c.name+" "+strings.ReplaceAll(c.text(near), "30 days", "720h"))
		}
	}
	return l, Verdict{Allow: true, Rule: "limits"}
}

// Tags says whether a sandbox may carry these tags.
func Tags(tags map[string]string) Verdict {
	if len(tags) > MaxTags {
		return refuse(api.CodeBadRequest, "tags.count", fmt.Sprintf("%d tags are more than %d", len(tags), MaxTags), "")
	}
	for k, v := range tags {
		if k == "" || len(k)+len(v) > MaxTagBytes {
			return refuse(api.CodeBadRequest, "tags.size", fmt.Sprintf("tag %.40q is empty or longer than %d bytes", k, MaxTagBytes), "")
		}
		for _, r := range k + v {
			if r < ' ' || r == 0x7f {
				return refuse(api.CodeBadRequest, "tags.text", fmt.Sprintf("tag %.40q holds a control character", k), "")
			}
		}
	}
	return Verdict{Allow: true, Rule: "tags"}
}

// sizeText is a size as a flag takes it.
func sizeText(f float64) string {
	for i, unit := range []string{"t", "g", "m", "k"} {
		if u := float64(int64(1) << (40 - 10*i)); f >= u && math.Mod(f, u) == 0 {
			return plain(f/u) + unit
		}
	}
	return plain(f)
}

// timeText is a time as a person reads it.
func timeText(f float64) string {
	switch {
	case f < 60, math.IsInf(f, 0), math.IsNaN(f):
		return plain(f) + "s"
	case math.Mod(f, 24*3600) == 0:
		return plain(f/24/3600) + " days"
	case math.Mod(f, 3600) == 0:
		return plain(f/3600) + "h"
	}
	return plain(f) + "s"
}

func plain(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

func refuse(code, rule, reason, fix string) Verdict {
	return Verdict{Code: code, Rule: rule, Reason: reason, Fix: fix}
}
