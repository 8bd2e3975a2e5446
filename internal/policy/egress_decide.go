package policy

import (
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Rules are held against a flow in their order, and the first that matches
// decides. What it is about decides whether a rule matches: target, port, what
// the connection is, method, path. Caps and the end of an allow rule do not: a
// rule that matches and is used up or expired denies, and no later rule is
// asked. Otherwise a wider rule further down would make every cap void, and a
// grant that has ended would go on as whatever stands below it.
//
// A deny rule that has expired is gone: its end is what it was written for. A
// deny rule that cannot be checked, because it is about requests and the
// connection does not show any, denies.

// flow is a Flow in plain form.
type flow struct {
	Flow
	addr    netip.Addr
	port    uint16
	class   *class   // of addr; nil: public
	claim   string   // as names are written
	handed  []string // Flow.Names, likewise
	speaks  []string // the names that the connection may be for: what deny rules look at
	plain   bool     // Path is
	refused bool     // the address is special or the host's own
}

func (f Flow) plainly() *flow {
	p := &flow{Flow: f, addr: plainAddr(f.To.Addr()), port: f.To.Port(), claim: cleanName(f.Claim)}
	for _, n := range f.Names {
		p.handed = append(p.handed, cleanName(n))
	}
	p.class = special(p.addr)
	p.refused = p.class != nil || f.Own
	path, _, _ := strings.Cut(f.Path, "?")
	p.Path, p.plain = path, plainPath(path)
	// A claim that was handed out with this address says what the connection is
	// for. Any other claim is worth nothing, and it may be for each of the names.
	if p.claim != "" && !f.Hidden && slices.Contains(p.handed, p.claim) {
		p.speaks = []string{p.claim}
	} else if p.speaks = p.handed; p.claim != "" {
		p.speaks = append(slices.Clone(p.handed), p.claim)
	}
	return p
}

// is says whether a name is what a rule for names is about.
func (r *EgressRule) is(name string) bool {
	if r.Suffix != "" {
		below, ok := strings.CutSuffix(name, "."+r.Suffix)
		return ok && below != ""
	}
	return r.Host != "" && name == r.Host
}

func (r *EgressRule) first(names []string) string {
	if i := slices.IndexFunc(names, r.is); i >= 0 {
		return names[i]
	}
	return ""
}

func (r *EgressRule) at(port uint16) bool { return r.Port == 0 || r.Port == port }

func (r *EgressRule) requests() bool { return r.Methods != nil || r.Paths != nil }

func (r *EgressRule) expired(now time.Time) bool {
	return !r.Expires.IsZero() && !now.Before(r.Expires)
}

func (r *EgressRule) path(f *flow) bool {
	return r.Paths == nil || f.plain && slices.ContainsFunc(r.Paths, func(p string) bool { return underPath(f.Path, p) })
}

// denies says whether a deny rule matches, and why: "" for no.
func (r *EgressRule) denies(f *flow) string {
	switch {
	case r.expired(f.Now) || !r.at(f.port):
		return ""
	case r.Prefix.IsValid():
		if !r.Prefix.Contains(f.addr) {
			return ""
		}
	case f.Seen == SeenNothing:
		return DenyUnseen // it may come to speak for that name
	case r.first(f.speaks) == "":
		return ""
	}
	switch {
	case !r.requests():
		return DenyRule
	case f.Seen != SeenHTTP:
		return DenyUnseen
	case r.Methods != nil && !slices.ContainsFunc(r.Methods, func(m string) bool { return strings.EqualFold(m, f.Method) }):
		return ""
	case r.Paths != nil && f.plain && !slices.ContainsFunc(r.Paths, func(p string) bool {
		return underPath(strings.ToLower(f.Path), strings.ToLower(p)) // some servers do not care about case
	}):
		return ""
	}
	return DenyRule
}

// allows says whether an allow rule matches: then why is "" and name what it
// was allowed for. Else why is the reason that came closest to a match, "" for
// a rule that is about something else.
func (e *Egress) allows(i int, f *flow) (ok bool, name, why string) {
	r := &e.Rules[i]
	if !r.at(f.port) {
		return false, "", ""
	}
	if r.Prefix.IsValid() {
		switch {
		case !r.Prefix.Contains(f.addr):
			return false, "", ""
		case !names(r.Prefix, f.addr, f.Own):
			return false, "", DenyAddress
		}
	} else {
		if name, why = r.named(f); why != "" || name == "" {
			return false, name, why
		}
		if f.refused && !r.reaches(f.addr) && !e.ranges(f) {
			return false, name, DenyAddress
		}
	}
	switch {
	case f.Seen == SeenUDP && !r.QUIC:
		return false, name, DenyUDP
	case !r.requests():
		return true, name, ""
	case f.Seen == SeenRaw || f.Seen == SeenUDP:
		return false, name, DenyProtocol
	case f.Seen != SeenHTTP:
		return false, name, DenyUnseen
	case r.Methods != nil && !slices.Contains(r.Methods, f.Method):
		return false, name, DenyMethod
	case !r.path(f):
		return false, name, DenyPath
	}
	return true, name, ""
}

// named holds the names of a flow against a rule for names.
func (r *EgressRule) named(f *flow) (name, why string) {
	claimed := f.claim != "" && r.is(f.claim)
	name = r.first(f.handed)
	if claimed && slices.Contains(f.handed, f.claim) {
		name = f.claim
	}
	switch {
	case name == "" && claimed:
		return f.claim, DenyUnresolved
	case name == "" || r.AnySNI:
		return name, ""
	case f.Seen == SeenUDP:
		return name, DenyUDP
	case f.Seen != SeenTLS && f.Seen != SeenHTTP:
		return name, DenyProtocol
	case f.Hidden:
		return name, DenyHidden
	case f.claim == "":
		return name, DenyNoName
	case !claimed:
		return name, DenyName
	case name != f.claim:
		return f.claim, DenyUnresolved
	}
	return name, ""
}

// ranges says whether the CIDR rules alone allow a flow: what lets a rule for
// names reach an address that is not public.
func (e *Egress) ranges(f *flow) bool {
	for i := range e.Rules {
		r := &e.Rules[i]
		if !r.Prefix.IsValid() {
			continue
		}
		if !r.Allow {
			if r.denies(f) != "" {
				return false
			}
		} else if ok, _, _ := e.allows(i, f); ok {
			return e.spent(i, f.Now, f.Spent) == ""
		}
	}
	return false
}

// spent says what an allow rule has come to the end of: "" for nothing.
func (e *Egress) spent(i int, now time.Time, used func(int) Spent) string {
	r := &e.Rules[i]
	var s Spent
	if used != nil {
		s = used(i)
	}
	switch {
	case r.expired(now):
		return DenyExpired
	case r.Uses > 0 && s.Uses >= r.Uses:
		return DenyUsed
	case r.Bytes > 0 && s.Bytes >= r.Bytes:
		return DenyBytes
	case r.Connections > 0 && s.Open >= r.Connections:
		return DenyBusy
	case r.Rate.N > 0 && s.Busy:
		return DenyRate
	}
	return ""
}

// closeness orders the reasons of rules that did not match: the one that came
// closest is told.
var closeness = map[string]int{
	DenyPath: 9, DenyMethod: 8, DenyUnseen: 7, DenyAddress: 6, DenyHidden: 5, DenyNoName: 5,
	DenyUDP: 4, DenyProtocol: 4, DenyUnresolved: 3, DenyName: 2,
}

// Connect decides about a connection that was seen, or one HTTP request.
func (e *Egress) Connect(f Flow) Decision {
	p := f.plainly()
	if e == nil || !f.To.IsValid() {
		return p.deny(e, Decision{Rule: -1, Reason: DenyNoRule})
	}
	best := Decision{Rule: -1}
	for i := range e.Rules {
		r := &e.Rules[i]
		if !r.Allow {
			if why := r.denies(p); why != "" {
				return p.deny(e, Decision{Rule: i, Name: r.first(p.speaks), Reason: why})
			}
			continue
		}
		ok, name, why := e.allows(i, p)
		if ok {
			if why = e.spent(i, p.Now, p.Spent); why != "" {
				return p.deny(e, Decision{Rule: i, Name: name, Reason: why})
			}
			return Decision{Allow: true, Rule: i, Name: name}
		}
		if closeness[why] > closeness[best.Reason] {
			best = Decision{Rule: i, Name: name, Reason: why}
		}
	}
	best.Rule = -1 // none decided
	return p.deny(e, best)
}

// Accept decides about a connection of which nothing was seen yet: whether a
// rule could allow it, whatever it will turn out to be, and whether its first
// bytes must be seen before that is known. One that only rules could allow that have
// come to their end is looked at too, with their Reason: what it shows says which
// of them it is, and the client can be told.
func (e *Egress) Accept(f Flow) Decision {
	if f.Seen == SeenUDP || e == nil || !f.To.IsValid() {
		return e.Connect(f) // nothing will be seen of it
	}
	f.Seen, f.Claim, f.Hidden = SeenNothing, "", false
	p := f.plainly()
	best, inspect := Decision{Rule: -1}, false
	open := slices.Clone(p.handed) // names that it can still speak for
	var look *Decision             // if nothing allows it: for a rule that is spent
	for i := range e.Rules {
		r := &e.Rules[i]
		if !r.Allow {
			why := r.denies(p)
			if why == DenyUnseen && !r.requests() {
				if open = slices.DeleteFunc(open, r.is); len(open) == 0 && len(p.handed) > 0 {
					why = DenyRule // whatever it says
				}
			}
			if why == DenyRule {
				if best.Rule < 0 {
					best = Decision{Rule: i, Name: r.first(p.handed), Reason: why}
				}
				return e.spentOr(look, p, best)
			}
			inspect = inspect || why != ""
			continue
		}
		could, name, why := e.could(i, p, open)
		if !could {
			if best.Rule < 0 && closeness[why] > closeness[best.Reason] {
				best = Decision{Rule: -1, Name: name, Reason: why}
			}
			continue
		}
		looks := r.requests() || !r.Prefix.IsValid() && (!r.AnySNI || p.refused && !r.reaches(p.addr) && !e.ranges(p))
		if why = e.spent(i, p.Now, p.Spent); why == "" {
			return Decision{Allow: true, Rule: i, Name: name, Inspect: inspect || looks}
		}
		if look == nil && looks {
			look = &Decision{Allow: true, Rule: i, Name: name, Inspect: true, Reason: why}
		}
		if best.Rule < 0 {
			best = Decision{Rule: i, Name: name, Reason: why}
		}
		if !looks {
			break // it matches whatever comes
		}
	}
	return e.spentOr(look, p, best)
}

func (e *Egress) spentOr(look *Decision, p *flow, best Decision) Decision {
	if look != nil {
		return *look
	}
	return p.deny(e, best)
}

// could says whether an allow rule may come to match a connection that can
// speak for the names in open.
func (e *Egress) could(i int, f *flow, open []string) (ok bool, name, why string) {
	r := &e.Rules[i]
	switch {
	case !r.at(f.port):
		return false, "", ""
	case r.Prefix.IsValid():
		if !r.Prefix.Contains(f.addr) {
			return false, "", ""
		}
		if !names(r.Prefix, f.addr, f.Own) {
			return false, "", DenyAddress
		}
		return true, "", ""
	}
	if r.AnySNI {
		open = f.handed
	}
	if name = r.first(open); name == "" {
		return false, "", ""
	}
	if f.refused && !r.reaches(f.addr) && !e.mayRange(f.addr, f.port, f.Own, f.Now) {
		return false, name, DenyAddress
	}
	return true, name, ""
}

// mayRange says whether the CIDR rules could allow an address at a port, 0 for
// some port.
func (e *Egress) mayRange(a netip.Addr, port uint16, own bool, now time.Time) bool {
	for i := range e.Rules {
		r := &e.Rules[i]
		switch {
		case !r.Prefix.IsValid() || r.expired(now) || !r.Prefix.Contains(a):
		case r.Allow:
			if (port == 0 || r.at(port)) && names(r.Prefix, a, own) {
				return true
			}
		case !r.requests() && (r.Port == 0 || r.Port == port):
			return false
		}
	}
	return false
}

// Name decides whether a name may be resolved: some rule could allow it.
func (e *Egress) Name(name string, now time.Time, spent func(rule int) Spent) Decision {
	return e.resolve(name, now, spent, nil)
}

// Address says whether an address that a name resolves to may be handed out
// and dialled for that name: it is public, or a rule names its range.
func (e *Egress) Address(name string, a netip.Addr, own bool, now time.Time) Decision {
	a = plainAddr(a)
	d := e.resolve(name, now, nil, func(i int) bool {
		r := &e.Rules[i]
		for j := range e.Rules[:i] {
			if d := &e.Rules[j]; !d.Allow && !d.expired(now) && !d.requests() && d.Prefix.IsValid() && d.Prefix.Contains(a) && (d.Port == 0 || d.Port == r.Port) {
				return false
			}
		}
		return !own && special(a) == nil || r.reaches(a) || e.mayRange(a, r.Port, own, now)
	})
	if d.Reason == DenyAddress {
		f := Flow{Now: now, To: netip.AddrPortFrom(a, d.port), Own: own}.plainly()
		return f.deny(e, d)
	}
	return d
}

// resolve finds the first rule that could allow a connection for a name, to an
// address that may holds against the rule.
func (e *Egress) resolve(name string, now time.Time, spent func(int) Spent, may func(rule int) bool) Decision {
	name = cleanName(name)
	if e == nil || !ValidName(name) {
		return denyName(name, e, Decision{Rule: -1, Name: name, Reason: DenyNoRule})
	}
	best := Decision{Rule: -1, Name: name, Reason: DenyNoRule}
	var closed []uint16 // ports that a deny rule has taken
	for i := range e.Rules {
		r := &e.Rules[i]
		if !r.is(name) {
			continue
		}
		if !r.Allow {
			switch {
			case r.expired(now) || r.requests():
			case r.Port == 0:
				if best.Rule < 0 && best.Reason == DenyNoRule {
					best.Rule, best.Reason = i, DenyRule
				}
				return denyName(name, e, best)
			default:
				closed = append(closed, r.Port)
			}
			continue
		}
		if r.Port != 0 && slices.Contains(closed, r.Port) {
			continue
		}
		// What passes by itself, a rate or a number of connections, is no reason
		// for an answer that programs remember.
		switch why := e.spent(i, now, spent); {
		case why != "" && why != DenyRate && why != DenyBusy:
			if best.Rule < 0 {
				best.Rule, best.Reason = i, why
			}
		case may != nil && !may(i):
			best.Rule, best.Reason, best.port = -1, DenyAddress, r.Port
		default:
			return Decision{Allow: true, Rule: i, Name: name}
		}
	}
	return denyName(name, e, best)
}
