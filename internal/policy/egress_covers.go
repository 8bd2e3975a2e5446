package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/bermhq/berm/api"
)

// Covers says whether everything that inner allows is allowed by e, too, so
// that a token may have it, or its user may put it in force in place of e. It
// may say no where that is hard to tell, and never yes where it is not so. Where
// it says no, Rule is the rule of inner.
//
// Each allow rule of inner is held against the rules of e in their order, until
// one matches all that it matches. On the way, a deny rule that could match some
// of it must stand in inner before it, too; and an allow rule that decides about
// some of it must not be a narrower one. A cap of e that several rules of inner
// come under must have room for all of theirs together.
func (e *Egress) Covers(inner *Egress) Decision {
	if inner == nil || len(inner.Rules) == 0 {
		return Decision{Allow: true, Rule: -1}
	}
	if e == nil {
		return inner.uncovered(0, "there is no link")
	}
	if slices.EqualFunc(e.Rules, inner.Rules, alike) {
		return Decision{Allow: true, Rule: -1}
	}
	under := make([][]*EgressRule, len(e.Rules)) // rules of inner that each rule of e decides about
	for i := range inner.Rules {
		r := &inner.Rules[i]
		if !r.Allow || inner.dead(i) {
			continue
		}
		found := false
		for j := 0; j < len(e.Rules) && !found; j++ {
			o := &e.Rules[j]
			if !o.meets(r) || inner.before(i, o) {
				continue
			}
			if !o.Allow {
				return inner.uncovered(i, fmt.Sprintf("some of it is denied by %s, and no rule before it denies the same", o.Text))
			}
			for _, n := range inner.through(i) {
				if why := o.bounds(n); why != "" {
					return inner.uncovered(i, fmt.Sprintf("%s, which %s has, is missing or wider", why, o.Text))
				}
				under[j] = append(under[j], n)
			}
			found = o.holds(r)
		}
		if !found {
			return inner.uncovered(i, "no rule allows all of it")
		}
	}
	for j := range under {
		if why := e.Rules[j].room(under[j]); why != "" {
			i := slices.IndexFunc(inner.Rules, func(r EgressRule) bool { return r.Allow && r.Text == under[j][len(under[j])-1].Text })
			return inner.uncovered(i, fmt.Sprintf("with the rules before it there is more than the %s of %s", why, e.Rules[j].Text))
		}
	}
	return Decision{Allow: true, Rule: -1}
}

func (e *Egress) uncovered(i int, why string) Decision {
	return Decision{Rule: i, Reason: DenyNoRule, Text: fmt.Sprintf("rule %d, %s: %s", i+1, e.Rules[i].Text, why)}
}

// through lists the rules that decide about flows which rule i lets through: it
// does itself, and so do the rules for names before it if it is for addresses.
func (e *Egress) through(i int) []*EgressRule {
	r := &e.Rules[i]
	list := []*EgressRule{r}
	for j := range e.Rules[:i] {
		if n := &e.Rules[j]; r.Prefix.IsValid() && n.Allow && !n.Prefix.IsValid() && (n.Port == 0 || r.Port == 0 || n.Port == r.Port) {
			list = append(list, n)
		}
	}
	return list
}

// alike says whether two rules mean the same.
func alike(a, b EgressRule) bool {
	return a.Allow == b.Allow && a.Host == b.Host && a.Suffix == b.Suffix && a.Prefix == b.Prefix && a.Port == b.Port &&
		slices.Equal(a.Methods, b.Methods) && slices.Equal(a.Paths, b.Paths) && a.AnySNI == b.AnySNI && a.QUIC == b.QUIC &&
		a.Rate == b.Rate && a.Bytes == b.Bytes && a.Connections == b.Connections && a.Uses == b.Uses &&
		a.Expires.Equal(b.Expires) && a.Preset == b.Preset
}

// holds says whether an allow rule o matches every flow that r matches. Flows of
// a rule for names to addresses that are not public are left out: they are those
// of a CIDR rule, too, and are held against e with that.
func (o *EgressRule) holds(r *EgressRule) bool {
	if o.Port != 0 && o.Port != r.Port || r.QUIC && !o.QUIC {
		return false
	}
	if r.Prefix.IsValid() {
		if !o.Prefix.IsValid() || !means(o.Prefix, r.Prefix) {
			return false
		}
	} else if !o.below(r) || r.AnySNI && !o.AnySNI || r.Preset != "" && o.Preset == "" {
		return false
	}
	if o.Methods != nil && (r.Methods == nil || !subset(r.Methods, o.Methods)) {
		return false
	}
	return o.Paths == nil || r.Paths != nil && !slices.ContainsFunc(r.Paths, func(p string) bool {
		return !slices.ContainsFunc(o.Paths, func(prefix string) bool { return underPath(p, prefix) })
	})
}

// below says whether all names that r is about are names that o is about.
func (o *EgressRule) below(r *EgressRule) bool {
	switch {
	case r.Host != "":
		return o.is(r.Host)
	case r.Suffix != "":
		return o.Suffix != "" && (o.Suffix == r.Suffix || o.is(r.Suffix))
	}
	return false
}

// means says whether a CIDR rule for outer matches all addresses that one for p
// does.
func means(outer, p netip.Prefix) bool {
	if !within(p, outer) || reachesOwn(p) && !reachesOwn(outer) {
		return false
	}
	c := home(p)
	return c == nil || within(outer, c.prefix)
}

// meets says whether o, of the outer document, could match a flow that the
// allow rule r matches.
func (o *EgressRule) meets(r *EgressRule) bool {
	if o.Port != 0 && r.Port != 0 && o.Port != r.Port {
		return false
	}
	switch {
	case o.Prefix.IsValid() && r.Prefix.IsValid():
		if !o.Prefix.Overlaps(r.Prefix) {
			return false
		}
	case o.Prefix.IsValid():
		// A rule for names goes to any public address, and to others as a CIDR
		// rule of its own document lets it.
		if r.Preset == "" && home(o.Prefix) != nil {
			return false
		}
	case r.Prefix.IsValid() || r.AnySNI || o.AnySNI:
		// With any of these the names that are looked at are not the same.
	case !o.below(r) && !r.below(o):
		return false
	}
	// r with methods or paths matches only requests that are seen.
	if r.Methods != nil && o.Methods != nil && !slices.ContainsFunc(r.Methods, func(m string) bool { return slices.Contains(o.Methods, m) }) {
		return false
	}
	return r.Paths == nil || o.Paths == nil || slices.ContainsFunc(r.Paths, func(a string) bool {
		return slices.ContainsFunc(o.Paths, func(b string) bool {
			a, b := strings.ToLower(a), strings.ToLower(b)
			return underPath(a, b) || underPath(b, a)
		})
	})
}

// before says whether what rule i of e and o, of the outer document, have in
// common never comes to rule i, for a rule before it matches that.
func (e *Egress) before(i int, o *EgressRule) bool {
	r := &e.Rules[i]
	part := *o // no more of o than what r can meet
	if r.Port != 0 {
		part.Port = r.Port
	}
	if r.Prefix.IsValid() && part.Prefix.IsValid() && within(r.Prefix, part.Prefix) {
		part.Prefix = r.Prefix
	}
	for j := range e.Rules[:i] {
		if d := &e.Rules[j]; !d.Allow && d.denyHolds(&part) && (d.Prefix.IsValid() || e.heeds(j, r)) {
			return true
		}
	}
	return false
}

// dead says whether deny rules leave nothing of rule i, not even a name to
// resolve.
func (e *Egress) dead(i int) bool {
	return slices.ContainsFunc(e.Rules[:i], func(d EgressRule) bool {
		return !d.Allow && !d.requests() && d.denyHolds(&e.Rules[i])
	})
}

// heeds says whether every flow that r, a CIDR rule for special addresses, lets
// through for a rule for names has met rule j, a deny rule for names, first.
func (e *Egress) heeds(j int, r *EgressRule) bool {
	if !r.Prefix.IsValid() {
		return true
	}
	return !slices.ContainsFunc(e.Rules[:j], func(n EgressRule) bool {
		return n.Allow && !n.Prefix.IsValid() && (n.Port == 0 || r.Port == 0 || n.Port == r.Port)
	})
}

// denyHolds says whether a deny rule d matches every flow that o matches, be o
// an allow or a deny rule.
func (d *EgressRule) denyHolds(o *EgressRule) bool {
	if d.Port != 0 && d.Port != o.Port {
		return false
	}
	if !d.Expires.IsZero() && (o.Allow || o.Expires.IsZero() || d.Expires.Before(o.Expires)) {
		return false
	}
	if o.Prefix.IsValid() {
		if !d.Prefix.IsValid() || !within(o.Prefix, d.Prefix) {
			return false
		}
	} else if !d.below(o) || o.Allow && o.AnySNI {
		return false
	}
	if d.Methods != nil && (o.Methods == nil || !subset(o.Methods, d.Methods)) {
		return false
	}
	return d.Paths == nil || o.Paths != nil && !slices.ContainsFunc(o.Paths, func(p string) bool {
		return !slices.ContainsFunc(d.Paths, func(prefix string) bool {
			return underPath(strings.ToLower(p), strings.ToLower(prefix))
		})
	})
}

func subset(a, b []string) bool {
	return !slices.ContainsFunc(a, func(s string) bool { return !slices.Contains(b, s) })
}

// bounds says which bound of o r does not keep: "" for none.
func (o *EgressRule) bounds(r *EgressRule) string {
	switch {
	case !o.Expires.IsZero() && (r.Expires.IsZero() || r.Expires.After(o.Expires)):
		return "expires"
	case o.Rate.N > 0 && !o.Rate.holds(r.Rate.N, r.Rate):
		return "rate"
	case o.Bytes > 0 && (r.Bytes == 0 || r.Bytes > o.Bytes):
		return "bytes"
	case o.Connections > 0 && (r.Connections == 0 || r.Connections > o.Connections):
		return "connections"
	case o.Uses > 0 && (r.Uses == 0 || r.Uses > o.Uses):
		return "uses"
	}
	return ""
}

// holds says whether a rate allows less in a burst and over time.
func (o Rate) holds(n int, r Rate) bool {
	return r.N > 0 && n <= o.N && perHour(r) <= perHour(o)
}

func perHour(r Rate) int64 {
	if r.Per <= 0 {
		return 0
	}
	return int64(r.N) * int64(time.Hour/r.Per)
}

// room says which cap of o is less than what the rules under it have together:
// "" for none. Each of them keeps within it alone.
func (o *EgressRule) room(rules []*EgressRule) string {
	if len(rules) < 2 {
		return ""
	}
	var burst, hour, bytes, connections, uses int64
	for _, r := range rules {
		burst, hour = burst+int64(r.Rate.N), hour+perHour(r.Rate)
		bytes, connections, uses = bytes+r.Bytes, connections+int64(r.Connections), uses+int64(r.Uses)
	}
	switch {
	case o.Rate.N > 0 && (burst > int64(o.Rate.N) || hour > perHour(o.Rate)):
		return "rate"
	case o.Bytes > 0 && bytes > o.Bytes:
		return "bytes"
	case o.Connections > 0 && connections > int64(o.Connections):
		return "connections"
	case o.Uses > 0 && uses > int64(o.Uses):
		return "uses"
	}
	return ""
}

// EgressCeiling says whether a document lies within the ceiling of a token. A
// nil ceiling says nothing; a nil document is no link.
func EgressCeiling(req, ceiling *Egress) Verdict {
	if ceiling == nil || req == nil {
		return Verdict{Allow: true, Rule: "ceiling.egress"}
	}
	d := ceiling.Covers(req)
	if d.Allow {
		return Verdict{Allow: true, Rule: "ceiling.egress"}
	}
	fix := "leave that rule out"
	if most := ceiling.allowed(); most != "" {
		fix = "ask for no more than " + most
	}
	return refuse(api.CodePolicyCeiling, "ceiling.egress", "egress: more than this token may have: "+d.Text, fix+", or use a token with a higher ceiling")
}

// allowed lists what a document allows, for people.
func (e *Egress) allowed() string {
	var all []string
	for i := range e.Rules {
		if e.Rules[i].Allow {
			all = append(all, e.Rules[i].Text)
		}
	}
	if len(all) > 5 {
		all = append(all[:5], "...")
	}
	return strings.Join(all, ", ")
}
