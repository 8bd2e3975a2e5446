package egress

import (
	"context"
	"errors"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/egress/wire"
	"github.com/bermhq/berm/internal/policy"
)

// guestTTL is the longest that a sandbox may keep an answer: what is allowed may
// change, and who asks again gets an answer by what is allowed then.
const guestTTL = 60

// unresolved is the Fault of a name that nobody could say anything about.
const unresolved = "unresolved"

// name answers whether a name may be resolved, and to what.
func (l *link) name(ctx context.Context, a wire.Ask) wire.Answer {
	ctx, cancel := context.WithTimeout(ctx, nameTime)
	defer cancel()
	name := strings.TrimSuffix(strings.ToLower(a.Name), ".")
	if !policy.ValidName(name) {
		return l.noName(a.Seq, name, policy.Decision{Rule: -1, Reason: policy.DenyNoRule, Text: "not a name of letters, digits, - and _"}, "")
	}
	if l.opt.Learn {
		return l.learnName(a.Seq, name, a.Type)
	}
	l.mu.Lock()
	now := time.Now()
	p := l.policy
	d := p.Name(name, now, l.spender(now, nil, lessNothing))
	var r policy.EgressRule
	if d.Rule >= 0 && d.Rule < len(p.Rules) {
		r = p.Rules[d.Rule]
	}
	if d.Allow && r.Suffix != "" {
		s := l.stuffed[r.Suffix]
		if s == nil {
			s = &stuffing{}
			l.stuffed[r.Suffix] = s
		}
		leaves := (a.Type == dns.TypeA || a.Type == dns.TypeAAAA) && l.cache.leaves(question{name, a.Type})
		if !s.pass(name, len(name)-len(r.Suffix)-1, leaves, now) {
			d.Allow, d.Reason, d.Fix = false, policy.DenyStuffing, ""
			d.Text = "too many or too long names below " + r.Suffix
		}
	}
	l.mu.Unlock()
	if !d.Allow {
		return l.noName(a.Seq, name, d, r.Text)
	}

	out := wire.Answer{Seq: a.Seq, Allow: true, TTL: uint32(negativeTTL / time.Second)}
	switch a.Type {
	case dns.TypeA, dns.TypeAAAA:
	case dns.TypeHTTPS, dns.TypeSVCB: // asked by the way, and nothing is lost
		return out
	default:
		word := dns.TypeToString[a.Type]
		if word == "" {
			word = "TYPE" + strconv.Itoa(int(a.Type))
		}
		l.tell.deny(api.EgressData{Kind: "dns", Target: name, Name: name, Rule: r.Text, Reason: policy.DenyQuery,
			Text: word + " is not answered: only A and AAAA are"}, 1)
		return out
	}
	got, err := l.cache.lookup(ctx, question{name, a.Type})
	if err != nil {
		out.Fault, out.TTL, out.Allow = unresolved, 0, false
		if !errors.Is(err, context.Canceled) { // nobody waits for it any more
			l.tell.fault(api.EgressData{Kind: "dns", Target: name, Name: name, Rule: r.Text}, unresolved, "could not be resolved: "+unresolvedText(err))
		}
		return out
	}
	var refused policy.Decision
	for _, addr := range got.addrs {
		if d := p.Address(name, addr, own(addr), now); !d.Allow {
			refused = d
		} else if routed(addr) {
			out.Addrs = append(out.Addrs, addr)
		}
	}
	if len(out.Addrs) == 0 && refused.Reason != "" {
		refused.Reason = policy.DenyAddress
		return l.noName(a.Seq, name, refused, r.Text)
	}
	out.NXName = got.nx
	out.TTL = min(guestTTL, uint32((got.ttl+time.Second-1)/time.Second))
	l.mu.Lock()
	for _, addr := range out.Addrs {
		l.handed.add(name, addr)
	}
	l.mu.Unlock()
	l.tell.allow(api.EgressData{Kind: "dns", Target: name, Name: name, Rule: r.Text})
	return out
}

// unresolvedText says for people why nobody could say anything about a name.
func unresolvedText(err error) string {
	if errors.Is(err, errNoServers) {
		return "this host has no name server"
	}
	if said, ok := strings.CutPrefix(err.Error(), "name server: "); ok {
		return "a name server says: " + said
	}
	return "no name server answered"
}

// noName answers and records that a name is not resolved.
func (l *link) noName(seq uint64, name string, d policy.Decision, rule string) wire.Answer {
	shown := printable(name)
	l.tell.deny(api.EgressData{Kind: "dns", Target: shown, Name: shown, Rule: rule, Reason: d.Reason, Text: d.Text, Fix: d.Fix}, 1)
	return wire.Answer{Seq: seq, NXName: true, Reason: d.Reason, Text: d.Text, Fix: d.Fix}
}

// learning is what all is denied with where it is only found out what is wanted.
var learning = policy.Decision{Rule: -1, Reason: policy.DenyNoRule, Text: "nothing is allowed while it is learned what is wanted"}

// Made-up addresses are out of the range for benchmarks, where nobody lives.
var madeUp = netip.MustParsePrefix("198.18.0.0/15")

// learnName makes an address up for a name, always the same: what is done with
// it shows the port. Nobody is asked.
func (l *link) learnName(seq uint64, name string, qtype uint16) wire.Answer {
	l.tell.looks(name)
	out := wire.Answer{Seq: seq, Allow: true, TTL: guestTTL}
	if qtype != dns.TypeA {
		return out
	}
	l.mu.Lock()
	addrs := l.handed.addrsOf(name)
	if len(addrs) == 0 {
		l.madeUp = l.madeUp%(1<<17-2) + 1 // neither the first nor the last of the range
		base := madeUp.Addr().As4()
		for i := range 3 {
			base[3-i] += byte(l.madeUp >> (8 * i))
		}
		a := netip.AddrFrom4(base)
		for _, old := range l.handed.namesOf(a) { // the range went round
			l.handed.drop(pair{old, a})
		}
		l.handed.add(name, a)
		addrs = []netip.Addr{a}
	}
	l.mu.Unlock()
	out.Addrs = addrs
	l.tell.deny(api.EgressData{Kind: "dns", Target: name, Name: name, Reason: learning.Reason, Text: learning.Text, Fix: name}, 1)
	return out
}

// shownLong is how much of a text from inside is told.
const shownLong = 512

// printable makes what a gateway said fit for people's terminals.
func printable(s string) string {
	s = s[:min(len(s), shownLong)]
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r > 0x7e {
			return '?'
		}
		return r
	}, s)
}
