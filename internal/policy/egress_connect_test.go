package policy

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

// flowOf reads a flow as the tables here write it: what is seen ("tls NAME",
// "ech NAME", "http METHOD HOST PATH", "raw", "udp", "nothing"; - for no name),
// then "> address:port", then the names that were handed out, "own" among them
// for an address of the host.
func flowOf(t testing.TB, s string) Flow {
	t.Helper()
	seen, rest, ok := strings.Cut(s, " > ")
	w, r := strings.Fields(seen), strings.Fields(rest)
	if !ok || len(w) == 0 || len(r) == 0 {
		t.Fatalf("flow %q", s)
	}
	f := Flow{Now: noon, To: netip.MustParseAddrPort(r[0])}
	for _, n := range r[1:] {
		if n == "own" {
			f.Own = true
		} else {
			f.Names = append(f.Names, n)
		}
	}
	for i := range w {
		if w[i] == "-" {
			w[i] = ""
		}
	}
	switch w[0] {
	case "tls", "ech":
		f.Seen, f.Claim, f.Hidden = SeenTLS, w[1], w[0] == "ech"
	case "http":
		f.Seen, f.Method, f.Claim, f.Path = SeenHTTP, w[1], w[2], w[3]
	case "nothing":
	default:
		f.Seen = Seen(w[0])
	}
	return f
}

// rulesOf reads rules as the tables write them: targets with a space between,
// "!" in front for deny, or a whole document.
func rulesOf(t testing.TB, s string) *Egress {
	t.Helper()
	if strings.HasPrefix(s, "[") && strings.Contains(s, "{") {
		return parse(t, s)
	}
	list := []map[string]string{}
	for _, target := range strings.Fields(s) {
		if deny, ok := strings.CutPrefix(target, "!"); ok {
			list = append(list, map[string]string{"deny": deny})
		} else {
			list = append(list, map[string]string{"allow": target})
		}
	}
	doc, _ := json.Marshal(list)
	return parse(t, string(doc))
}

const (
	anySNI   = `[{"allow":"a.test:22","sni":"any"}]`
	readOnly = `[{"allow":"a.test:80","methods":["GET","HEAD"],"paths":["/v1","/pub/"]}]`
)

var connects = []struct {
	rules, flow string
	want        string // the reason; "" is allowed
	name        string // that it is allowed or denied for
}{
	// Nothing is allowed by itself.
	{"", "tls a.test > 192.0.2.1:443 a.test", DenyNoRule, ""},
	{"", "raw > 192.0.2.1:443", DenyNoRule, ""},
	{"", "raw > 127.0.0.1:443", DenyAddress, ""},
	{"", "udp > 192.0.2.1:443", DenyUDP, ""},

	// Names.
	{"a.test:443", "tls a.test > 192.0.2.1:443 a.test", "", "a.test"},
	{"a.test:443", "tls a.test > [2001:db8::1]:443 a.test", "", "a.test"},
	{"a.test", "tls a.test > 192.0.2.1:8443 a.test", "", "a.test"},
	{"a.test:80", "http GET a.test / > 192.0.2.1:80 a.test", "", "a.test"},
	{"a.test:443", "http GET a.test / > 192.0.2.1:443 a.test", "", "a.test"},
	{"a.test:443", "tls A.TEST > 192.0.2.1:443 a.test", "", "a.test"},
	{"a.test:443", "tls a.test. > 192.0.2.1:443 a.test", "", "a.test"},
	{"a.test:443", "tls a.test > 192.0.2.1:443 A.test.", "", "a.test"},
	{"A.Test.:443", "tls a.test > 192.0.2.1:443 a.test", "", "a.test"},
	{"a.test:443", "tls a.test.. > 192.0.2.1:443 a.test", DenyName, "a.test"},
	{"a.test:443", "tls a.test > 192.0.2.1:443 b.test a.test", "", "a.test"},
	{"a.test:443", "tls a.test > 192.0.2.1:80 a.test", DenyNoRule, ""},
	{"a.test:443", "tls b.test > 192.0.2.1:443 a.test", DenyName, "a.test"},
	{"a.test:443", "tls b.test > 192.0.2.1:443 a.test b.test", DenyName, "a.test"},
	{"a.test:443", "tls b.test > 192.0.2.1:443 b.test", DenyNoRule, ""},
	{"a.test:443", "tls a.test > 192.0.2.1:443 b.test", DenyUnresolved, "a.test"},
	{"a.test:443", "tls a.test > 192.0.2.1:443", DenyUnresolved, "a.test"},
	{"a.test:443", "tls - > 192.0.2.1:443", DenyUnresolved, ""},
	{"a.test:443", "tls - > 192.0.2.1:443 a.test", DenyNoName, "a.test"},
	{"a.test:443", "ech a.test > 192.0.2.1:443 a.test", DenyHidden, "a.test"},
	{"a.test:443", "raw > 192.0.2.1:443 a.test", DenyProtocol, "a.test"},
	{"a.test:443", "nothing > 192.0.2.1:443 a.test", DenyProtocol, "a.test"},
	{"a.test:443", "udp > 192.0.2.1:443 a.test", DenyUDP, "a.test"},
	{"a.test:443", "udp > 192.0.2.1:53", DenyUDP, ""},
	{"a.test:80", "http GET - / > 192.0.2.1:80 a.test", DenyNoName, "a.test"},
	{"a.test:80", "http GET b.test / > 192.0.2.1:80 a.test", DenyName, "a.test"},
	{"a.test:80", "http GET 192.0.2.1 / > 192.0.2.1:80 a.test", DenyName, "a.test"},
	{"a.test:80", "http GET a.test.evil.test / > 192.0.2.1:80 a.test", DenyName, "a.test"},
	{"a.test:80 b.test:80", "http GET b.test / > 192.0.2.1:80 a.test", DenyUnresolved, "b.test"},
	{"a.test:80 b.test:80", "http GET b.test / > 192.0.2.1:80 a.test b.test", "", "b.test"},
	{"a.test:443 b.test:80", "tls b.test > 192.0.2.1:443 a.test b.test", DenyName, "a.test"},
	{"a.test", "tls sub.a.test > 192.0.2.1:443 sub.a.test", DenyNoRule, ""},

	// Suffixes.
	{"*.a.test", "tls x.a.test > 192.0.2.1:443 x.a.test", "", "x.a.test"},
	{"*.a.test", "tls y.x.a.test > 192.0.2.1:443 y.x.a.test", "", "y.x.a.test"},
	{"*.a.test", "tls X.A.test. > 192.0.2.1:443 x.a.test", "", "x.a.test"},
	{"*.a.test", "tls a.test > 192.0.2.1:443 a.test", DenyNoRule, ""},
	{"*.a.test", "tls .a.test > 192.0.2.1:443 .a.test", DenyNoRule, ""},
	{"*.suffix.test", "tls evilsuffix.test > 192.0.2.1:443 evilsuffix.test", DenyNoRule, ""},
	{"*.suffix.test", "tls x.suffix.test.evil.test > 192.0.2.1:443 x.suffix.test", DenyName, "x.suffix.test"},
	{"*.a.test", "tls y.a.test > 192.0.2.1:443 x.a.test", DenyUnresolved, "y.a.test"},
	{"*.a.test", "tls y.a.test > 192.0.2.1:443 x.a.test y.a.test", "", "y.a.test"},
	{"*.a.test a.test", "tls a.test > 192.0.2.1:443 a.test", "", "a.test"},

	// Order.
	{"!a.test a.test", "tls a.test > 192.0.2.1:443 a.test", DenyRule, "a.test"},
	{"a.test !a.test", "tls a.test > 192.0.2.1:443 a.test", "", "a.test"},
	{"!x.a.test *.a.test", "tls x.a.test > 192.0.2.1:443 x.a.test", DenyRule, "x.a.test"},
	{"!x.a.test *.a.test", "tls y.a.test > 192.0.2.1:443 x.a.test y.a.test", "", "y.a.test"},
	{"!x.a.test *.a.test", "tls x.a.test > 192.0.2.1:443 y.a.test", DenyRule, "x.a.test"},
	{"!a.test:80 a.test", "tls a.test > 192.0.2.1:443 a.test", "", "a.test"},
	{"!a.test:80 a.test", "http GET a.test / > 192.0.2.1:80 a.test", DenyRule, "a.test"},
	{"!evil.test 0.0.0.0/0", "tls evil.test > 192.0.2.1:443", DenyRule, "evil.test"},
	{"!evil.test 0.0.0.0/0", "raw > 192.0.2.1:443 evil.test", DenyRule, "evil.test"},
	{"!evil.test 0.0.0.0/0", "tls b.test > 192.0.2.1:443 evil.test", DenyRule, "evil.test"},
	{"!evil.test 0.0.0.0/0", "ech a.test > 192.0.2.1:443 a.test evil.test", DenyRule, "evil.test"},
	{"!evil.test 0.0.0.0/0", "tls a.test > 192.0.2.1:443 a.test evil.test", "", ""},
	{"!evil.test 0.0.0.0/0", "raw > 192.0.2.1:443", "", ""},
	{"!evil.test 0.0.0.0/0", "nothing > 192.0.2.1:443", DenyUnseen, ""},
	{"!evil.test:80 0.0.0.0/0", "nothing > 192.0.2.1:443", "", ""},
	{"!192.0.2.0/24 a.test", "tls a.test > 192.0.2.1:443 a.test", DenyRule, ""},
	{"!192.0.2.0/24 a.test", "tls a.test > [::ffff:192.0.2.1]:443 a.test", DenyRule, ""},
	{"!192.0.2.0/24 a.test", "tls a.test > 198.51.100.1:443 a.test", "", "a.test"},
	{"!0.0.0.0/0 !::/0 a.test", "tls a.test > [2001:db8::1]:443 a.test", DenyRule, ""},

	// sni: any.
	{anySNI, "raw > 192.0.2.1:22 a.test", "", "a.test"},
	{anySNI, "nothing > 192.0.2.1:22 a.test", "", "a.test"},
	{anySNI, "tls b.test > 192.0.2.1:22 a.test", "", "a.test"},
	{anySNI, "tls - > 192.0.2.1:22 a.test", "", "a.test"},
	{anySNI, "ech b.test > 192.0.2.1:22 a.test", "", "a.test"},
	{anySNI, "http GET b.test / > 192.0.2.1:22 a.test", "", "a.test"},
	{anySNI, "raw > 192.0.2.1:22 b.test", DenyNoRule, ""},
	{anySNI, "tls a.test > 192.0.2.1:22 b.test", DenyUnresolved, "a.test"},
	{anySNI, "raw > 192.0.2.1:22", DenyUnresolved, ""},
	{anySNI, "raw > 192.0.2.1:23 a.test", DenyNoRule, ""},
	{anySNI, "udp > 192.0.2.1:22 a.test", DenyUDP, "a.test"},
	{`[{"allow":"a.test:443","sni":"any","quic":true}]`, "udp > 192.0.2.1:443 a.test", "", "a.test"},
	{`[{"allow":"a.test:443","sni":"any","quic":true}]`, "udp > 192.0.2.1:80 a.test", DenyUDP, ""},
	{`[{"allow":"a.test:443","sni":"any","quic":true}]`, "udp > 192.0.2.1:443 b.test", DenyUDP, ""},
	{`[{"allow":"a.test:443"},{"allow":"a.test:443","sni":"any"}]`, "raw > 192.0.2.1:443 a.test", "", "a.test"},

	// Addresses.
	{"192.0.2.1:5432", "raw > 192.0.2.1:5432", "", ""},
	{"192.0.2.1:5432", "nothing > 192.0.2.1:5432", "", ""},
	{"192.0.2.1:5432", "tls evil.test > 192.0.2.1:5432", "", ""},
	{"192.0.2.1:5432", "ech evil.test > 192.0.2.1:5432", "", ""},
	{"192.0.2.1:5432", "raw > 192.0.2.1:5433", DenyUnresolved, ""},
	{"192.0.2.1:5432", "raw > 192.0.2.2:5432", DenyUnresolved, ""},
	{"192.0.2.1:5432", "udp > 192.0.2.1:5432", DenyUDP, ""},
	{`[{"allow":"192.0.2.1:53","quic":true}]`, "udp > 192.0.2.1:53", "", ""},
	{"192.0.2.1", "raw > [::ffff:192.0.2.1]:80", "", ""},
	{"[2001:db8::/32]:80", "raw > [2001:db8:1::1]:80", "", ""},
	{"[2001:db8::/32]:80", "raw > [2001:db9::1]:80", DenyUnresolved, ""},
	{"0.0.0.0/0", "raw > 203.0.113.9:80", "", ""},
	{"0.0.0.0/0", "raw > [2001:db8::1]:80", DenyUnresolved, ""},
	{"::/0", "raw > 192.0.2.1:80", DenyUnresolved, ""},
	{"::/0", "raw > [::ffff:192.0.2.1]:80", DenyUnresolved, ""},
	{"192.0.2.0/24", "raw > 198.18.0.1:80", DenyUnresolved, ""},
	{"198.18.0.0/15", "raw > 198.18.0.1:80", "", ""},

	// What a range that means everything does not mean.
	{"0.0.0.0/0", "raw > 127.0.0.1:80", DenyAddress, ""},
	{"0.0.0.0/0", "raw > [::ffff:127.0.0.1]:80", DenyAddress, ""},
	{"0.0.0.0/0", "raw > 0.0.0.0:80", DenyAddress, ""},
	{"0.0.0.0/0", "raw > 10.1.2.3:80", DenyAddress, ""},
	{"0.0.0.0/0", "raw > 172.31.255.255:80", DenyAddress, ""},
	{"0.0.0.0/0", "raw > 172.32.0.1:80", "", ""},
	{"0.0.0.0/0", "raw > 192.168.1.1:80", DenyAddress, ""},
	{"0.0.0.0/0", "raw > 169.254.169.254:80", DenyAddress, ""},
	{"0.0.0.0/0", "raw > 168.63.129.16:80", DenyAddress, ""},
	{"0.0.0.0/0", "raw > 168.63.129.17:80", "", ""},
	{"0.0.0.0/0", "raw > 100.64.0.1:80", DenyAddress, ""},
	{"0.0.0.0/0", "raw > 100.100.100.200:80", DenyAddress, ""},
	{"0.0.0.0/0", "raw > 100.128.0.1:80", "", ""},
	{"0.0.0.0/0", "raw > 224.0.0.1:80", DenyAddress, ""},
	{"0.0.0.0/0", "raw > 240.0.0.1:80", DenyAddress, ""},
	{"0.0.0.0/0", "raw > 255.255.255.255:80", DenyAddress, ""},
	{"0.0.0.0/0", "raw > 192.0.0.1:80", DenyAddress, ""},
	{"0.0.0.0/0", "raw > 192.88.99.1:80", DenyAddress, ""},
	{"0.0.0.0/0", "raw > 203.0.113.9:80 own", DenyAddress, ""},
	{"8.0.0.0/5", "raw > 10.0.0.1:80", DenyAddress, ""},
	{"10.0.0.0/7", "raw > 10.0.0.1:80", DenyAddress, ""},
	{"::/0", "raw > [::1]:80", DenyAddress, ""},
	{"::/0", "raw > [::]:80", DenyAddress, ""},
	{"::/0", "raw > [::127.0.0.1]:80", DenyAddress, ""},
	{"::/0", "raw > [64:ff9b::a9fe:a9fe]:80", DenyAddress, ""},
	{"::/0", "raw > [64:ff9b:1::1]:80", DenyAddress, ""},
	{"::/0", "raw > [2002:7f00:1::]:80", DenyAddress, ""},
	{"::/0", "raw > [2001::1]:80", DenyAddress, ""},
	{"::/0", "raw > [100::1]:80", DenyAddress, ""},
	{"::/0", "raw > [5f00::1]:80", DenyAddress, ""},
	{"::/0", "raw > [fd00:ec2::254]:80", DenyAddress, ""},
	{"::/0", "raw > [fe80::1]:80", DenyAddress, ""},
	{"::/0", "raw > [fe80::1%eth0]:80", DenyAddress, ""},
	{"::/0", "raw > [fec0::1]:80", DenyAddress, ""},
	{"::/0", "raw > [ff02::1]:80", DenyAddress, ""},
	{"::/0", "raw > [::ffff:0:7f00:1]:80", DenyAddress, ""},
	{"::/0", "raw > [2001:db8::1]:80 own", DenyAddress, ""},

	// What a range does mean.
	{"127.0.0.0/8", "raw > 127.0.0.1:80", "", ""},
	{"127.0.0.1:80", "raw > [::ffff:127.0.0.1]:80", "", ""},
	{"127.0.0.1:80", "raw > 127.0.0.1:81", DenyAddress, ""},
	{"127.0.0.1:80", "raw > 127.0.0.2:80", DenyAddress, ""},
	{"127.0.0.1:80", "raw > 127.0.0.1:80 own", "", ""},
	{"10.0.0.0/8", "raw > 10.1.2.3:80", "", ""},
	{"10.0.0.0/8", "raw > 10.1.2.3:80 own", "", ""},
	{"169.254.169.254:80", "raw > 169.254.169.254:80", "", ""},
	{"169.254.0.0/16", "raw > 169.254.169.254:80", "", ""},
	{"168.63.129.16", "raw > 168.63.129.16:80", "", ""},
	{"168.63.129.0/24", "raw > 168.63.129.16:80", DenyAddress, ""},
	{"::1", "raw > [::1]:80", "", ""},
	{"::/96", "raw > [::1]:80", DenyAddress, ""},
	{"::/96", "raw > [::10.0.0.1]:80", "", ""},
	{"64:ff9b::/96", "raw > [64:ff9b::a00:1]:80", "", ""},
	{"240.0.0.0/4", "raw > 255.255.255.255:80", DenyAddress, ""},
	{"fe80::/10", "raw > [fe80::1%eth0]:80", DenyAddress, ""},
	{"fc00::/7", "raw > [fd00:ec2::254]:80", "", ""},
	{"203.0.113.0/24", "raw > 203.0.113.9:80 own", "", ""},
	{"128.0.0.0/1", "raw > 203.0.113.9:80 own", DenyAddress, ""},
	{"2001:db8::/32", "raw > [2001:db8::1]:80 own", "", ""},
	{"2001::/16", "raw > [2001:db8::1]:80 own", DenyAddress, ""},
	{"2001::/16", "raw > [2001:db8::1]:80", "", ""},
	{"2001::/16", "raw > [2001::1]:80", DenyAddress, ""},
	{"0.0.0.0/0 10.0.0.0/8", "raw > 10.1.2.3:80", "", ""},
	{"!10.1.0.0/16 10.0.0.0/8", "raw > 10.1.2.3:80", DenyRule, ""},

	// Names that are at such addresses: rebinding gains nothing.
	{"a.test:443", "tls a.test > 127.0.0.1:443 a.test", DenyAddress, "a.test"},
	{"a.test:443", "tls a.test > 169.254.169.254:443 a.test", DenyAddress, "a.test"},
	{"a.test:443", "tls a.test > [fd00::1]:443 a.test", DenyAddress, "a.test"},
	{"a.test:443", "tls a.test > [::ffff:10.0.0.1]:443 a.test", DenyAddress, "a.test"},
	{"a.test:443", "tls a.test > 192.0.2.1:443 a.test own", DenyAddress, "a.test"},
	{anySNI, "raw > 10.0.0.1:22 a.test", DenyAddress, "a.test"},
	{"a.test:443 0.0.0.0/0", "tls a.test > 127.0.0.1:443 a.test", DenyAddress, "a.test"},
	{"a.test:443 10.0.0.0/8:443", "tls a.test > 10.0.0.1:443 a.test", "", "a.test"},
	{"a.test:443 10.0.0.0/8", "tls a.test > 10.0.0.1:443 a.test", "", "a.test"},
	{"a.test:443 10.0.0.0/8:80", "tls a.test > 10.0.0.1:443 a.test", DenyAddress, "a.test"},
	{"a.test:443 !10.0.0.1 10.0.0.0/8", "tls a.test > 10.0.0.1:443 a.test", DenyRule, ""},
	{"a.test:443 192.0.2.1", "tls a.test > 192.0.2.1:443 a.test own", "", "a.test"},
	{"preset:pip", "tls index.test > 10.0.0.1:443 index.test", "", "index.test"},
	{"preset:pip", "tls index.test > 127.0.0.1:443 index.test own", "", "index.test"},
	{"preset:pip", "tls index.test > [fd12::1]:443 index.test", "", "index.test"},
	{"preset:pip", "tls index.test > 192.0.2.1:443 index.test own", "", "index.test"},
	{"preset:pip", "tls index.test > 10.0.0.1:80 index.test", DenyAddress, ""},
	{"preset:pip", "tls index.test > 169.254.169.254:443 index.test", DenyAddress, "index.test"},
	{"preset:pip", "tls index.test > 100.100.100.200:443 index.test", DenyAddress, "index.test"},
	{"preset:pip", "tls index.test > [fd00:ec2::254]:443 index.test", DenyAddress, "index.test"},
	{"preset:pip", "tls index.test > 0.0.0.0:443 index.test", DenyAddress, "index.test"},
	{"preset:pip", "tls index.test > 224.0.0.1:443 index.test", DenyAddress, "index.test"},
	{"preset:pip", "tls other.test > 10.0.0.1:443 index.test", DenyName, "index.test"},
	{"index.test:443 preset:pip", "tls index.test > 10.0.0.1:443 index.test", "", "index.test"},
	{"preset:local", "http GET x /simple > 10.9.8.7:3141", "", ""},
	{"preset:local", "http GET x /simple > 10.9.8.7:3141 own", "", ""},
	{"preset:local", "http GET x /simple > 10.9.8.8:3141", DenyAddress, ""},

	// Methods and paths.
	{readOnly, "http GET a.test /v1 > 192.0.2.1:80 a.test", "", "a.test"},
	{readOnly, "http GET a.test /v1/x?q=../.. > 192.0.2.1:80 a.test", "", "a.test"},
	{readOnly, "http HEAD a.test /pub/x > 192.0.2.1:80 a.test", "", "a.test"},
	{readOnly, "http POST a.test /v1 > 192.0.2.1:80 a.test", DenyMethod, "a.test"},
	{readOnly, "http get a.test /v1 > 192.0.2.1:80 a.test", DenyMethod, "a.test"},
	{readOnly, "http GET a.test /v10 > 192.0.2.1:80 a.test", DenyPath, "a.test"},
	{readOnly, "http GET a.test /V1 > 192.0.2.1:80 a.test", DenyPath, "a.test"},
	{readOnly, "http GET a.test /pub > 192.0.2.1:80 a.test", DenyPath, "a.test"},
	{readOnly, "http GET a.test / > 192.0.2.1:80 a.test", DenyPath, "a.test"},
	{readOnly, "http GET a.test - > 192.0.2.1:80 a.test", DenyPath, "a.test"},
	{readOnly, "http GET a.test * > 192.0.2.1:80 a.test", DenyPath, "a.test"},
	{readOnly, "http GET a.test /v1/../x > 192.0.2.1:80 a.test", DenyPath, "a.test"},
	{readOnly, "http GET a.test /v1/.. > 192.0.2.1:80 a.test", DenyPath, "a.test"},
	{readOnly, "http GET a.test /v1/./x > 192.0.2.1:80 a.test", DenyPath, "a.test"},
	{readOnly, "http GET a.test /v1//x > 192.0.2.1:80 a.test", DenyPath, "a.test"},
	{readOnly, "http GET a.test //v1/x > 192.0.2.1:80 a.test", DenyPath, "a.test"},
	{readOnly, "http GET a.test /v1/%2e%2e/x > 192.0.2.1:80 a.test", DenyPath, "a.test"},
	{readOnly, "http GET a.test /v1%2f..%2fx > 192.0.2.1:80 a.test", DenyPath, "a.test"},
	{readOnly, "http GET a.test /v1/%c0%ae%c0%ae/x > 192.0.2.1:80 a.test", DenyPath, "a.test"},
	{readOnly, "http GET a.test /v1/..;/x > 192.0.2.1:80 a.test", DenyPath, "a.test"},
	{readOnly, "http GET a.test /v1;x/../y > 192.0.2.1:80 a.test", DenyPath, "a.test"},
	{readOnly, `http GET a.test /v1\..\x > 192.0.2.1:80 a.test`, DenyPath, "a.test"},
	{readOnly, "http GET a.test /v1/x#/../y > 192.0.2.1:80 a.test", DenyPath, "a.test"},
	{readOnly, "http GET a.test http://b.test/v1 > 192.0.2.1:80 a.test", DenyPath, "a.test"},
	{readOnly, "http GET b.test /v1 > 192.0.2.1:80 a.test", DenyName, "a.test"},
	{readOnly, "tls a.test > 192.0.2.1:80 a.test", DenyUnseen, "a.test"},
	{readOnly, "raw > 192.0.2.1:80 a.test", DenyProtocol, "a.test"},
	{`[{"allow":"192.0.2.1","methods":["GET"]}]`, "http GET x / > 192.0.2.1:80", "", ""},
	{`[{"allow":"192.0.2.1","methods":["GET"]}]`, "http PUT x / > 192.0.2.1:80", DenyMethod, ""},
	{`[{"allow":"192.0.2.1","methods":["GET"]}]`, "nothing > 192.0.2.1:80", DenyUnseen, ""},
	{`[{"allow":"192.0.2.1","methods":["GET"]}]`, "raw > 192.0.2.1:80", DenyProtocol, ""},
	{`[{"allow":"a.test","sni":"any","methods":["GET"]}]`, "http GET x / > 192.0.2.1:80 a.test", "", "a.test"},
	{`[{"allow":"a.test","methods":["GET"]},{"allow":"a.test:443"}]`, "tls a.test > 192.0.2.1:443 a.test", "", "a.test"},
	{`[{"deny":"a.test","methods":["PUT"]},{"allow":"a.test"}]`, "http PUT a.test / > 192.0.2.1:80 a.test", DenyRule, "a.test"},
	{`[{"deny":"a.test","methods":["PUT"]},{"allow":"a.test"}]`, "http put a.test / > 192.0.2.1:80 a.test", DenyRule, "a.test"},
	{`[{"deny":"a.test","methods":["PUT"]},{"allow":"a.test"}]`, "http GET a.test / > 192.0.2.1:80 a.test", "", "a.test"},
	{`[{"deny":"a.test","methods":["PUT"]},{"allow":"a.test"}]`, "tls a.test > 192.0.2.1:443 a.test", DenyUnseen, "a.test"},
	{`[{"deny":"a.test:80","methods":["PUT"]},{"allow":"a.test"}]`, "tls a.test > 192.0.2.1:443 a.test", "", "a.test"},
	{`[{"deny":"a.test","paths":["/admin"]},{"allow":"a.test"}]`, "http GET a.test /admin/x > 192.0.2.1:80 a.test", DenyRule, "a.test"},
	{`[{"deny":"a.test","paths":["/admin"]},{"allow":"a.test"}]`, "http GET a.test /ADMIN > 192.0.2.1:80 a.test", DenyRule, "a.test"},
	{`[{"deny":"a.test","paths":["/admin"]},{"allow":"a.test"}]`, "http GET a.test /x/../admin > 192.0.2.1:80 a.test", DenyRule, "a.test"},
	{`[{"deny":"a.test","paths":["/admin"]},{"allow":"a.test"}]`, "http GET a.test /%61dmin > 192.0.2.1:80 a.test", DenyRule, "a.test"},
	{`[{"deny":"a.test","paths":["/admin"]},{"allow":"a.test"}]`, "http GET a.test /public > 192.0.2.1:80 a.test", "", "a.test"},

	// The end of rules.
	{`[{"allow":"a.test","expires":"1ns"}]`, "tls a.test > 192.0.2.1:443 a.test", "", "a.test"},
	{`[{"allow":"a.test","expires":"2030-01-01T12:00:00Z"}]`, "tls a.test > 192.0.2.1:443 a.test", DenyExpired, "a.test"},
	{`[{"allow":"a.test","expires":"2030-01-01T12:00:00Z"},{"allow":"*.test"}]`, "tls a.test > 192.0.2.1:443 a.test", DenyExpired, "a.test"},
	{`[{"allow":"a.test","expires":"2030-01-01T12:00:00Z"},{"allow":"*.test"}]`, "tls b.test > 192.0.2.1:443 b.test", "", "b.test"},
	{`[{"deny":"a.test","expires":"2030-01-01T12:00:00Z"},{"allow":"*.test"}]`, "tls a.test > 192.0.2.1:443 a.test", "", "a.test"},
	{`[{"deny":"a.test","expires":"1m"},{"allow":"*.test"}]`, "tls a.test > 192.0.2.1:443 a.test", DenyRule, "a.test"},
	{`[{"allow":"a.test"},{"allow":"10.0.0.1","expires":"2030-01-01T11:00:00Z"}]`, "tls a.test > 10.0.0.1:443 a.test", DenyExpired, ""},
}

func TestConnect(t *testing.T) {
	for _, tt := range connects {
		e, f := rulesOf(t, tt.rules), flowOf(t, tt.flow)
		d := e.Connect(f)
		if d.Allow != (tt.want == "") || !d.Allow && d.Reason != tt.want || d.Name != tt.name {
			t.Errorf("%s\n%s\n got %+v\nwant %q for %q", tt.rules, tt.flow, d, tt.want, tt.name)
		}
		if d.Allow != (d.Text == "") || strings.ContainsAny(d.Text, "\n\r") {
			t.Errorf("%s\n%s: text %q", tt.rules, tt.flow, d.Text)
		}
		if d.Allow && !e.Accept(f).Allow {
			t.Errorf("%s\n%s: allowed, and not accepted: %+v", tt.rules, tt.flow, e.Accept(f))
		}
	}
}

// TestFixHelps adds the rule that each denial names: then the flow is allowed,
// or is one that no such rule can help.
func TestFixHelps(t *testing.T) {
	helped := 0
	for _, tt := range connects {
		e, f := rulesOf(t, tt.rules), flowOf(t, tt.flow)
		d := e.Connect(f)
		if d.Allow || d.Fix == "" {
			switch d.Reason {
			case "", DenyRule, DenyExpired, DenyUnresolved, DenyMethod, DenyUnseen:
			case DenyAddress:
				if f.To.Addr().Zone() == "" {
					t.Errorf("%s\n%s: no fix: %+v", tt.rules, tt.flow, d)
				}
			default:
				t.Errorf("%s\n%s: no fix: %+v", tt.rules, tt.flow, d)
			}
			continue
		}
		if f.Claim != "" && d.Reason != DenyAddress {
			f.Names = append(f.Names, f.Claim) // once it is allowed, it can be resolved
		}
		for range 2 { // what is behind the first wall may be another
			if !d.Allow {
				e = withFix(t, e, d.Fix)
				d = e.Connect(f)
			}
		}
		if !d.Allow {
			t.Errorf("%s\n%s: fixes up to %s do not help: %s", tt.rules, tt.flow, e.Rules[len(e.Rules)-1].Text, d.Text)
		}
		helped++
	}
	if helped < 60 {
		t.Errorf("only %d denials had a fix", helped)
	}
}

// withFix returns e with the rule at its end that a denial named.
func withFix(t testing.TB, e *Egress, fix string) *Egress {
	t.Helper()
	if !strings.HasPrefix(fix, "{") {
		b, _ := json.Marshal(map[string]string{"allow": fix})
		fix = string(b)
	}
	more := parse(t, "["+fix+"]").Rules
	if p := more[0].Prefix; p.IsValid() && !p.IsSingleIP() {
		t.Errorf("%s opens a range", fix)
	}
	return &Egress{Rules: append(slices.Clip(e.Rules), more...)}
}

func TestCaps(t *testing.T) {
	spent := func(s Spent) func(int) Spent {
		return func(rule int) Spent {
			if rule == 0 {
				return s
			}
			return Spent{}
		}
	}
	const caps = `[{"allow":"a.test","uses":2,"bytes":100,"connections":3,"rate":"1/s"},{"allow":"*.test"}]`
	for _, tt := range []struct {
		rules string
		spent Spent
		want  string
		name  string // why the name is not resolved
	}{
		{caps, Spent{}, "", ""},
		{caps, Spent{Uses: 1, Bytes: 99, Open: 2}, "", ""},
		{caps, Spent{Uses: 2}, DenyUsed, DenyUsed},
		{caps, Spent{Bytes: 100}, DenyBytes, DenyBytes},
		{caps, Spent{Open: 3}, DenyBusy, ""},
		{caps, Spent{Busy: true}, DenyRate, ""},
		{`[{"allow":"a.test"},{"allow":"*.test"}]`, Spent{Uses: 9, Bytes: 9, Open: 9, Busy: true}, "", ""},
	} {
		f := flowOf(t, "tls a.test > 192.0.2.1:443 a.test")
		f.Spent = spent(tt.spent)
		e := parse(t, tt.rules)
		if d := e.Connect(f); d.Reason != tt.want || d.Allow != (tt.want == "") || d.Rule != 0 || d.Fix != "" {
			t.Errorf("%+v: Connect = %+v, want %q", tt.spent, d, tt.want)
		}
		// The second rule makes up for the name, which any rule may allow.
		e.Rules = e.Rules[:1]
		if d := e.Accept(f); d.Reason != tt.want || !d.Allow || !d.Inspect {
			t.Errorf("%+v: Accept = %+v, want a look for %q", tt.spent, d, tt.want)
		}
		e.Rules[0].AnySNI = true // nothing that it shows makes a difference
		if d := e.Accept(f); d.Reason != tt.want || d.Allow != (tt.want == "") || d.Inspect {
			t.Errorf("%+v: Accept = %+v, want %q", tt.spent, d, tt.want)
		}
		if d := e.Name("a.test", noon, f.Spent); d.Reason != tt.name || d.Allow != (tt.name == "") {
			t.Errorf("%+v: Name = %+v, want %q", tt.spent, d, tt.name)
		}
	}
}

// TestSharedAddress: of rules for two names at one address, that counts which is
// about the name that the client shows.
func TestSharedAddress(t *testing.T) {
	e := parse(t, `[{"allow":"a.test","uses":1},{"allow":"b.test","rate":"1/s"}]`)
	f := flowOf(t, "tls b.test > 192.0.2.1:443 a.test b.test")
	f.Spent = func(int) Spent { return Spent{Uses: 1, Busy: true} }
	if d := e.Accept(f); !d.Allow || !d.Inspect {
		t.Errorf("Accept = %+v", d)
	}
	if d := e.Connect(f); d.Allow || d.Reason != DenyRate || d.Rule != 1 || d.Name != "b.test" {
		t.Errorf("Connect = %+v", d)
	}
	e.Rules = append(e.Rules, EgressRule{Prefix: netip.MustParsePrefix("192.0.2.1/32")}) // and denied then, whatever it is
	if d := e.Accept(f); !d.Allow || !d.Inspect {
		t.Errorf("Accept = %+v", d)
	}
}

func TestAccept(t *testing.T) {
	for _, tt := range []struct {
		rules, flow string
		want        string // "look", "go" or the reason
	}{
		{"a.test:443", "nothing > 192.0.2.1:443 a.test", "look"},
		{"a.test:443", "nothing > 192.0.2.1:80 a.test", DenyNoRule},
		{"a.test:443", "nothing > 192.0.2.1:443 b.test", DenyNoRule},
		{"a.test:443", "nothing > 192.0.2.1:443", DenyUnresolved},
		{"a.test:443", "nothing > 127.0.0.1:443 a.test", DenyAddress},
		{"a.test:443 127.0.0.1:443", "nothing > 127.0.0.1:443 a.test", "look"},
		{"127.0.0.1:443 a.test:443", "nothing > 127.0.0.1:443 a.test", "go"},
		{"127.0.0.1:443 a.test:443", "nothing > 192.0.2.1:443 a.test", "look"},
		{anySNI, "nothing > 192.0.2.1:22 a.test", "go"},
		{anySNI, "nothing > 192.0.2.1:22 b.test", DenyNoRule},
		{readOnly, "nothing > 192.0.2.1:80 a.test", "look"},
		{"0.0.0.0/0", "nothing > 192.0.2.1:80", "go"},
		{"0.0.0.0/0", "nothing > 10.0.0.1:80", DenyAddress},
		{"!b.test 0.0.0.0/0", "nothing > 192.0.2.1:80", "look"},
		{"!b.test:443 0.0.0.0/0", "nothing > 192.0.2.1:80", "go"},
		{"!192.0.2.0/24 0.0.0.0/0", "nothing > 192.0.2.1:80", DenyRule},
		{"!192.0.2.0/24 0.0.0.0/0", "nothing > 198.51.100.1:80", "go"},
		{"0.0.0.0/0 !192.0.2.0/24", "nothing > 192.0.2.1:80", "go"},
		{"!a.test *.test", "nothing > 192.0.2.1:80 a.test", DenyRule},
		{"!a.test *.test", "nothing > 192.0.2.1:80 b.test", "look"},
		{"!a.test *.test", "nothing > 192.0.2.1:80 a.test b.test", "look"},
		{"!a.test *.test 0.0.0.0/0", "nothing > 192.0.2.1:80 a.test", DenyRule},
		{"a.test 0.0.0.0/0", "nothing > 192.0.2.1:80 a.test", "look"},
		{"a.test 0.0.0.0/0", "nothing > 192.0.2.1:80 b.test", "go"},
		{`[{"allow":"192.0.2.1","methods":["GET"]}]`, "nothing > 192.0.2.1:80", "look"},
		{`[{"deny":"192.0.2.1","methods":["GET"]},{"allow":"192.0.2.1"}]`, "nothing > 192.0.2.1:80", "look"},
		{`[{"allow":"192.0.2.1","expires":"2030-01-01T00:00:00Z"},{"allow":"0.0.0.0/0"}]`, "nothing > 192.0.2.1:80", DenyExpired},
		{`[{"allow":"a.test","expires":"2030-01-01T00:00:00Z"},{"allow":"*.test","sni":"any"}]`, "nothing > 192.0.2.1:80 a.test", "go"},
		{"0.0.0.0/0", "udp > 192.0.2.1:80", DenyUDP},
		{`[{"allow":"0.0.0.0/0","quic":true}]`, "udp > 192.0.2.1:80", "go"},
	} {
		d := rulesOf(t, tt.rules).Accept(flowOf(t, tt.flow))
		got := d.Reason
		if d.Allow {
			got = map[bool]string{true: "look", false: "go"}[d.Inspect]
		}
		if got != tt.want {
			t.Errorf("%s\n%s\n got %+v\nwant %s", tt.rules, tt.flow, d, tt.want)
		}
	}
}

func TestNameAndAddress(t *testing.T) {
	for _, tt := range []struct {
		rules, name, addr string
		want              string // of Name, or of Address if there is one
	}{
		{"a.test:443", "a.test", "", ""},
		{"a.test:443", "A.TEST.", "", ""},
		{"a.test:443", "b.test", "", DenyNoRule},
		{"a.test:443", "x.a.test", "", DenyNoRule},
		{"*.a.test", "x.a.test", "", ""},
		{"*.a.test", "a.test", "", DenyNoRule},
		{"*.a.test", "xa.test", "", DenyNoRule},
		{"*.a.test", "x y.a.test", "", DenyNoRule},
		{"*.a.test", strings.Repeat("x", 64) + ".a.test", "", DenyNoRule},
		{"*.a.test", "..a.test", "", DenyNoRule},
		{"0.0.0.0/0", "a.test", "", DenyNoRule},
		{"", "", "", DenyNoRule},
		{"!x.a.test *.a.test", "x.a.test", "", DenyRule},
		{"!x.a.test *.a.test", "y.a.test", "", ""},
		{"!x.a.test:80 *.a.test", "x.a.test", "", ""},
		{"!x.a.test:80 *.a.test:80", "x.a.test", "", DenyNoRule},
		{"!x.a.test:80 *.a.test:443", "x.a.test", "", ""},
		{`[{"deny":"a.test","methods":["PUT"]},{"allow":"a.test"}]`, "a.test", "", ""},
		{`[{"allow":"a.test","expires":"2030-01-01T12:00:00Z"}]`, "a.test", "", DenyExpired},
		{`[{"deny":"a.test","expires":"2030-01-01T12:00:00Z"},{"allow":"a.test"}]`, "a.test", "", ""},
		{"preset:pip", "files.test", "", ""},

		{"a.test:443", "a.test", "192.0.2.1", ""},
		{"a.test:443", "a.test", "192.0.2.1 own", DenyAddress},
		{"a.test:443", "a.test", "127.0.0.1", DenyAddress},
		{"a.test:443", "a.test", "::ffff:127.0.0.1", DenyAddress},
		{"a.test:443", "a.test", "64:ff9b::7f00:1", DenyAddress},
		{"a.test:443", "a.test", "fe80::1%eth0", DenyAddress},
		{"a.test:443", "b.test", "192.0.2.1", DenyNoRule},
		{"a.test:443 10.0.0.0/8:443", "a.test", "10.0.0.1", ""},
		{"a.test 10.0.0.0/8:443", "a.test", "10.0.0.1", ""},
		{"a.test:443 10.0.0.0/8:80", "a.test", "10.0.0.1", DenyAddress},
		{"a.test:443 0.0.0.0/0", "a.test", "10.0.0.1", DenyAddress},
		{"a.test:443 10.0.0.0/8:443", "a.test", "10.0.0.1 own", ""},
		{"a.test:443 !10.0.0.1 10.0.0.0/8", "a.test", "10.0.0.1", DenyAddress},
		{"!192.0.2.0/24 a.test", "a.test", "192.0.2.1", DenyAddress},
		{"!192.0.2.0/24:80 a.test", "a.test", "192.0.2.1", ""},
		{"a.test !192.0.2.0/24", "a.test", "192.0.2.1", ""},
		{"preset:pip", "index.test", "10.0.0.1", ""},
		{"preset:pip", "index.test", "10.0.0.1 own", ""},
		{"preset:pip", "index.test", "169.254.169.254", DenyAddress},
		{"preset:pip", "index.test", "100.100.100.200", DenyAddress},
		{"index.test:80 preset:pip", "index.test", "10.0.0.1", ""},
	} {
		e := rulesOf(t, tt.rules)
		d := e.Name(tt.name, noon, nil)
		if tt.addr != "" {
			a, own := strings.CutSuffix(tt.addr, " own")
			d = e.Address(tt.name, netip.MustParseAddr(a), own, noon)
		}
		if d.Reason != tt.want || d.Allow != (tt.want == "") || d.Allow != (d.Text == "") {
			t.Errorf("%s: %s %s\n got %+v\nwant %q", tt.rules, tt.name, tt.addr, d, tt.want)
		}
	}
}

func TestNoLink(t *testing.T) {
	var e *Egress
	f := flowOf(t, "tls a.test > 192.0.2.1:443 a.test")
	for _, d := range []Decision{e.Connect(f), e.Accept(f), e.Name("a.test", noon, nil), e.Address("a.test", f.To.Addr(), false, noon), e.Connect(Flow{}), rulesOf(t, "a.test").Address("a.test", netip.Addr{}, false, noon), rulesOf(t, "a.test 0.0.0.0/0").Connect(Flow{Names: []string{"a.test"}}), (&Egress{}).Connect(Flow{Now: time.Time{}})} {
		if d.Allow || d.Text == "" {
			t.Errorf("without a link: %+v", d)
		}
	}
}

func TestNameFixes(t *testing.T) {
	for name, fix := range map[string]string{"evil.test": "evil.test", "localhost": "", "x.localhost": "", "1.2": "", "a_b.test": "a_b.test"} {
		if d := rulesOf(t, "a.test:8080").Name(name, noon, nil); d.Allow || d.Fix != fix {
			t.Errorf("%s: fix %q, want %q", name, d.Fix, fix)
		}
	}
}

func TestFixes(t *testing.T) {
	for _, tt := range []struct{ rules, flow, fix string }{
		{"", "tls evil.test > 192.0.2.1:443 evil.test", "evil.test:443"},
		{"a.test:443", "tls evil.test > 192.0.2.1:443 a.test", "evil.test:443"},
		{"a.test:443", "raw > 192.0.2.9:25", "192.0.2.9:25"},
		{"a.test:443", "raw > [2001:db8::9]:25", "[2001:db8::9]:25"},
		{"a.test:443", "raw > 192.0.2.9:443 a.test", `{"allow":"a.test:443","sni":"any"}`},
		{"a.test:443", "ech x.test > 192.0.2.9:443 a.test", `{"allow":"a.test:443","sni":"any"}`},
		{"a.test:443", "udp > 192.0.2.9:443 a.test", `{"allow":"a.test:443","sni":"any","quic":true}`},
		{"a.test:443", "udp > 192.0.2.9:123", `{"allow":"192.0.2.9:123","quic":true}`},
		{"0.0.0.0/0", "raw > 169.254.169.254:80", "169.254.169.254:80"},
		{"a.test:443", "tls a.test > 10.1.2.3:443 a.test", "10.1.2.3:443"},
		{readOnly, "http PUT a.test /v1 > 192.0.2.1:80 a.test", `{"allow":"a.test:80","methods":["PUT"]}`},
		{readOnly, "http GET a.test /v2 > 192.0.2.1:80 a.test", `{"allow":"a.test:80","methods":["GET"],"paths":["/v2"]}`},
		{readOnly, "tls a.test > 192.0.2.1:80 a.test", "a.test:80"},
		{"!a.test *.test", "tls a.test > 192.0.2.1:443 a.test", ""},
	} {
		if d := rulesOf(t, tt.rules).Connect(flowOf(t, tt.flow)); d.Fix != tt.fix {
			t.Errorf("%s\n%s: %s: fix %q, want %q", tt.rules, tt.flow, d.Reason, d.Fix, tt.fix)
		}
	}
}
