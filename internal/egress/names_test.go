package egress

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/bermhq/berm/internal/egress/wire"
	"github.com/bermhq/berm/internal/policy"
	"github.com/bermhq/berm/internal/testkit"
)

func addrs(list ...string) (out []netip.Addr) {
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

func TestResolve(t *testing.T) {
	testkit.NoLeak(t)
	chain := []string{"a.test. 300 IN CNAME B.test.", "b.test. 7 IN CNAME c.test.", "c.test. 100 IN A 127.0.0.9", "z.test. 100 IN A 127.0.0.66"}
	loop := []string{"a.test. 300 IN CNAME b.test.", "b.test. 300 IN CNAME a.test."}
	var many []string
	for i := range 100 {
		many = append(many, fmt.Sprintf("a.test. 60 IN A 127.0.1.%d", i+1))
	}
	one := func(lines ...string) func(*dns.Msg, bool) []*dns.Msg {
		return func(q *dns.Msg, tcp bool) []*dns.Msg { return []*dns.Msg{records(q, lines...)} }
	}
	coded := func(code int) func(*dns.Msg, bool) []*dns.Msg {
		return func(q *dns.Msg, tcp bool) []*dns.Msg { m := records(q); m.Rcode = code; return []*dns.Msg{m} }
	}
	good := "a.test. 60 IN A 127.0.0.9"
	tests := []struct {
		what  string
		reply []func(*dns.Msg, bool) []*dns.Msg // of each server
		want  []netip.Addr
		ttl   uint32 // at most, and near it
		nx    bool
		fault string
		asked int // of the first server; 0: any
	}{
		{"plain", []func(*dns.Msg, bool) []*dns.Msg{one(good)}, addrs("127.0.0.9"), 60, false, "", 1},
		{"aliases", []func(*dns.Msg, bool) []*dns.Msg{one(chain...)}, addrs("127.0.0.9"), 7, false, "", 1},
		{"aliases in any order", []func(*dns.Msg, bool) []*dns.Msg{one(chain[3], chain[2], chain[1], chain[0])}, addrs("127.0.0.9"), 7, false, "", 1},
		{"aliases in a circle", []func(*dns.Msg, bool) []*dns.Msg{one(loop...)}, nil, 5, false, "", 1},
		{"a long time to live", []func(*dns.Msg, bool) []*dns.Msg{one("a.test. 99999 IN A 127.0.0.9")}, addrs("127.0.0.9"), 60, false, "", 1},
		{"no time to live", []func(*dns.Msg, bool) []*dns.Msg{one("a.test. 0 IN A 127.0.0.9")}, addrs("127.0.0.9"), 1, false, "", 1},
		{"an answer about others", []func(*dns.Msg, bool) []*dns.Msg{one("b.test. 60 IN A 127.0.0.9")}, nil, 5, false, "", 1},
		{"another type", []func(*dns.Msg, bool) []*dns.Msg{one("a.test. 60 IN AAAA ::ffff:127.0.0.9", `a.test. 60 IN TXT "127.0.0.9"`)}, nil, 5, false, "", 1},
		{"too many", []func(*dns.Msg, bool) []*dns.Msg{func(q *dns.Msg, tcp bool) []*dns.Msg {
			m := records(q, many...)
			if !tcp {
				m.Truncate(udpSize)
			}
			return []*dns.Msg{m}
		}}, nil, 60, false, "", 0},
		{"no such name", []func(*dns.Msg, bool) []*dns.Msg{coded(dns.RcodeNameError)}, nil, 5, true, "", 1},
		{"cut, and whole over TCP", []func(*dns.Msg, bool) []*dns.Msg{func(q *dns.Msg, tcp bool) []*dns.Msg {
			if tcp {
				return []*dns.Msg{records(q, good)}
			}
			m := records(q, "a.test. 60 IN A 127.0.0.66")
			m.Truncated = true
			return []*dns.Msg{m}
		}}, addrs("127.0.0.9"), 60, false, "", 2},
		{"answers to something else first", []func(*dns.Msg, bool) []*dns.Msg{func(q *dns.Msg, tcp bool) []*dns.Msg {
			bad := "a.test. 60 IN A 127.0.0.66"
			id, name, kind, ask, class := records(q, bad), records(q, bad), records(q, bad), records(q, bad), records(q, bad)
			id.Id++
			name.Question = []dns.Question{{Name: "b.test.", Qtype: dns.TypeA, Qclass: dns.ClassINET}}
			kind.Question = []dns.Question{{Name: "a.test.", Qtype: dns.TypeTXT, Qclass: dns.ClassINET}}
			class.Question = []dns.Question{{Name: "a.test.", Qtype: dns.TypeA, Qclass: dns.ClassCHAOS}}
			ask.Response = false
			none := records(q, bad)
			none.Question = nil
			return []*dns.Msg{id, name, kind, class, ask, none, records(q, good)}
		}}, addrs("127.0.0.9"), 60, false, "", 1},
		{"no EDNS", []func(*dns.Msg, bool) []*dns.Msg{func(q *dns.Msg, tcp bool) []*dns.Msg {
			m := records(q, good)
			if q.IsEdns0() != nil {
				m = records(q)
				m.Rcode = dns.RcodeFormatError
			}
			return []*dns.Msg{m}
		}}, addrs("127.0.0.9"), 60, false, "", 2},
		{"the second server", []func(*dns.Msg, bool) []*dns.Msg{coded(dns.RcodeServerFailure), one(good)}, addrs("127.0.0.9"), 60, false, "", 1},
		{"no server can", []func(*dns.Msg, bool) []*dns.Msg{coded(dns.RcodeServerFailure), coded(dns.RcodeRefused)}, nil, 0, false, unresolved, 2},
		{"no server", nil, nil, 0, false, unresolved, 0},
	}
	for _, tt := range tests {
		t.Run(tt.what, func(t *testing.T) {
			b := newBench(t, nil, Link{Policy: rules(t, `[{"allow":"a.test"},{"allow":"127.0.0.0/8"}]`)})
			var asked []func() int
			for _, r := range tt.reply {
				asked = append(asked, nameServer(t, b, r))
			}
			a := b.gateway().name("a.test", dns.TypeA)
			if tt.what == "too many" {
				if len(a.Addrs) != maxAddrs {
					t.Errorf("%d addresses", len(a.Addrs))
				}
				a.Addrs = nil
			}
			if a.Allow != (tt.fault == "") || !slices.Equal(a.Addrs, tt.want) || a.NXName != tt.nx || a.Fault != tt.fault || a.TTL > tt.ttl || a.TTL+3 < tt.ttl {
				t.Errorf("%+v", a)
			}
			if tt.asked > 0 && asked[0]() != tt.asked {
				t.Errorf("asked %d times, want %d", asked[0](), tt.asked)
			}
		})
	}
}

// TestNamesAreFiltered: no address is handed out that may not be dialled, and a
// name that first leads to one and then to another gains nothing.
func TestNamesAreFiltered(t *testing.T) {
	c := newCanaries(t)
	var now atomic.Value
	now.Store([]string{"192.0.2.7"})
	b := newBench(t, nil, Link{Policy: rules(t, `[{"allow":"a.test"},{"allow":"*.low.test:%d"}]`, c.tcp4.Port())})
	nameServer(t, b, func(q *dns.Msg, tcp bool) []*dns.Msg {
		m := records(q)
		for _, a := range now.Load().([]string) {
			typ := "A"
			if strings.Contains(a, ":") {
				typ = "AAAA"
			}
			m.Answer = append(m.Answer, records(q, q.Question[0].Name+" 0 IN "+typ+" "+a).Answer...)
		}
		return []*dns.Msg{m}
	})
	g := b.gateway()
	g.name("a.test", dns.TypeA) // public first; whether it is routed here does not matter
	for i, list := range [][]string{
		{"127.0.0.1"}, {"127.0.0.2"}, {"10.0.0.1"}, {"169.254.169.254"}, {"100.64.0.1"}, {"0.0.0.0"}, {"224.0.0.1"}, {"255.255.255.255"},
		{"192.168.1.1", "172.16.0.1"}, {"192.0.0.1"}, {"168.63.129.16"}, {"240.0.0.1"},
	} {
		now.Store(list)
		name := fmt.Sprintf("n%d.low.test", i)
		a := g.name(name, dns.TypeA)
		if a.Allow || !a.NXName || len(a.Addrs) != 0 || a.Reason != policy.DenyAddress || a.Text == "" {
			t.Errorf("%v: %+v", list, a)
		}
	}
	for i, list := range [][]string{{"::1"}, {"fe80::1"}, {"fd00::1"}, {"64:ff9b::7f00:1"}, {"2002:7f00:1::"}, {"ff02::1"}, {"::"}, {"::7f00:1"}} {
		now.Store(list)
		if a := g.name(fmt.Sprintf("m%d.low.test", i), dns.TypeAAAA); a.Allow || !a.NXName || len(a.Addrs) != 0 || a.Reason != policy.DenyAddress {
			t.Errorf("%v: %+v", list, a)
		}
	}
	now.Store([]string{"127.0.0.1"})
	eventually(t, "the name leads to loopback", func() bool { return !g.name("a.test", dns.TypeA).Allow })
	if a, _ := g.connect(c.tcp4, wire.Ask{Seen: "tls", Claim: "a.test"}); a.Allow {
		t.Errorf("rebound: %+v", a)
	}
	if n := c.seen.Load(); n != 0 {
		t.Errorf("canaries were reached %d times", n)
	}
}

// TestNoQueryLeaves: nobody is asked about a name that is not allowed, nor for
// what is not an address.
func TestNoQueryLeaves(t *testing.T) {
	b := newBench(t, nil, Link{Policy: rules(t, `[{"allow":"a.test"},{"allow":"*.below.test"}]`)})
	asked := nameServer(t, b, func(q *dns.Msg, tcp bool) []*dns.Msg { return []*dns.Msg{records(q)} })
	g := b.gateway()
	for _, name := range []string{"b.test", "below.test", "a.test.evil.test", "xbelow.test", "secret.evil.test", strings.Repeat("a.", 127) + "below.test"} {
		if a := g.name(name[:min(len(name), wire.MaxName)], dns.TypeA); a.Allow || !a.NXName {
			t.Errorf("%s: %+v", name, a)
		}
	}
	for _, qtype := range []uint16{dns.TypeTXT, dns.TypeMX, dns.TypeANY, dns.TypeNS, dns.TypeNULL, 65000, dns.TypeHTTPS, dns.TypeSVCB} {
		before := b.events.count(policy.DenyQuery)
		if a := g.name("a.test", qtype); !a.Allow || a.NXName || len(a.Addrs) != 0 {
			t.Errorf("type %d: %+v", qtype, a)
		}
		if qtype != dns.TypeHTTPS && qtype != dns.TypeSVCB {
			eventually(t, "it is told", func() bool { return b.events.count(policy.DenyQuery) == before+1 })
		}
	}
	if n := asked(); n != 0 {
		t.Errorf("%d questions left", n)
	}
	if n := b.events.count(policy.DenyQuery); n != 6 {
		t.Errorf("%d query types told", n)
	}
	g.name("a.test", dns.TypeA)
	if n := asked(); n != 1 {
		t.Errorf("%d questions for an allowed name", n)
	}
}

// TestCacheAndFlight: one question for many askers, and one answer kept.
func TestCacheAndFlight(t *testing.T) {
	b := newBench(t, nil, Link{Policy: rules(t, `[{"allow":"*.test"},{"allow":"127.0.0.0/8"}]`)})
	hold := make(chan struct{})
	asked := nameServer(t, b, func(q *dns.Msg, tcp bool) []*dns.Msg {
		<-hold
		return []*dns.Msg{records(q, q.Question[0].Name+" 200 IN A 127.0.0.9")}
	})
	g := b.gateway()
	for i := range uint64(50) {
		if err := g.wire.SendAsk(wire.Ask{Seq: i + 1, Op: wire.OpName, Name: "a.test", Type: dns.TypeA}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "it is asked", func() bool { return asked() == 1 })
	close(hold)
	for range 50 {
		if a, _, err := g.wire.ReceiveAnswer(); err != nil || len(a.Addrs) != 1 {
			t.Fatalf("%+v, %v", a, err)
		}
	}
	g.seq = 50
	if a := g.name("a.test", dns.TypeA); len(a.Addrs) != 1 || a.TTL != guestTTL {
		t.Errorf("%+v", a)
	}
	if n := asked(); n != 1 {
		t.Errorf("asked %d times", n)
	}
}

// TestSilentServer: a name server that says nothing takes no more than its share
// of the time, and that it failed is remembered for a moment.
func TestSilentServer(t *testing.T) {
	silent, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	b := newBench(t, nil, Link{Policy: rules(t, `[{"allow":"*.test"},{"allow":"127.0.0.0/8"}]`)})
	r := b.broker.resolver.current
	r.servers = []string{silent.LocalAddr().String()}
	nameServer(t, b, func(q *dns.Msg, tcp bool) []*dns.Msg {
		return []*dns.Msg{records(q, q.Question[0].Name+" 200 IN A 127.0.0.9")}
	})
	if a := b.gateway().name("a.test", dns.TypeA); len(a.Addrs) != 1 {
		t.Errorf("the second server was not asked: %+v", a)
	}
}

// TestFailureIsKept: a name about which nobody can say anything is not asked
// about again at once, however often a sandbox does.
func TestFailureIsKept(t *testing.T) {
	b := newBench(t, nil, Link{Policy: rules(t, `[{"allow":"a.test"}]`)})
	asked := nameServer(t, b, func(q *dns.Msg, tcp bool) []*dns.Msg {
		m := records(q)
		m.Rcode = dns.RcodeServerFailure
		return []*dns.Msg{m}
	})
	g := b.gateway()
	began := time.Now()
	for range 50 {
		if a := g.name("a.test", dns.TypeA); a.Fault != unresolved {
			t.Fatalf("%+v", a)
		}
	}
	if most := 2 * (1 + int(time.Since(began)/failedTTL)); asked() > most {
		t.Errorf("asked %d times", asked())
	}
	if got := b.broker.Close("sb").Faults; !slices.Equal(got, []string{"a.test: could not be resolved: a name server says: SERVFAIL"}) {
		t.Errorf("faults %q", got)
	}
}

// TestKnownNames: which of some known names is asked about again says something,
// too, so it costs where a name server hears of it.
func TestKnownNames(t *testing.T) {
	s, now := &stuffing{}, time.Now()
	if !s.pass("abcd.test", 4, true, now) || s.tokens != stuffFirst-4 {
		t.Fatal(s.tokens)
	}
	if !s.pass("abcd.test", 4, false, now) || s.tokens != stuffFirst-4 {
		t.Error("from the cache:", s.tokens)
	}
	let := 0
	for range stuffFirst {
		if s.pass("abcd.test", 4, true, now) {
			let++
		}
	}
	if let != (stuffFirst-4)/stuffAgain {
		t.Errorf("%d questions about a known name left", let)
	}
}

func TestStuffing(t *testing.T) {
	b := newBench(t, nil, Link{Policy: rules(t, `[{"allow":"*.tunnel.test"},{"allow":"exact.test"}]`)})
	asked := nameServer(t, b, func(q *dns.Msg, tcp bool) []*dns.Msg { return []*dns.Msg{records(q)} })
	g := b.gateway()
	label := strings.Repeat("x", 56)
	if a := g.name(label+"."+label+".12345678.tunnel.test", dns.TypeA); a.Allow || a.Reason != policy.DenyStuffing {
		t.Errorf("a long name: %+v", a)
	}
	let := 0
	for i := range 200 {
		if a := g.name(fmt.Sprintf("%s%04d.tunnel.test", label, i), dns.TypeA); a.Allow {
			let++
		} else if a.Reason != policy.DenyStuffing || !a.NXName {
			t.Fatalf("%+v", a)
		}
	}
	if let < 2048/60 || let > 2048/60+20 || asked() != let { // 64 bytes a second come in, on a slow machine
		t.Errorf("%d names of 60 bytes were let through, %d asked", let, asked())
	}
	b.broker.Change("sb", rules(t, `[{"allow":"*.tunnel.test","connections":9},{"allow":"*.tunnel.test:1"},{"allow":"exact.test"}]`))
	let = 0
	for i := range 40 {
		if a := g.name(fmt.Sprintf("%s%04d.tunnel.test", label, 1000+i), dns.TypeA); a.Allow {
			let++
		}
	}
	if let > 20 {
		t.Errorf("%d names more with a rule of another text", let)
	}
	if a := g.name(label+"0000.tunnel.test", dns.TypeA); !a.Allow {
		t.Errorf("a name that was asked before: %+v", a)
	}
	if a := g.name("exact.test", dns.TypeA); !a.Allow {
		t.Errorf("another rule: %+v", a)
	}
}

func TestLearn(t *testing.T) {
	c := newCanaries(t)
	b := newBench(t, nil, Link{Learn: true, Policy: rules(t, `[{"allow":"127.0.0.1/32"}]`)})
	asked := nameServer(t, b, func(q *dns.Msg, tcp bool) []*dns.Msg { return []*dns.Msg{records(q)} })
	g := b.gateway()
	made := map[netip.Addr]string{}
	for _, name := range []string{"b.test", "a.test", "looked.test", "b.test"} {
		a := g.name(name, dns.TypeA)
		if !a.Allow || len(a.Addrs) != 1 || !madeUp.Contains(a.Addrs[0]) || made[a.Addrs[0]] != "" && made[a.Addrs[0]] != name {
			t.Fatalf("%s: %+v", name, a)
		}
		made[a.Addrs[0]] = name
		if a := g.name(name, dns.TypeAAAA); !a.Allow || len(a.Addrs) != 0 || a.NXName {
			t.Errorf("%s AAAA: %+v", name, a)
		}
	}
	if len(made) != 3 {
		t.Errorf("%v", made)
	}
	if a := g.name("not a name", dns.TypeA); a.Allow {
		t.Errorf("%+v", a)
	}
	for addr, name := range made {
		if name == "looked.test" {
			continue
		}
		for range 2 {
			if a, conn := g.connect(netip.AddrPortFrom(addr, 443), wire.Ask{Seen: "tls", Claim: name}); a.Allow || conn != nil || a.Reason != policy.DenyNoRule {
				t.Errorf("%s: %+v", name, a)
			}
		}
	}
	if a, conn := g.connect(c.tcp4, wire.Ask{Seen: "raw"}); a.Allow || conn != nil {
		t.Errorf("%+v", a)
	}
	g.ask(wire.Ask{Op: wire.OpConnect, Flow: 99, Seen: "udp", To: c.udp})
	g.wire.SendAsk(wire.Ask{Op: wire.OpDenied, Kind: "icmp", Reason: "icmp", To: c.udp})
	want := []string{c.tcp4.String(), "a.test:443", "b.test:443", "looked.test"}
	g.name("looked.test", dns.TypeA)
	sum := b.broker.Close("sb")
	if !slices.Equal(sum.Wanted, want) {
		t.Errorf("wanted %q, want %q", sum.Wanted, want)
	}
	if asked() != 0 || c.seen.Load() != 0 || len(sum.Hosts) != 0 {
		t.Errorf("%d questions, %d canaries, hosts %v", asked(), c.seen.Load(), sum.Hosts)
	}
	if _, ok := b.events.find(func(x Event) bool { return x.Allowed }); ok {
		t.Error("something was allowed")
	}
}

func TestOwn(t *testing.T) {
	for _, a := range addrs("127.0.0.1", "127.9.9.9", "::ffff:127.0.0.1") {
		if !own(a) {
			t.Errorf("%s is this host's", a)
		}
	}
	for _, a := range addrs("192.0.2.200", "198.51.100.7", "2001:db8:77::7") {
		if own(a) {
			t.Errorf("%s is not this host's", a)
		}
	}
	// The other way, for hosts where anything can be bound to.
	for _, a := range addrs("127.0.0.1", "127.9.9.9", "::1") {
		if bind(a) == nil && !home(a) {
			t.Errorf("packets to %s stay here", a)
		}
	}
	list, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range list {
		a, _ := netip.AddrFromSlice(x.(*net.IPNet).IP)
		if a = a.Unmap(); !a.IsLinkLocalUnicast() && (!own(a) || !home(a)) {
			t.Errorf("%s is this host's: %v, %v", a, own(a), home(a))
		}
	}
	for _, a := range addrs("192.0.2.200", "198.51.100.7", "2001:db8:77::7") {
		if home(a) {
			t.Errorf("packets to %s leave", a)
		}
	}
	if !routed(netip.MustParseAddr("127.0.0.1")) {
		t.Error("no way to loopback")
	}
}

func TestFiles(t *testing.T) {
	r := parseFiles(&Files{Resolv: []byte("search x.test\nnameserver 127.0.0.1\nnameserver ::1\nnameserver 127.0.0.3\nnameserver 127.0.0.4\noptions timeout:1 attempts:9 ndots:5\n")})
	if want := []string{"127.0.0.1:53", "[::1]:53", "127.0.0.3:53"}; !slices.Equal(r.servers, want) || r.attempts != 5 || r.timeout != time.Second {
		t.Errorf("%+v", r)
	}
	dir := t.TempDir()
	v := &resolver{paths: [2]string{dir + "/hosts", dir + "/resolv.conf"}}
	if f := v.files(); len(f.hosts) != 0 || len(f.servers) != 0 {
		t.Errorf("without files: %+v", f)
	}
	if err := os.WriteFile(v.paths[0], []byte("192.0.2.1 a.test"), 0o600); err != nil {
		t.Fatal(err)
	}
	if f := v.files(); len(f.hosts) != 0 {
		t.Error("files are looked at each time")
	}
	v.looked = time.Now().Add(-filesAge)
	if f := v.files(); len(f.hosts["a.test"]) != 1 {
		t.Errorf("a file that came later: %+v", f)
	}
}
