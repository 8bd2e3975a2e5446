package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/egress/wire"
	"github.com/bermhq/berm/internal/policy"
)

// maxTries is how many addresses of a name are dialled for one connection.
const maxTries = 8

// Refusals that are not the policy's.
func refuse(reason, text string) policy.Decision {
	return policy.Decision{Rule: -1, Reason: reason, Text: text}
}

// impossible refuses what no rule can allow.
func impossible(to netip.AddrPort) (policy.Decision, bool) {
	a := to.Addr()
	switch {
	case !to.IsValid() || to.Port() == 0:
		return refuse(policy.DenyAddress, "not an address with a port"), true
	case a.Zone() != "":
		return refuse(policy.DenyAddress, "an address with a zone is one of this host's links"), true
	case a.Is4In6():
		return refuse(policy.DenyAddress, "an IPv4 address written as IPv6"), true
	}
	for _, p := range gatewayOwn {
		if p.Contains(a) {
			return refuse(policy.DenyGateway, "the gateway's own addresses answer nothing but DNS"), true
		}
	}
	return policy.Decision{}, false
}

// accept answers whether a connection may begin, or returns the flow that is to
// be dialled at once: nothing that it could show would make a difference.
func (s *session) accept(a wire.Ask) (*flow, wire.Answer) {
	l := s.l
	d, no := impossible(a.To)
	isOwn := !no && own(a.To.Addr())
	l.mu.Lock()
	facts := policy.Flow{To: a.To, Own: isOwn}
	if a.To.IsValid() {
		facts.Names = l.handed.namesOf(a.To.Addr())
	}
	if !no {
		d, no = s.place(a.Flow)
	}
	if !no && l.opt.Learn {
		d = policy.Decision{Allow: true, Rule: -1, Inspect: true}
	} else if !no {
		facts.Now = time.Now()
		facts.Spent = l.spender(facts.Now, nil, lessNothing)
		d = l.policy.Accept(facts)
	}
	var f *flow
	if d.Allow {
		f = &flow{s: s, n: a.Flow, to: a.To, facts: facts}
		if !d.Inspect {
			f.state = flowDialing
		}
		s.flows[a.Flow], l.flows[f] = f, struct{}{}
	}
	tell := l.denial(facts, d)
	l.mu.Unlock()
	switch {
	case !d.Allow:
		tell()
		return nil, denied(a.Seq, d)
	case d.Inspect:
		return nil, wire.Answer{Seq: a.Seq, Allow: true, Inspect: true}
	}
	return f, wire.Answer{}
}

// place says whether there is room for one more flow of a number. l.mu is held.
func (s *session) place(n uint64) (policy.Decision, bool) {
	switch {
	case s.l.closed:
		return refuse(policy.DenyNoRule, "the sandbox is over"), true
	case !s.fresh(n):
		return refuse(policy.DenyNoRule, "a number of a connection that was used before"), true
	case len(s.l.flows) >= maxFlows:
		return refuse(policy.DenyBudget, "more than "+strconv.Itoa(maxFlows)+" connections at one time"), true
	}
	return policy.Decision{}, false
}

func denied(seq uint64, d policy.Decision) wire.Answer {
	return wire.Answer{Seq: seq, Reason: d.Reason, Text: d.Text, Fix: d.Fix}
}

// dialling finds the flow that is to be dialled, or the answer that it is not.
func (s *session) dialling(a wire.Ask) (*flow, wire.Answer) {
	l := s.l
	udp := a.Seen == string(policy.SeenUDP)
	d, no := policy.Decision{}, false
	if udp {
		d, no = impossible(a.To)
	}
	l.mu.Lock()
	f := s.flows[a.Flow]
	switch {
	case no:
	case udp: // begins and is dialled in one
		if d, no = s.place(a.Flow); !no {
			f = &flow{s: s, n: a.Flow, to: a.To, state: flowDialing}
			s.flows[a.Flow], l.flows[f] = f, struct{}{}
		}
	case f == nil || f.state != flowAccepted || f.to.Addr() == (netip.Addr{}):
		d, no = refuse(policy.DenyNoRule, "a connection that was not accepted"), true
	case a.To.IsValid() && a.To != f.to:
		d, no = refuse(policy.DenyNoRule, "a connection that was accepted to another address"), true
	case !slices.Contains([]policy.Seen{policy.SeenNothing, policy.SeenTLS, policy.SeenHTTP, policy.SeenRaw}, policy.Seen(a.Seen)):
		d, no = refuse(policy.DenyProtocol, "a connection that looks like nothing known"), true
	default:
		f.state = flowDialing
	}
	if !no {
		l.mu.Unlock()
		return f, wire.Answer{}
	}
	facts := policy.Flow{To: a.To, Seen: policy.Seen(a.Seen), Claim: a.Claim}
	if f != nil {
		facts.To = f.to
	}
	tell := l.denial(facts, d)
	l.mu.Unlock()
	tell()
	return nil, denied(a.Seq, d)
}

// seen is what an ask says was seen of a flow.
func (f *flow) seen(a wire.Ask) policy.Flow {
	return policy.Flow{To: f.to, Own: f.facts.Own, Names: f.facts.Names, Seen: policy.Seen(a.Seen),
		Claim: strings.TrimSuffix(strings.ToLower(a.Claim), "."), Hidden: a.Hidden, Method: a.Method, Path: a.Path}
}

// connect decides about a flow that was seen, dials it and sends the answer.
func (s *session) connect(f *flow, a wire.Ask) {
	l := s.l
	facts := f.seen(a)
	select {
	case l.dials <- struct{}{}:
		defer func() { <-l.dials }()
	default:
		s.give(f, facts, refuse(policy.DenyBudget, "more than "+strconv.Itoa(maxDials)+" connections being made at one time"), a.Seq)
		return
	}
	facts.Own = own(f.to.Addr())
	d := l.admit(f, &facts, lessNothing)
	if !d.Allow {
		s.give(f, facts, d, a.Seq)
		return
	}
	if !l.seat(f) {
		s.give(f, facts, refuse(policy.DenyBudget, "this host has as many connections open as it has descriptors for"), a.Seq)
		return
	}
	c, to, err := s.dial(f, facts, d.Name)
	if err != nil {
		l.mu.Lock()
		data := l.about(facts, policy.Decision{Rule: -1, Name: d.Name})
		data.Rule = f.rule.Text
		l.mu.Unlock()
		s.over(f.n, false)
		if s.ctx.Err() == nil { // or nobody waits for it any more
			l.tell.fault(data, fault(err), "could not be reached: "+fault(err))
		}
		s.answer(wire.Answer{Seq: a.Seq, Fault: fault(err)}, -1)
		return
	}
	fd, d := l.open(f, c, to, d.Name)
	if !d.Allow {
		s.give(f, facts, d, a.Seq)
		return
	}
	s.answer(wire.Answer{Seq: a.Seq, Allow: true}, fd)
	unix.Close(fd)
}

// give answers and records a denial, and forgets the flow.
func (s *session) give(f *flow, facts policy.Flow, d policy.Decision, seq uint64) {
	s.l.mu.Lock()
	tells := []func(){s.l.denial(facts, d), s.l.end(f)}
	s.l.mu.Unlock()
	all(tells)
	s.answer(denied(seq, d), -1)
}

// admit decides about a flow, or one request on it, by facts that the broker
// knows itself, and takes the use of the rule that allows it.
func (l *link) admit(f *flow, facts *policy.Flow, without less) policy.Decision {
	l.mu.Lock()
	if f.state == flowOver {
		l.mu.Unlock()
		return refuse(policy.DenyNoRule, "the connection is over")
	}
	facts.Names = l.handed.namesOf(f.to.Addr())
	if l.opt.Learn {
		l.mu.Unlock()
		l.learnFlow(*facts)
		return learning
	}
	facts.Now = time.Now()
	facts.Spent = l.spender(facts.Now, f, without)
	d := l.policy.Connect(*facts)
	facts.Spent = nil
	if !d.Allow {
		l.mu.Unlock()
		return d
	}
	if d.Rule < 0 || d.Rule >= len(l.policy.Rules) {
		l.mu.Unlock()
		return refuse(policy.DenyNoRule, "no rule allows it")
	}
	r := l.policy.Rules[d.Rule]
	if r.Bytes > 0 && facts.Seen == policy.SeenUDP {
		l.mu.Unlock()
		return refuse(policy.DenyBytes, "a rule with a number of bytes, and nobody counts those of UDP")
	}
	if f.conn != nil && f.rule.Text != r.Text {
		l.sample(f) // what it carried so far was the other rule's
	}
	l.take(f, r, facts.Now)
	f.by, f.facts = l.policy, *facts
	if f.conn != nil {
		l.watch()
	}
	l.mu.Unlock()
	if err := l.keepUse(r); err != nil {
		return refuse(policy.DenyUsed, "that it was used could not be kept")
	}
	return d
}

// keepUse tells whoever keeps it that a rule was used.
func (l *link) keepUse(r policy.EgressRule) error {
	if r.Uses <= 0 || l.opt.Use == nil {
		return nil
	}
	l.useMu.Lock()
	defer l.useMu.Unlock()
	l.mu.Lock()
	n := l.spentOn(r.Text).uses // those of others who wait here, too: it never goes back
	l.mu.Unlock()
	return l.opt.Use(r.Text, n)
}

// dial connects to the address that was asked for, or to another one that was
// handed out for the same name and that the policy allows as well.
func (s *session) dial(f *flow, facts policy.Flow, name string) (*kept, netip.AddrPort, error) {
	ctx, cancel := context.WithTimeout(s.ctx, dialTime)
	defer cancel()
	network := "tcp"
	if facts.Seen == policy.SeenUDP {
		network = "udp"
	}
	tries := []netip.AddrPort{f.to}
	if slices.Contains(facts.Names, name) {
		s.l.mu.Lock()
		for _, a := range s.l.handed.addrsOf(name) {
			if to := netip.AddrPortFrom(a, f.to.Port()); to != f.to && len(tries) < maxTries {
				tries = append(tries, to)
			}
		}
		s.l.mu.Unlock()
	}
	var first error
	for i, to := range tries {
		if i > 0 && !s.l.alike(f, facts, to) {
			continue
		}
		end, _ := ctx.Deadline()
		share := max(2*time.Second, time.Until(end)/time.Duration(len(tries)-i))
		d := net.Dialer{Timeout: share} // of an address: nothing is resolved; no delay is Go's way
		c, err := d.DialContext(ctx, network, to.String())
		if err == nil {
			var k *kept
			if k, err = keep(c); err == nil {
				return k, to, nil
			}
		}
		if first == nil {
			first = err
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, netip.AddrPort{}, first
}

// alike says whether the rule that let a flow in lets it go to another address.
func (l *link) alike(f *flow, facts policy.Flow, to netip.AddrPort) bool {
	facts.To, facts.Own = to, own(to.Addr())
	l.mu.Lock()
	defer l.mu.Unlock()
	facts.Names = l.handed.namesOf(to.Addr())
	facts.Now = time.Now()
	facts.Spent = l.spender(facts.Now, f, lessAll)
	d := l.policy.Connect(facts)
	return d.Allow && d.Rule >= 0 && d.Rule < len(l.policy.Rules) && l.policy.Rules[d.Rule].Text == f.rule.Text
}

// open makes a connection a flow's, unless that was cut or the policy has changed
// meanwhile, and returns a descriptor of it to be sent and closed.
func (l *link) open(f *flow, c *kept, to netip.AddrPort, name string) (int, policy.Decision) {
	isOwn := own(to.Addr())
	l.mu.Lock()
	d := l.opening(f, c, to, isOwn)
	fd := -1
	if d.Allow {
		var err error
		if fd, err = c.dup(); err != nil {
			d = refuse(policy.DenyBudget, "this host has no descriptors left")
		}
	}
	if !d.Allow {
		l.mu.Unlock()
		c.shutdown()
		c.close()
		return -1, d
	}
	f.conn, f.state = c, flowOpen
	f.data = l.about(f.facts, policy.Decision{Name: name})
	f.data.Rule = f.rule.Text
	data := f.data
	l.watch()
	l.mu.Unlock()
	l.tell.reached(data.Target)
	l.tell.allow(data)
	return fd, d
}

func (l *link) opening(f *flow, c *kept, to netip.AddrPort, isOwn bool) policy.Decision {
	if f.state != flowDialing {
		return refuse(policy.DenyNoRule, "the connection is over")
	}
	if to != f.facts.To {
		f.facts.To, f.facts.Own = to, isOwn
		f.facts.Names = l.handed.namesOf(to.Addr())
	}
	if f.by != l.policy {
		if d := l.still(f); !d.Allow {
			return d
		}
	}
	if c.tcp && f.rule.Bytes > 0 {
		if _, _, ok := c.counted(); !ok {
			return refuse(policy.DenyBytes, "a rule with a number of bytes, and this kernel does not count them")
		}
	}
	return policy.Decision{Allow: true}
}

// request answers whether one more HTTP request may be sent on a flow.
func (s *session) request(a wire.Ask) wire.Answer {
	l := s.l
	a.Seen = string(policy.SeenHTTP)
	l.mu.Lock()
	f := s.flows[a.Flow]
	var facts policy.Flow
	d := refuse(policy.DenyHTTP, "a request on what is no HTTP connection")
	ok := f != nil && f.state == flowOpen && f.facts.Seen == policy.SeenHTTP
	if ok {
		own, to := f.facts.Own, f.facts.To
		facts = f.seen(a)
		facts.Own, facts.To = own, to
	} else {
		facts = policy.Flow{To: a.To, Seen: policy.SeenHTTP, Claim: a.Claim, Method: a.Method, Path: a.Path}
		if f != nil {
			facts.To = f.to
		}
	}
	l.mu.Unlock()
	if ok {
		d = l.admit(f, &facts, lessOpen)
	}
	l.mu.Lock()
	tell := l.denial(facts, d)
	data := l.about(facts, d)
	if d.Allow && f != nil {
		data.Rule = f.rule.Text
	}
	l.mu.Unlock()
	if d.Allow {
		l.tell.allow(data)
		return wire.Answer{Seq: a.Seq, Allow: true}
	}
	tell()
	return denied(a.Seq, d)
}

// over forgets a flow.
func (s *session) over(n uint64, reset bool) {
	cut := (*kept).shutdown
	if reset {
		cut = (*kept).reset
	}
	s.l.mu.Lock()
	f := s.flows[n]
	tell := func() {}
	if f != nil {
		tell = s.l.endBy(f, cut)
	}
	s.l.mu.Unlock()
	tell()
}

// fault is a word for why a connection could not be made.
func fault(err error) string {
	var timeout interface{ Timeout() bool }
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.As(err, &timeout) && timeout.Timeout():
		return "timeout"
	}
	return "unreachable"
}

// kinds of what was seen, as events have them.
var kinds = map[policy.Seen]string{policy.SeenTLS: "tls", policy.SeenHTTP: "http", policy.SeenUDP: "udp"}

// about describes a flow for an event. mu is held.
func (l *link) about(facts policy.Flow, d policy.Decision) api.EgressData {
	out := api.EgressData{Kind: kinds[facts.Seen], Port: facts.To.Port(), SNI: printable(facts.Claim),
		Method: printable(facts.Method), Path: printable(facts.Path), Reason: d.Reason, Text: d.Text, Fix: d.Fix}
	if out.Kind == "" {
		out.Kind = "tcp"
	}
	if d.Rule >= 0 && d.Rule < len(l.policy.Rules) && !d.Allow && d.Reason != "" {
		out.Rule = l.policy.Rules[d.Rule].Text
	}
	if !facts.To.IsValid() {
		return out
	}
	out.Address = facts.To.Addr().String()
	out.Name = d.Name
	if d.Reason != "" && !facts.Hidden && !l.opt.Learn && policy.ValidName(facts.Claim) {
		out.Name = facts.Claim // what was wanted, whatever else is at that address
	}
	if names := facts.Names; out.Name == "" && len(names) > 0 {
		out.Name = names[len(names)-1]
		if slices.Contains(names, facts.Claim) {
			out.Name = facts.Claim
		}
	}
	out.Target = facts.To.String()
	if out.Name != "" {
		out.Name = printable(out.Name)
		out.Target = net.JoinHostPort(out.Name, strconv.Itoa(int(out.Port)))
	}
	return out
}

// denial describes a decision that denies, to be told without mu, which is held.
func (l *link) denial(facts policy.Flow, d policy.Decision) (tell func()) {
	if d.Allow {
		return func() {}
	}
	data := l.about(facts, d)
	if l.opt.Learn && d.Reason == policy.DenyNoRule && data.Fix == "" && facts.Seen != policy.SeenUDP {
		data.Fix = data.Target
	}
	return func() { l.tell.deny(data, 1) }
}

// learnFlow keeps what somebody wanted to reach.
func (l *link) learnFlow(facts policy.Flow) {
	if facts.Seen == policy.SeenUDP || !facts.To.IsValid() {
		return
	}
	l.mu.Lock()
	target := l.about(facts, learning).Target
	l.mu.Unlock()
	l.tell.wants(target)
}

// reported records what a gateway refused by itself.
func (l *link) reported(a wire.Ask) {
	if !slices.Contains([]string{"udp", "icmp", "dns", "http", "tcp", "tls"}, a.Kind) {
		a.Kind = "tcp"
	}
	if !slices.Contains([]string{policy.DenyUDP, policy.DenyICMP, policy.DenyGateway, policy.DenyHTTP, policy.DenyQuery, policy.DenyBudget,
		policy.DenyProtocol, policy.DenyHidden, policy.DenyNoRule, policy.DenyAddress, policy.DenyStuffing}, a.Reason) {
		a.Reason = policy.DenyProtocol
	}
	facts := policy.Flow{To: a.To, Claim: a.Claim, Method: a.Method, Path: a.Path}
	l.mu.Lock()
	if a.To.IsValid() {
		facts.Names = l.handed.namesOf(a.To.Addr())
	}
	d := refuse(a.Reason, ownText(a))
	facts.Now = time.Now()
	if a.Reason == policy.DenyUDP { // as the broker has said before, often
		facts.Seen = policy.SeenUDP
		if again := l.policy.Connect(facts); again.Reason == policy.DenyUDP {
			d = again
		}
	}
	data := l.about(facts, d)
	l.mu.Unlock()
	data.Kind = a.Kind
	if a.Reason == policy.DenyHTTP { // nothing but not to look helps
		facts.Seen = policy.SeenRaw
		if name := strings.ToLower(a.Name); slices.Contains(facts.Names, name) {
			facts.Names = []string{name}
		}
		data.Fix = (&policy.Egress{}).Connect(facts).Fix
	}
	switch name := printable(strings.ToLower(a.Name)); {
	case !a.To.IsValid():
		data.Target, data.Name = name, name
	case a.Kind == "icmp": // has no port
		data.Target = data.Address
	case name != "":
		data.Target, data.Name = net.JoinHostPort(name, strconv.Itoa(int(a.To.Port()))), name
	}
	if data.Target == "" {
		data.Target = "?"
	}
	l.tell.deny(data, max(1, a.Count))
}

// ownTexts are what a gateway refuses by itself, for people.
var ownTexts = map[string]string{
	policy.DenyUDP:      "UDP is sent to no group, and to no address of a special kind",
	policy.DenyICMP:     "ICMP does not leave the sandbox, and no rule allows it",
	policy.DenyGateway:  "the gateway's own addresses answer nothing but DNS",
	policy.DenyHTTP:     `not a request that can be checked; a rule for the address, or with "sni":"any", in front of the others lets it through unread`,
	policy.DenyQuery:    "only A and AAAA are answered",
	policy.DenyBudget:   "too many at one time",
	policy.DenyProtocol: "neither TLS nor HTTP, or not whole",
	policy.DenyHidden:   "it hides its name in an encrypted client hello",
	policy.DenyNoRule:   "nothing allows it",
	policy.DenyAddress:  "not an address that anything can be sent to",
	policy.DenyStuffing: "too many or too long names below one suffix",
}

// ownText says why a gateway refused something by itself, with what it adds.
func ownText(a wire.Ask) string {
	text := ownTexts[a.Reason]
	switch {
	case a.Reason == policy.DenyBudget && a.Kind == "dns":
		text = "too many questions for names at one time, or in a second"
	case a.Reason == policy.DenyBudget && a.Kind == "udp":
		text = "too many UDP flows at one time"
	case a.Reason == policy.DenyBudget:
		text = "too many connections at one time"
	case a.Reason == policy.DenyNoRule && a.Kind == "dns":
		text = "not a name of letters, digits, - and _"
	}
	if a.Text != "" {
		text += " (the gateway says: " + printable(a.Text) + ")"
	}
	return text
}
