package policy

import (
	"encoding/json"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/bermhq/berm/api"
)

// again reads a rule from its text.
func again(t *testing.T, r EgressRule) EgressRule {
	t.Helper()
	doc := r.Text
	if !strings.HasPrefix(doc, "{") {
		b, err := json.Marshal(map[string]string{"allow": doc})
		if err != nil {
			t.Fatal(err)
		}
		doc = string(b)
	}
	e, err := ParseEgress(json.RawMessage("["+doc+"]"), noon, testPresets)
	if err != nil || len(e.Rules) != 1 {
		t.Fatalf("text %s of %+v: %v", r.Text, r, err)
	}
	return e.Rules[0]
}

func FuzzParseEgress(f *testing.F) {
	for _, tt := range connects {
		if strings.HasPrefix(tt.rules, "[") {
			f.Add(tt.rules)
		}
	}
	for _, s := range []string{
		`[]`, `null`, `{}`, `[{"allow":"a.test:443"},{"deny":"*.b.test"}]`, `[{"allow":"preset:pip","uses":3}]`,
		`[{"allow":"[2001:db8::/32]:443","quic":true,"rate":"1/s","bytes":"1.5g","connections":2,"uses":1,"expires":"10m"}]`,
		`[{"allow":"::ffff:1.2.3.4"}]`, `[{"allow":"0x7f.1"}]`, `[{"allow":"a\u2028.test"}]`, `[{"allow":"a","allow":"b"}]`,
		`[{"deny":"A.TEST.","methods":["get"],"paths":["/a&b"],"expires":"2031-01-01T00:00:00+02:00"}]`, "[{\"allow\":\"\xff\"}]",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, doc string) {
		e, err := ParseEgress(json.RawMessage(doc), noon, testPresets)
		if err != nil {
			var a *api.Error
			if !errors.As(err, &a) || a.Code != api.CodePolicyInvalid || a.Hint == "" || strings.ContainsAny(a.Message, "\n\r\x1b") {
				t.Fatalf("error %#v", err)
			}
			return
		}
		if e == nil {
			return
		}
		for _, r := range e.Rules {
			if r.Preset != "" {
				continue // its text names the host that it stands for, too
			}
			if got := again(t, r); !same(got, r) {
				t.Fatalf("%s: %+v became %+v", r.Text, r, got)
			}
		}
		if !e.Covers(e).Allow {
			t.Fatalf("%s does not cover itself", doc)
		}
	})
}

// FuzzConnect: whatever the rules and the flow, an address that is not public is
// reached only where a CIDR rule lies in its range or a preset opened it.
func FuzzConnect(f *testing.F) {
	for _, tt := range connects {
		fl := flowOf(f, tt.flow)
		b, _ := fl.To.Addr().MarshalBinary()
		rules := []string{}
		for _, r := range rulesOf(f, tt.rules).Rules {
			if !strings.HasPrefix(r.Text, "preset:") {
				rules = append(rules, r.Text)
			}
		}
		f.Add(strings.Join(rules, " "), b, fl.To.Port(), strings.Join(fl.Names, " "), string(fl.Seen), fl.Claim, fl.Method, fl.Path, fl.Own, fl.Hidden)
	}
	f.Fuzz(func(t *testing.T, rules string, addr []byte, port uint16, names, seen, claim, method, path string, own, hidden bool) {
		e := &Egress{}
		for _, text := range strings.Fields(rules) {
			if !strings.HasPrefix(text, "{") {
				b, _ := json.Marshal(map[string]string{"allow": text})
				text = string(b)
			}
			if one, err := ParseEgress(json.RawMessage("["+text+"]"), noon, testPresets); err == nil {
				e.Rules = append(e.Rules, one.Rules...)
			}
		}
		var a netip.Addr
		if a.UnmarshalBinary(addr) != nil {
			return
		}
		flow := Flow{
			Now: noon, To: netip.AddrPortFrom(a, port), Names: strings.Fields(names), Own: own,
			Seen: Seen(seen), Claim: claim, Hidden: hidden, Method: method, Path: path,
		}
		d := e.Connect(flow)
		if accepted := e.Accept(flow); d.Allow && !accepted.Allow {
			t.Fatalf("allowed and not accepted: %+v, %+v", d, accepted)
		}
		if !d.Allow {
			if d.Reason == "" || d.Text == "" || strings.ContainsAny(d.Text+d.Fix, "\n\r\x1b") {
				t.Fatalf("denial %+v", d)
			}
			if d.Fix != "" {
				withFix(t, e, d.Fix)
			}
			return
		}
		r := e.Rules[d.Rule]
		if !r.Allow || r.Port != 0 && r.Port != port {
			t.Fatalf("allowed by %+v", r)
		}
		if a = a.Unmap(); !own && !refusedByHand(a) || r.Preset != "" {
			return
		}
		for _, c := range e.Rules {
			if !c.Allow || !c.Prefix.IsValid() || !c.Prefix.Contains(a) || c.Port != 0 && c.Port != port || own && c.Prefix.Bits() < 8 {
				continue
			}
			if !refusedByHand(a) || refusedByHand(c.Prefix.Addr()) && refusedByHand(lastOf(c.Prefix)) {
				return
			}
		}
		t.Fatalf("%v is reached by %+v of %+v", flow.To, r, e.Rules)
	})
}

// refusedByHand knows what is not public by other means than the table.
func refusedByHand(a netip.Addr) bool {
	if a.IsLoopback() || a.IsPrivate() || a.IsLinkLocalUnicast() || a.IsMulticast() || a.IsUnspecified() || a.Zone() != "" {
		return true
	}
	s := a.StringExpanded()
	if a.Is4() {
		v := a.As4()
		return v[0] == 0 || v[0] >= 240 || v[0] == 100 && v[1]&0xc0 == 64 || s == "168.63.129.16"
	}
	for _, start := range []string{"2002:", "2001:0000:", "0064:ff9b:0000:0000:0000:0000:", "0064:ff9b:0001:", "0000:0000:0000:0000:0000:0000:", "5f00:", "0100:0000:0000:0000:"} {
		if strings.HasPrefix(s, start) {
			return true
		}
	}
	return a.As16()[0] == 0xfe && a.As16()[1] >= 0x80
}

// lastOf is the last address of a range.
func lastOf(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}
