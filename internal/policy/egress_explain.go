package policy

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// deny fills in what a denial says.
func (f *flow) deny(e *Egress, d Decision) Decision {
	if d.Reason == "" {
		d.Reason = f.farReason(e)
	}
	d.Allow, d.Inspect = false, false
	d.Text = f.explain(e, d)
	if e != nil && f.To.IsValid() {
		d.Fix = f.fix(d)
	}
	return d
}

// farReason is why a flow is denied that no rule came near to.
func (f *flow) farReason(e *Egress) string {
	switch {
	case f.refused:
		return DenyAddress
	case f.Seen == SeenUDP:
		return DenyUDP
	case len(f.handed) == 0 && e != nil && len(e.Rules) > 0:
		return DenyUnresolved
	}
	return DenyNoRule
}

// explain is a reason for people: one line.
func (f *flow) explain(e *Egress, d Decision) string {
	to := netip.AddrPortFrom(f.addr.WithZone(""), f.port).String() // a zone is any text
	who := f.who(d)
	rule := ""
	if e != nil && d.Rule >= 0 {
		rule = fmt.Sprintf("rule %d, %s", d.Rule+1, e.Rules[d.Rule].Text)
	}
	switch d.Reason {
	case DenyRule:
		return who + " is denied by " + rule
	case DenyAddress:
		return f.explainAddress(d, to)
	case DenyUnresolved:
		if d.Name != "" {
			return fmt.Sprintf("%s was not resolved to %s in this sandbox", clip(d.Name), f.addr.WithZone(""))
		}
		return to + " is not an address of an allowed name, and no rule names it"
	case DenyName:
		return fmt.Sprintf("the connection to %s says %s, which is not allowed there", clip(d.Name), clip(f.claim))
	case DenyNoName:
		return fmt.Sprintf("the connection to %s says no name, as SNI or Host", clip(d.Name))
	case DenyHidden:
		return fmt.Sprintf("the connection to %s hides its name in an encrypted client hello", clip(d.Name))
	case DenyProtocol:
		return who + " is spoken to in something that is neither TLS nor HTTP"
	case DenyMethod:
		return fmt.Sprintf("%s is not a method that is allowed for %s", clip(f.Method), who)
	case DenyPath:
		if !f.plain {
			return fmt.Sprintf("the path of the request to %s is not in plain form, so no rule about paths allows it", who)
		}
		return fmt.Sprintf("the path %s is not allowed for %s", clip(f.Path), who)
	case DenyUnseen:
		if rule != "" {
			return fmt.Sprintf("%s may be what %s denies, and its requests cannot be seen", who, rule)
		}
		return fmt.Sprintf("only some requests to %s are allowed, and these cannot be seen", who)
	case DenyUDP:
		return who + " is asked over UDP, which no rule allows"
	}
	if text, ok := spentText[d.Reason]; ok {
		return rule + " " + text
	}
	if e == nil {
		return "there is no link"
	}
	return "nothing allows " + who
}

var spentText = map[string]string{
	DenyRate:    "allows no more for now: its rate is used up",
	DenyBytes:   "is used up: its bytes have gone through",
	DenyBusy:    "has as many connections open as it allows",
	DenyUsed:    "is used up",
	DenyExpired: "has expired",
}

func (f *flow) explainAddress(d Decision, to string) string {
	what := "one of this host's own addresses"
	if f.class != nil {
		what = f.class.what
	}
	if d.Name != "" {
		return fmt.Sprintf("%s is at %s, which is %s; only a rule for that address reaches it", clip(d.Name), f.addr.WithZone(""), what)
	}
	return fmt.Sprintf("%s is %s; only a rule for that address reaches it", to, what)
}

// who is what a flow was for: the name that counts, or the address.
func (f *flow) who(d Decision) string {
	switch {
	case d.Name != "":
		return withPort(clip(d.Name), f.port)
	case f.claim != "":
		return withPort(clip(f.claim), f.port)
	case len(f.handed) > 0:
		return withPort(clip(f.handed[0]), f.port)
	}
	return f.where()
}

// where is the address as a target of a rule: alone, never its range.
func (f *flow) where() string {
	r := EgressRule{Prefix: netip.PrefixFrom(f.addr.WithZone(""), f.addr.BitLen()), Port: f.port}
	return r.printTarget()
}

// fix is the rule that would let a flow through: "" where none would, or where
// it would have to go before another one.
func (f *flow) fix(d Decision) string {
	name := d.Name
	for _, n := range append([]string{f.claim}, f.handed...) {
		if name == "" && fixable(n) {
			name = n
		}
	}
	target := f.where()
	if fixable(name) {
		target = withPort(name, f.port)
	}
	switch d.Reason {
	case DenyNoRule, DenyUnresolved, DenyName:
		if d.Reason == DenyName {
			if !fixable(f.claim) {
				return (&options{Allow: target, SNI: "any"}).text()
			}
			target = withPort(f.claim, f.port)
		} else if d.Reason == DenyUnresolved && d.Name != "" {
			return "" // it is allowed already; it must be resolved
		}
		if f.Seen == SeenRaw && target != f.where() {
			return (&options{Allow: target, SNI: "any"}).text()
		}
		return target
	case DenyUnseen:
		if d.Rule >= 0 {
			return ""
		}
		return target
	case DenyAddress:
		if f.addr.Zone() != "" {
			return ""
		}
		return f.where()
	case DenyNoName, DenyHidden, DenyProtocol:
		return (&options{Allow: target, SNI: "any"}).text()
	case DenyUDP:
		o := options{Allow: target, QUIC: true}
		if target != f.where() {
			o.SNI = "any"
		}
		return o.text()
	case DenyMethod:
		if !token(f.Method) || strings.ToUpper(f.Method) != f.Method {
			return ""
		}
		return (&options{Allow: target, Methods: []string{f.Method}}).text()
	case DenyPath:
		o := options{Allow: target}
		if token(f.Method) && strings.ToUpper(f.Method) == f.Method {
			o.Methods = []string{f.Method}
		}
		if f.plain && len(f.Path) <= maxPathBytes {
			o.Paths = []string{f.Path}
		}
		return o.text()
	}
	return ""
}

// fixable says whether a name can stand in a rule.
func fixable(name string) bool {
	var r EgressRule
	return name != "" && !strings.Contains(name, "*") && !inside(name) && r.target(name) == nil && r.Host == name
}

// denyName fills in what the denial of a name says. Nobody knows
// yet on which port it is wanted, so the rule has none.
func denyName(name string, e *Egress, d Decision) Decision {
	f := &flow{claim: name, handed: []string{name}}
	switch {
	case d.Reason == DenyNoRule && e == nil:
		d.Text = "there is no link"
	case d.Reason == DenyNoRule && !ValidName(name):
		d.Text = fmt.Sprintf("%s is not the name of a host", clip(name))
	case d.Reason == DenyNoRule:
		d.Text = "nothing allows " + clip(name)
		if fixable(name) {
			d.Fix = name
		}
	case d.Reason != DenyAddress:
		d.Text = f.explain(e, d)
	}
	return d
}

func withPort(host string, port uint16) string {
	if port == 0 {
		return host
	}
	return host + ":" + strconv.Itoa(int(port))
}

// clip makes what a guest wrote fit to show.
func clip(s string) string {
	q, _ := json.Marshal(oneLine(s))
	if out := string(q[1 : len(q)-1]); len(out) <= 120 {
		return out
	}
	return oneLine(s)[:100] + "..."
}
