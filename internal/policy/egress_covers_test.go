package policy

import (
	"fmt"
	"math/rand"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
)

func TestCovers(t *testing.T) {
	for _, tt := range []struct {
		outer, inner string
		want         bool
	}{
		{"", "", true},
		{"a.test", "", true},
		{"", "a.test", false},
		{"", "!a.test", true},
		{"a.test", "a.test", true},
		{"a.test", "a.test:443", true},
		{"a.test:443", "a.test", false},
		{"a.test:443", "a.test:80", false},
		{"a.test", "b.test", false},
		{"a.test b.test", "b.test", true},
		{"*.test", "a.test", true},
		{"*.test", "*.a.test", true},
		{"*.a.test", "*.test", false},
		{"*.a.test", "a.test", false},
		{"*.a.test", "xa.test", false},
		{"a.test", "*.a.test", false},
		{"a.test 0.0.0.0/0 ::/0", "b.test", false},

		{"192.0.2.0/24", "192.0.2.1", true},
		{"192.0.2.0/24", "192.0.2.0/23", false},
		{"192.0.2.0/24:80", "192.0.2.1", false},
		{"192.0.2.0/24", "2001:db8::1", false},
		{"0.0.0.0/0", "0.0.0.0/0", true},
		{"0.0.0.0/0", "192.0.0.0/4", true},
		{"0.0.0.0/0", "128.0.0.0/1", true},
		{"0.0.0.0/0", "10.0.0.0/8", false},
		{"0.0.0.0/0", "192.0.2.1", false}, // it may be the host's own
		{"192.0.0.0/8", "192.0.2.1", true},
		{"10.0.0.0/8", "10.1.0.0/16", true},
		{"10.0.0.0/8", "10.1.0.0/16:80", true},
		{"10.0.0.0/7", "10.1.0.0/16", false},
		{"168.63.129.0/24", "168.63.129.16", false}, // the range does not name it
		{"168.63.129.0/24", "168.63.129.17", true},
		{"a.test:443", "a.test:443 10.0.0.0/8", false},
		{"a.test:443 10.0.0.0/8", "a.test:443 10.0.0.1", true},

		{"!a.test *.test", "*.test", false},
		{"!a.test *.test", "b.test", true},
		{"!a.test *.test", "a.test", false},
		{"!a.test *.test", "!a.test *.test", true},
		{"!a.test *.test", "!*.test *.test", true},
		{"!a.test *.test", "!b.test !a.test *.test:443", true},
		{"!a.test *.test", "!a.test:443 *.test:443", true},
		{"!a.test *.test", "!a.test:443 *.test", false},
		{"!a.test *.test", "*.test !a.test", false},
		{"*.test !a.test", "*.test", true},
		{"!192.0.2.0/24 a.test", "a.test", false},
		{"!10.0.0.0/8 a.test", "a.test", true},
		{"!192.0.2.0/24 a.test", "!192.0.2.0/25 a.test", false},
		{"!192.0.2.0/24 a.test", "!192.0.0.0/16 a.test", true},
		{"!a.test 192.0.2.0/24", "192.0.2.1", false},
		{"!a.test 192.0.2.0/24", "!a.test 192.0.2.1", true},
		{"!a.test 10.0.0.0/8 b.test", "b.test !a.test 10.0.0.1", false},
		{`[{"deny":"a.test","expires":"1m"},{"allow":"*.test"}]`, "*.test", false},
		{"!a.test *.test", `[{"deny":"a.test","expires":"1m"},{"allow":"*.test"}]`, false},
		{`[{"deny":"a.test","methods":["PUT"]},{"allow":"*.test"}]`, `[{"allow":"a.test","methods":["GET"]}]`, true},
		{`[{"deny":"a.test","methods":["PUT"]},{"allow":"*.test"}]`, `[{"allow":"a.test","methods":["PUT"]}]`, false},
		{`[{"deny":"a.test","methods":["PUT"]},{"allow":"*.test"}]`, "a.test", false},
		{`[{"deny":"a.test","paths":["/x"]},{"allow":"*.test"}]`, `[{"allow":"a.test","paths":["/y"]}]`, true},
		{`[{"deny":"a.test","paths":["/x"]},{"allow":"*.test"}]`, `[{"allow":"a.test","paths":["/X/y"]}]`, false},
		{`[{"deny":"a.test","paths":["/x/y"]},{"allow":"*.test"}]`, `[{"allow":"a.test","paths":["/x"]}]`, false},

		{readOnly, "a.test:80", false},
		{readOnly, readOnly, true},
		{readOnly, `[{"allow":"a.test:80","methods":["GET"],"paths":["/v1/x"]}]`, true},
		{readOnly, `[{"allow":"a.test:80","methods":["GET","PUT"],"paths":["/v1/x"]}]`, false},
		{readOnly, `[{"allow":"a.test:80","methods":["GET"],"paths":["/v10"]}]`, false},
		{readOnly, `[{"allow":"a.test:80","methods":["GET"],"paths":["/pub"]}]`, false},
		{readOnly, `[{"allow":"a.test:80","methods":["GET"]}]`, false},
		{"a.test:80", readOnly, true},
		{"a.test:22", anySNI, false},
		{anySNI, "a.test:22", true},
		{`[{"allow":"a.test","sni":"any"}]`, `[{"allow":"a.test","sni":"any","quic":true}]`, false},
		{`[{"allow":"192.0.2.1","quic":true}]`, "192.0.2.1", true},

		{`[{"allow":"a.test","uses":5}]`, "a.test", false},
		{`[{"allow":"a.test","uses":5}]`, `[{"allow":"a.test","uses":6}]`, false},
		{`[{"allow":"a.test","uses":5}]`, `[{"allow":"a.test","uses":4}]`, true},
		{`[{"allow":"a.test","uses":5}]`, `[{"allow":"a.test:80","uses":2},{"allow":"a.test:443","uses":3}]`, true},
		{`[{"allow":"a.test","uses":5}]`, `[{"allow":"a.test:80","uses":3},{"allow":"a.test:443","uses":3}]`, false},
		{`[{"allow":"a.test","bytes":100}]`, `[{"allow":"a.test:80","bytes":60},{"allow":"a.test:443","bytes":60}]`, false},
		{`[{"allow":"a.test","connections":5}]`, `[{"allow":"a.test:80","connections":3},{"allow":"a.test:443","connections":3}]`, false},
		{`[{"allow":"a.test","rate":"60/m"}]`, `[{"allow":"a.test","rate":"1/s"}]`, true},
		{`[{"allow":"a.test","rate":"1/s"}]`, `[{"allow":"a.test","rate":"60/m"}]`, false},
		{`[{"allow":"a.test","rate":"1/s"}]`, `[{"allow":"a.test:80","rate":"1/s"},{"allow":"a.test:443","rate":"1/s"}]`, false},
		{`[{"allow":"a.test","rate":"1/s"}]`, "a.test", false},
		{`[{"allow":"a.test","bytes":"1m"}]`, "a.test", false},
		{`[{"allow":"a.test","connections":1}]`, "a.test", false},
		{`[{"allow":"a.test","expires":"1h"}]`, "a.test", false},
		{`[{"allow":"a.test","expires":"1h"}]`, `[{"allow":"a.test","expires":"2h"}]`, false},
		{`[{"allow":"a.test","expires":"1h"}]`, `[{"allow":"a.test","expires":"30m"}]`, true},
		{`[{"allow":"a.test","uses":5},{"allow":"*.test"}]`, "*.test", false},
		{`[{"allow":"a.test","uses":5},{"allow":"*.test"}]`, "b.test", true},
		{`[{"allow":"a.test","uses":5},{"allow":"*.test"}]`, `[{"allow":"*.test","uses":5}]`, true},
		{`[{"allow":"a.test","uses":5},{"allow":"*.test"}]`, `[{"deny":"a.test"},{"allow":"*.test"}]`, true},
		{`[{"allow":"a.test","expires":"1m"},{"allow":"*.test"}]`, `[{"deny":"a.test"},{"allow":"*.test"}]`, true},
		{`[{"allow":"a.test","expires":"1m"},{"allow":"*.test"}]`, `[{"deny":"a.test","expires":"2m"},{"allow":"*.test"}]`, false},
		{`[{"allow":"a.test"},{"allow":"10.0.0.1","uses":2}]`, `[{"allow":"a.test"},{"allow":"10.0.0.1","uses":2},{"deny":"b.test"}]`, false}, // a.test at 10.0.0.1 is not counted

		{"preset:pip", "preset:pip", true},
		{"preset:pip a.test", "preset:pip", true},
		{"preset:pip a.test", "index.test:443", true},
		{"index.test:443 files.test:443", "preset:pip", false},
		{"index.test:443 preset:pip", "files.test:443 preset:pip", true},
		{"*.test", "preset:pip", false},
		{"10.9.8.7:3141 [fd00::7]:3141", "preset:local", true},
	} {
		outer, inner := rulesOf(t, tt.outer), rulesOf(t, tt.inner)
		d := outer.Covers(inner)
		if d.Allow != tt.want || d.Allow != (d.Text == "") {
			t.Errorf("%s\ncovers %s\n got %+v\nwant %v", tt.outer, tt.inner, d, tt.want)
		}
		v := EgressCeiling(inner, outer)
		if v.Allow != tt.want || !v.Allow && (v.Code != api.CodePolicyCeiling || v.Fix == "" || !strings.Contains(v.Reason, d.Text)) {
			t.Errorf("%s\nceiling of %s\n got %+v", tt.outer, tt.inner, v)
		}
	}
	var none *Egress
	if a := rulesOf(t, "a.test"); !a.Covers(nil).Allow || none.Covers(a).Allow || !none.Covers(nil).Allow {
		t.Error("a document that is no link")
	}
	if !EgressCeiling(rulesOf(t, "a.test"), nil).Allow || !EgressCeiling(nil, rulesOf(t, "a.test")).Allow {
		t.Error("no ceiling says something, or no link is too much")
	}
}

// dice makes rules and flows of a small world, in which they meet often.
type dice struct{ *rand.Rand }

func pick[T any](d dice, of ...T) T { return of[d.Intn(len(of))] }

func (d dice) some(of ...string) []string {
	var out []string
	for _, s := range of {
		if d.Intn(2) == 0 {
			out = append(out, s)
		}
	}
	return out
}

func (d dice) time() time.Time {
	return pick(d, time.Time{}, time.Time{}, time.Time{}, noon.Add(-time.Minute), noon.Add(time.Minute), noon.Add(2*time.Minute))
}

var worldNames = []string{"test", "a.test", "b.test", "x.a.test"}

func (d dice) rule() EgressRule {
	r := EgressRule{Allow: d.Intn(3) > 0, Port: pick[uint16](d, 0, 0, 80, 443), Expires: d.time()}
	switch d.Intn(3) {
	case 0:
		r.Host = pick(d, worldNames...)
	case 1:
		r.Suffix = pick(d, "test", "a.test")
	default:
		r.Prefix = netip.MustParsePrefix(pick(d, "0.0.0.0/0", "0.0.0.0/0", "192.0.0.0/8", "192.0.2.0/24", "192.0.2.1/32", "10.0.0.0/8", "10.0.0.1/32", "8.0.0.0/5", "169.254.0.0/16", "168.63.129.0/24", "168.63.129.16/32"))
	}
	if d.Intn(4) == 0 {
		r.Methods = d.some("GET", "PUT")
	}
	if d.Intn(4) == 0 {
		r.Paths = d.some("/x", "/x/y", "/z")
	}
	if r.Allow {
		r.AnySNI = d.Intn(3) == 0
		r.QUIC = d.Intn(4) == 0 && (r.AnySNI || r.Prefix.IsValid()) && !r.requests()
		if d.Intn(6) == 0 && r.Host != "" && r.Port != 0 {
			r.Preset = "p"
		}
	}
	r.Text = fmt.Sprintf("%+v", r)
	return r
}

func (d dice) rules() *Egress {
	e := &Egress{}
	for range 1 + d.Intn(4) {
		e.Rules = append(e.Rules, d.rule())
	}
	return e
}

// near returns a document that is made of e, as one that is narrowed is.
func (d dice) near(e *Egress) *Egress {
	n := &Egress{Rules: slices.Clone(e.Rules)}
	for range 1 + d.Intn(3) {
		i := d.Intn(len(n.Rules))
		r := &n.Rules[i]
		switch d.Intn(10) {
		case 0:
			n.Rules = slices.Insert(n.Rules, i, d.rule())
		case 1:
			if len(n.Rules) > 1 {
				n.Rules = slices.Delete(n.Rules, i, i+1)
			}
		case 2:
			r.Port = pick[uint16](d, 0, 80, 443)
		case 3:
			r.Expires = d.time()
		case 4:
			r.Methods, r.QUIC = d.some("GET", "PUT"), false
		case 5:
			r.Paths, r.QUIC = d.some("/x", "/x/y", "/z"), false
		case 6:
			r.AnySNI = r.Allow && !r.AnySNI
			r.QUIC = r.QUIC && (r.AnySNI || r.Prefix.IsValid())
		case 7:
			j := d.Intn(len(n.Rules))
			n.Rules[i], n.Rules[j] = n.Rules[j], n.Rules[i]
		case 8:
			r.Preset = ""
		case 9:
			o := d.rule()
			r.Host, r.Suffix, r.Prefix, r.Preset, r.QUIC = o.Host, o.Suffix, o.Prefix, "", false
		}
	}
	return n
}

func (d dice) flow() Flow {
	f := Flow{
		Now: pick(d, noon.Add(-time.Hour), noon, noon, noon.Add(90*time.Second), noon.Add(time.Hour)),
		To: netip.AddrPortFrom(netip.MustParseAddr(pick(d, "192.0.2.1", "192.0.2.2", "198.51.100.1", "10.0.0.1", "10.0.0.2", "169.254.169.254", "127.0.0.1", "168.63.129.16", "::ffff:10.0.0.1")),
			pick[uint16](d, 80, 443, 443)),
		Names:  d.some(worldNames...),
		Own:    d.Intn(6) == 0,
		Seen:   pick(d, SeenTLS, SeenTLS, SeenHTTP, SeenHTTP, SeenRaw, SeenUDP, SeenNothing),
		Claim:  pick(d, append([]string{"", "c.test"}, worldNames...)...),
		Hidden: d.Intn(8) == 0,
	}
	if f.Seen == SeenHTTP {
		f.Method, f.Path = pick(d, "GET", "PUT", "get"), pick(d, "/", "/x", "/X", "/x/y", "/x/y/w", "/z", "/x/../z")
	}
	return f
}

func TestCoversHolds(t *testing.T) {
	d := dice{rand.New(rand.NewSource(7))}
	rounds, flows := 4000, 40
	if testing.Short() {
		rounds = 1000
	}
	covered, passed, refused := 0, 0, 0
	for range rounds {
		outer := d.rules()
		inner := d.near(outer)
		if d.Intn(4) == 0 {
			inner = d.rules()
		}
		if !outer.Covers(inner).Allow {
			refused++
			continue
		}
		covered++
		for range flows {
			f := d.flow()
			if got := inner.Connect(f); got.Allow {
				passed++
				if o := outer.Connect(f); !o.Allow {
					t.Fatalf("\n%s\ncovers\n%s\nbut not %+v:\n%+v\n%+v", printed(outer), printed(inner), f, got, o)
				}
			}
			if got := inner.Accept(f); got.Allow && got.Reason == "" && f.Seen != SeenUDP && !outer.Accept(f).Allow {
				t.Fatalf("\n%s\ncovers\n%s\nbut does not accept %+v:\n%+v", printed(outer), printed(inner), f, outer.Accept(f))
			}
			name := pick(d, worldNames...)
			if got := inner.Name(name, f.Now, nil); got.Allow && !outer.Name(name, f.Now, nil).Allow {
				t.Fatalf("\n%s\ncovers\n%s\nbut does not resolve %s at %v:\n%+v", printed(outer), printed(inner), name, f.Now, outer.Name(name, f.Now, nil))
			}
		}
	}
	t.Logf("%d documents covered, %d not, %d flows", covered, refused, passed)
	if covered < rounds/10 || passed < rounds/4 || refused < rounds/10 {
		t.Errorf("%d covered, %d not, %d flows: this proves little", covered, refused, passed)
	}
}

// TestAcceptHolds: what would be allowed once it is seen is accepted, and what
// is accepted unseen is allowed unseen.
func TestAcceptHolds(t *testing.T) {
	d := dice{rand.New(rand.NewSource(11))}
	for range 15000 {
		e, f := d.rules(), d.flow()
		a := e.Accept(f)
		if c := e.Connect(f); c.Allow && !a.Allow {
			t.Fatalf("%s\nallows and does not accept %+v:\n%+v\n%+v", printed(e), f, c, a)
		}
		if f.Seen == SeenUDP || !a.Allow || a.Inspect {
			continue
		}
		f.Seen, f.Claim, f.Hidden = SeenNothing, "", false
		if c := e.Connect(f); !c.Allow || c.Rule != a.Rule {
			t.Fatalf("%s\naccepts without a look and does not allow %+v:\n%+v\n%+v", printed(e), f, a, c)
		}
	}
}

func printed(e *Egress) string {
	var b strings.Builder
	for _, r := range e.Rules {
		fmt.Fprintf(&b, "  %+v\n", r)
	}
	return b.String()
}
