package policy

import (
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
)

var noon = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

// testPresets has one preset with a name and one with addresses.
func testPresets(name string) (Preset, error) {
	switch name {
	case "pip":
		return Preset{Hosts: []string{"index.test:443", "files.test:443"}}, nil
	case "local":
		return Preset{Hosts: []string{"10.9.8.7:3141", "[fd00::7]:3141"}}, nil
	case "found":
		return Preset{Hosts: []string{"index.test:443"}, Found: []string{"index.test:443", "files.test:443", "10.9.8.7:80", "203.0.113.7:80", "*.test:443", "x"}}, nil
	case "empty":
		return Preset{}, nil
	case "odd":
		return Preset{Hosts: []string{"*.test:443"}}, nil
	case "hint":
		return Preset{}, &api.Error{Message: "pip is not there", Hint: "apt install pip"}
	}
	return Preset{}, errors.New("there is no such preset")
}

func parse(t testing.TB, doc string) *Egress {
	t.Helper()
	e, err := ParseEgress(json.RawMessage(doc), noon, testPresets)
	if err != nil {
		t.Fatalf("%s: %v", doc, err)
	}
	return e
}

// TestFound: what a registry pointed to is reached by its name and at a public
// address, while the registry itself may be private.
func TestFound(t *testing.T) {
	e := parse(t, `[{"allow":"preset:found"}]`)
	if len(e.Rules) != 2 || e.Rules[0].Host != "index.test" || e.Rules[1].Host != "files.test" {
		t.Fatalf("%+v", e.Rules)
	}
	private, public := netip.MustParseAddr("10.9.8.7"), netip.MustParseAddr("203.0.113.7")
	for _, tt := range []struct {
		name string
		at   netip.Addr
		own  bool
		want bool
	}{
		{"index.test", private, false, true}, {"index.test", public, true, true},
		{"files.test", private, false, false}, {"files.test", public, true, false}, {"files.test", public, false, true},
	} {
		f := Flow{Now: noon, To: netip.AddrPortFrom(tt.at, 443), Own: tt.own, Names: []string{tt.name}, Seen: SeenTLS, Claim: tt.name}
		if a, c := e.Address(tt.name, tt.at, tt.own, noon), e.Connect(f); a.Allow != tt.want || c.Allow != tt.want {
			t.Errorf("%+v: address %+v, connect %+v", tt, a, c)
		}
	}
}

func TestParseEgressForms(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want EgressRule
		text string
	}{
		{`{"allow":"a.test"}`, EgressRule{Allow: true, Host: "a.test"}, "a.test"},
		{`{"allow":"2001:db8::1"}`, EgressRule{Allow: true, Prefix: netip.MustParsePrefix("2001:db8::1/128")}, "2001:db8::1"},
		{`{"allow":"2001:db8::443"}`, EgressRule{Allow: true, Prefix: netip.MustParsePrefix("2001:db8::443/128")}, "2001:db8::443"},
		{`{"allow":"2001:db8::1:7"}`, EgressRule{Allow: true, Prefix: netip.MustParsePrefix("2001:db8::1:7/128")}, "2001:db8::1:7"},
		{`{"allow":"2001:db8:0:0:0:0:1:443"}`, EgressRule{Allow: true, Prefix: netip.MustParsePrefix("2001:db8::1:443/128")}, "[2001:db8::1:443]"},
		{`{"allow":"[2001:db8::1:443]"}`, EgressRule{Allow: true, Prefix: netip.MustParsePrefix("2001:db8::1:443/128")}, "[2001:db8::1:443]"},
		{`{"deny":"localhost"}`, EgressRule{Host: "localhost"}, `{"deny":"localhost"}`},
		{`{"allow":"A.Test.:443"}`, EgressRule{Allow: true, Host: "a.test", Port: 443}, "a.test:443"},
		{`{"allow":"*.A.test"}`, EgressRule{Allow: true, Suffix: "a.test"}, "*.a.test"},
		{`{"allow":"*.com:80"}`, EgressRule{Allow: true, Suffix: "com", Port: 80}, "*.com:80"},
		{`{"allow":"_x.a_b.test"}`, EgressRule{Allow: true, Host: "_x.a_b.test"}, "_x.a_b.test"},
		{`{"allow":"192.0.2.7"}`, EgressRule{Allow: true, Prefix: netip.MustParsePrefix("192.0.2.7/32")}, "192.0.2.7"},
		{`{"allow":"192.0.2.0/24:80"}`, EgressRule{Allow: true, Prefix: netip.MustParsePrefix("192.0.2.0/24"), Port: 80}, "192.0.2.0/24:80"},
		{`{"allow":"0.0.0.0/0"}`, EgressRule{Allow: true, Prefix: netip.MustParsePrefix("0.0.0.0/0")}, "0.0.0.0/0"},
		{`{"allow":"2001:db8::7"}`, EgressRule{Allow: true, Prefix: netip.MustParsePrefix("2001:db8::7/128")}, "2001:db8::7"},
		{`{"allow":"[2001:db8::7]"}`, EgressRule{Allow: true, Prefix: netip.MustParsePrefix("2001:db8::7/128")}, "2001:db8::7"},
		{`{"allow":"[2001:DB8::7]:53"}`, EgressRule{Allow: true, Prefix: netip.MustParsePrefix("2001:db8::7/128"), Port: 53}, "[2001:db8::7]:53"},
		{`{"allow":"2001:db8::/32"}`, EgressRule{Allow: true, Prefix: netip.MustParsePrefix("2001:db8::/32")}, "2001:db8::/32"},
		{`{"allow":"[2001:db8::/32]:53"}`, EgressRule{Allow: true, Prefix: netip.MustParsePrefix("2001:db8::/32"), Port: 53}, "[2001:db8::/32]:53"},
		{`{"deny":"evil.test"}`, EgressRule{Host: "evil.test"}, `{"deny":"evil.test"}`},
		{`{"deny":"a.test:80","paths":["/x"],"methods":["put"]}`, EgressRule{Host: "a.test", Port: 80, Methods: []string{"PUT"}, Paths: []string{"/x"}}, `{"deny":"a.test:80","methods":["PUT"],"paths":["/x"]}`},
		{`{"sni":"any","allow":"a.test:22"}`, EgressRule{Allow: true, Host: "a.test", Port: 22, AnySNI: true}, `{"allow":"a.test:22","sni":"any"}`},
		{`{"allow":"a.test:443","sni":"any","quic":true}`, EgressRule{Allow: true, Host: "a.test", Port: 443, AnySNI: true, QUIC: true}, `{"allow":"a.test:443","sni":"any","quic":true}`},
		{`{"allow":"192.0.2.1:443","quic":true}`, EgressRule{Allow: true, Prefix: netip.MustParsePrefix("192.0.2.1/32"), Port: 443, QUIC: true}, `{"allow":"192.0.2.1:443","quic":true}`},
		{`{"allow":"a.test","quic":false}`, EgressRule{Allow: true, Host: "a.test"}, "a.test"},
		{`{"allow":"a.test","rate":"10/m","bytes":"10m","connections":3,"uses":1}`, EgressRule{Allow: true, Host: "a.test", Rate: Rate{10, time.Minute}, Bytes: 10 << 20, Connections: 3, Uses: 1}, `{"allow":"a.test","rate":"10/m","bytes":10485760,"connections":3,"uses":1}`},
		{`{"allow":"a.test","expires":"10m"}`, EgressRule{Allow: true, Host: "a.test", Expires: noon.Add(10 * time.Minute)}, `{"allow":"a.test","expires":"10m"}`},
		{`{"allow":"a.test","expires":"2030-01-01T14:00:00+01:00"}`, EgressRule{Allow: true, Host: "a.test", Expires: noon.Add(time.Hour)}, `{"allow":"a.test","expires":"2030-01-01T14:00:00+01:00"}`},
		{`{"allow":"preset:pip"}`, EgressRule{Allow: true, Host: "index.test", Port: 443, Preset: "pip"}, "preset:pip index.test:443"},
		{`{"allow":"preset:local"}`, EgressRule{Allow: true, Prefix: netip.MustParsePrefix("10.9.8.7/32"), Port: 3141, Preset: "local"}, "preset:local 10.9.8.7:3141"},
	} {
		got := parse(t, "["+tt.in+"]").Rules[0]
		tt.want.Text = tt.text
		if !same(got, tt.want) {
			t.Errorf("%s:\n got %+v\nwant %+v", tt.in, got, tt.want)
		}
	}
	if e := parse(t, `[{"allow":"preset:pip"},{"deny":"a.test"}]`); len(e.Rules) != 3 || e.Rules[1].Host != "files.test" || e.Rules[2].Allow {
		t.Errorf("a preset in front: %+v", e.Rules)
	}
	if e := parse(t, `[]`); e == nil || len(e.Rules) != 0 {
		t.Errorf("[] = %+v, want a link without rules", e)
	}
	for _, doc := range []string{"", "null", " "} {
		if e := parse(t, doc); e != nil {
			t.Errorf("%q = %+v, want no link", doc, e)
		}
	}
}

// same says whether two rules are the same, with times as instants.
func same(a, b EgressRule) bool {
	if !a.Expires.Equal(b.Expires) {
		return false
	}
	a.Expires, b.Expires = time.Time{}, time.Time{}
	x, errA := json.Marshal(a)
	y, errB := json.Marshal(b)
	return errA == nil && errB == nil && string(x) == string(y)
}

func TestParseEgressErrors(t *testing.T) {
	long := strings.Repeat("a", 64)
	for _, tt := range []struct {
		in, says, hint string
	}{
		{`{}`, "not a JSON array", "array"},
		{`[`, "not a JSON array", "array"},
		{`[] []`, "not a JSON array", "array"},
		{`["a.test:443"]`, `rule 1, "a.test:443": a rule is an object`, `{"allow"`},
		{`[null]`, "a rule is an object", ""},
		{`[{"allow":"a.test"},{}]`, "rule 2, {}: there is neither allow nor deny", `{"allow"`},
		{`[{"allow":"a.test","deny":"b.test"}]`, "allow and deny", "two rules"},
		{`[{"allow":"a.test","allow":"b.test"}]`, `"allow" stands there twice`, "once"},
		{`[{"allow":"a.test","Methods":["GET"]}]`, `"Methods" is not known`, "methods"},
		{`[{"allow":"a.test","port":80}]`, `"port" is not known`, ""},
		{`[{"allow":7}]`, "allow is not a text", ""},
		{`[{"allow":""}]`, "empty", "name:port"},
		{`[{"allow":"*"}]`, "everything", "0.0.0.0/0"},
		{`[{"allow":"*:443"}]`, "everything", "*.example.test"},
		{`[{"allow":"*."}]`, "no name", ""},
		{`[{"allow":"*..test"}]`, "empty label", ""},
		{`[{"allow":"a.*.test"}]`, "star", ""},
		{`[{"allow":"*a.test"}]`, "star", ""},
		{`[{"allow":"*.*.test"}]`, "star", ""},
		{`[{"allow":"https://a.test/x"}]`, "URL", "example.test:443"},
		{`[{"allow":"a.test/x"}]`, "slash", "paths"},
		{`[{"allow":"a.test:0"}]`, "port", ""},
		{`[{"allow":"a.test:65536"}]`, "port", ""},
		{`[{"allow":"a.test:"}]`, "port", ""},
		{`[{"allow":"a.test:+80"}]`, "port", ""},
		{`[{"allow":"a.test:80-90"}]`, "port", "one port"},
		{`[{"allow":"a.test:http"}]`, "port", ""},
		{`[{"allow":"a..test"}]`, "empty label", ""},
		{`[{"allow":".a.test"}]`, "empty label", ""},
		{`[{"allow":"a.test.."}]`, "empty label", ""},
		{`[{"allow":"-a.test"}]`, "a hyphen at the end of a label", "begin and end with"},
		{`[{"deny":"*.a-.test"}]`, "a hyphen at the end of a label", ""},
		{`[{"allow":"b\u00fccher.test"}]`, "ASCII", "punycode"},
		{`[{"allow":"a b.test"}]`, `' '`, "letters"},
		{`[{"allow":"a@b.test"}]`, `'@'`, ""},
		{`[{"allow":"a\u0000.test"}]`, `'\x00'`, ""},
		{`[{"allow":"` + long + `.test"}]`, "label", "63"},
		{`[{"allow":"` + strings.Repeat("a.", 130) + `test"}]`, "longer", ""},
		{`[{"allow":"` + strings.Repeat("a.", 126) + `te"}]`, "too long", "253"},
		{`[{"allow":"0x7f.1"}]`, "number", "address"},
		{`[{"allow":"0x7f000001"}]`, "number", ""},
		{`[{"allow":"0X7F000001"}]`, "number", ""},
		{`[{"allow":"0x"}]`, "number", ""},
		{`[{"allow":"2130706433"}]`, "number", ""},
		{`[{"allow":"0177.0.0.1"}]`, "number", ""},
		{`[{"allow":"127.1:80"}]`, "number", ""},
		{`[{"allow":"256.1.1.1"}]`, "number", ""},
		{`[{"allow":"*.1"}]`, "number", ""},
		{`[{"allow":"1.2.3.4.:80"}]`, "number", ""},
		{`[{"allow":"10.0.0.1/8"}]`, "bits set", "10.0.0.0/8"},
		{`[{"allow":"10.0.0.0/33"}]`, "not an address", ""},
		{`[{"allow":"10.0.0/8"}]`, "not an address", ""},
		{`[{"allow":"::ffff:10.0.0.1"}]`, "IPv4 written as IPv6", "10.0.0.1"},
		{`[{"allow":"::ffff:10.0.0.0/104"}]`, "IPv4 written as IPv6", "10.0.0.0/8"},
		{`[{"allow":"[::ffff:0:0/90]:80"}]`, "", ""},
		{`[{"allow":"fe80::1%eth0"}]`, "interface", "zone"},
		{`[{"allow":"2001:db8::1:443"}]`, "may be an address with a port", "write [2001:db8::1]:443 for the port, or [2001:db8::1:443] for the address"},
		{`[{"deny":"::1:80"}]`, "may be an address with a port", "[::1]:80"},
		{`[{"allow":"localhost"}]`, "the sandbox itself", "an address of this host"},
		{`[{"allow":"LocalHost.:80"}]`, "the sandbox itself", ""},
		{`[{"allow":"*.localhost"}]`, "the sandbox itself", ""},
		{`[{"allow":"fd00::/8:443"}]`, "not a range", "[address/bits]:port"},
		{`[{"allow":"[fd00::]/8"}]`, "bracket", "inside"},
		{`[{"allow":"[fd00::"}]`, "no closing bracket", ""},
		{`[{"allow":"[10.0.0.1]:80"}]`, "brackets", ""},
		{`[{"allow":"[a.test]:80"}]`, "brackets", ""},
		{`[{"allow":"preset:"}]`, "preset", "preset:pip"},
		{`[{"allow":"preset:Pip"}]`, "preset", ""},
		{`[{"allow":"preset:nope"}]`, "no such preset", "name the hosts"},
		{`[{"allow":"preset:hint"}]`, "pip is not there", "apt install pip"},
		{`[{"allow":"preset:empty"}]`, "no hosts", ""},
		{`[{"allow":"preset:odd"}]`, "neither name:port", "presets file"},
		{`[{"deny":"preset:pip"}]`, "cannot be denied", ""},
		{`[{"allow":"preset:pip","quic":true}]`, "quic", "sni"},
		{`[{"allow":"a.test","methods":[]}]`, "methods", "leave it out"},
		{`[{"allow":"a.test","methods":"GET"}]`, "methods", ""},
		{`[{"allow":"a.test","methods":["G T"]}]`, "HTTP method", ""},
		{`[{"allow":"a.test","methods":[null]}]`, "texts", ""},
		{`[{"allow":"a.test","paths":["x"]}]`, "plain path", "begin with /"},
		{`[{"allow":"a.test","paths":["/x/../y"]}]`, "plain path", ""},
		{`[{"allow":"a.test","paths":["/x%20"]}]`, "plain path", ""},
		{`[{"allow":"a.test","paths":["/x?y"]}]`, "plain path", ""},
		{`[{"allow":"a.test","sni":"none"}]`, "sni", "any"},
		{`[{"allow":"a.test","quic":true}]`, "quic", `"sni": "any"`},
		{`[{"allow":"a.test","quic":1}]`, "quic", ""},
		{`[{"allow":"a.test","sni":"any","quic":true,"methods":["GET"]}]`, "quic", "two rules"},
		{`[{"allow":"a.test","rate":"10"}]`, "rate", "10/s"},
		{`[{"allow":"a.test","rate":"0/s"}]`, "rate", ""},
		{`[{"allow":"a.test","rate":"1/d"}]`, "rate", ""},
		{`[{"allow":"a.test","rate":"+1/s"}]`, "rate", ""},
		{`[{"allow":"a.test","bytes":0}]`, "bytes", "10m"},
		{`[{"allow":"a.test","bytes":1.5}]`, "bytes", ""},
		{`[{"allow":"a.test","bytes":"many"}]`, "bytes", ""},
		{`[{"allow":"a.test","connections":0}]`, "connections", ""},
		{`[{"allow":"a.test","uses":-1}]`, "uses", ""},
		{`[{"allow":"a.test","uses":1e3}]`, "uses", ""},
		{`[{"allow":"a.test","uses":99999999999}]`, "uses", ""},
		{`[{"allow":"a.test","expires":"soon"}]`, "expires", "10m"},
		{`[{"allow":"a.test","expires":"-1m"}]`, "expires", ""},
		{`[{"allow":"a.test","expires":"0s"}]`, "expires", ""},
		{`[{"deny":"a.test","uses":1}]`, "no uses", "allow rule"},
		{`[{"deny":"a.test","sni":"any"}]`, "no sni", ""},
		{`[{"deny":"a.test","quic":false}]`, "no quic", ""},
	} {
		e, err := ParseEgress(json.RawMessage(tt.in), noon, testPresets)
		var a *api.Error
		if err == nil {
			if tt.says != "" {
				t.Errorf("%s = %+v, want an error", tt.in, e)
			}
			continue
		}
		if !errors.As(err, &a) || a.Code != api.CodePolicyInvalid || a.Hint == "" {
			t.Errorf("%s: %#v", tt.in, err)
			continue
		}
		if !strings.Contains(a.Message, tt.says) || !strings.Contains(a.Hint, tt.hint) {
			t.Errorf("%s:\nsays %s\ntry %s\nwant %q and %q", tt.in, a.Message, a.Hint, tt.says, tt.hint)
		}
		if strings.ContainsAny(a.Message, "\n\x1b\x00") {
			t.Errorf("%s: %q is not one line", tt.in, a.Message)
		}
	}
}

func TestParseEgressBounds(t *testing.T) {
	rule := `{"allow":"a.test"},`
	if _, err := ParseEgress(json.RawMessage("["+strings.Repeat(rule, MaxEgressRules-1)+`{"allow":"b.test"}]`), noon, nil); err != nil {
		t.Error(err)
	}
	for _, doc := range []string{
		"[" + strings.Repeat(rule, MaxEgressRules) + `{"allow":"b.test"}]`,
		"[" + strings.Repeat(rule, MaxEgressRules-1) + `{"allow":"preset:pip"}]`,
		"[" + strings.Repeat(" ", MaxEgressBytes) + "]",
	} {
		var a *api.Error
		if _, err := ParseEgress(json.RawMessage(doc), noon, testPresets); !errors.As(err, &a) || a.Code != api.CodePolicyInvalid {
			t.Errorf("%d bytes: %v", len(doc), err)
		}
	}
	if _, err := ParseEgress(json.RawMessage(`[{"allow":"preset:pip"}]`), noon, nil); err == nil {
		t.Error("a preset where there are none")
	}
}

// TestOptionNames: the members that an error lists are those that rules have.
func TestOptionNames(t *testing.T) {
	var names []string
	for i, rule := 0, reflect.TypeFor[api.EgressRule](); i < rule.NumField(); i++ {
		name, _, _ := strings.Cut(rule.Field(i).Tag.Get("json"), ",")
		names = append(names, name)
		if _, err := ParseEgress(json.RawMessage(`[{"`+name+`":{}}]`), noon, nil); err == nil || strings.Contains(err.Error(), "is not known") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := strings.Join(names, ", "); got != optionNames {
		t.Errorf("the error lists %s; rules have %s", optionNames, got)
	}
}

// TestPage: the example of the document in docs/egress.md is one.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/egress.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "## The document\n")
	_, rest, ok := strings.Cut(rest, "```json\n")
	doc, _, closed := strings.Cut(rest, "```")
	if !ok || !closed {
		t.Fatal("the page has no example")
	}
	if e := parse(t, doc); len(e.Rules) < 6 {
		t.Errorf("the example is %+v", e.Rules)
	}
}
