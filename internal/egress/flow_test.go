package egress

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/bermhq/berm/internal/egress/wire"
	"github.com/bermhq/berm/internal/policy"
	"github.com/bermhq/berm/internal/testkit"
)

// cutOff says whether a connection was ended.
func cutOff(c net.Conn) bool {
	_, err := io.Copy(io.Discard, c)
	return err == nil || !errors.Is(err, os.ErrDeadlineExceeded)
}

// allowing is one rule for a server, with more fields.
func allowing(t *testing.T, s *server, more string) *policy.Egress {
	t.Helper()
	return rules(t, `[{"allow":"127.0.0.1/32:%d"%s}]`, s.at.Port(), more)
}

func TestCuts(t *testing.T) {
	testkit.NoLeak(t)
	s := newServer(t, "127.0.0.1:0", echo)
	kept := newServer(t, "127.0.0.1:0", echo)
	both := rules(t, `[{"allow":"127.0.0.1/32:%d"},{"allow":"127.0.0.1/32:%d"}]`, s.at.Port(), kept.at.Port())
	for what, cut := range map[string]func(*bench, *gateway){
		"a narrower policy": func(b *bench, g *gateway) { b.broker.Change("sb", allowing(t, kept, "")) },
		"a policy of nothing": func(b *bench, g *gateway) {
			b.broker.Change("sb", nil)
		},
		"the link's end":              func(b *bench, g *gateway) { b.broker.Close("sb") },
		"the flow's end":              func(b *bench, g *gateway) { g.over() },
		"the gateway's end":           func(b *bench, g *gateway) { g.raw.Close(); <-g.done },
		"a gateway that talks rot":    func(b *bench, g *gateway) { g.raw.Write([]byte("rot")) },
		"an ask with a second object": func(b *bench, g *gateway) { g.raw.Write([]byte(`{"op":"close"} {}`)) },
	} {
		t.Run(what, func(t *testing.T) {
			b := newBench(t, nil, Link{Policy: both})
			g := b.gateway()
			a, other := g.connect(kept.at, raw)
			if other == nil || !works(other) {
				t.Fatalf("%+v", a)
			}
			a, c := g.connect(s.at, raw)
			if c == nil || !works(c) {
				t.Fatalf("%+v", a)
			}
			cut(b, g)
			if !cutOff(c) {
				t.Error("the connection goes on")
			}
			if what == "a narrower policy" {
				if !works(other) {
					t.Error("a connection that is allowed still was cut")
				}
				eventually(t, "the cut is told", func() bool {
					_, ok := b.events.find(func(x Event) bool { return !x.Allowed && x.Data.Target == s.at.String() })
					return ok
				})
				if a, _ := g.connect(s.at, raw); a.Allow {
					t.Errorf("again: %+v", a)
				}
			}
		})
	}
}

func TestCaps(t *testing.T) {
	s := newServer(t, "127.0.0.1:0", echo)
	t.Run("uses", func(t *testing.T) {
		b := newBench(t, nil, Link{Policy: allowing(t, s, `,"uses":1`)})
		g := b.gateway()
		if a, c := g.connect(s.at, raw); c == nil || !works(c) {
			t.Fatalf("%+v", a)
		}
		g.over()
		if a, _ := g.connect(s.at, raw); a.Allow || a.Reason != policy.DenyUsed {
			t.Errorf("the second: %+v", a)
		}
		b.broker.Change("sb", rules(t, `[]`))
		b.broker.Change("sb", allowing(t, s, `,"uses":1`))
		if a, _ := g.connect(s.at, raw); a.Allow || a.Reason != policy.DenyUsed {
			t.Errorf("after a change there and back: %+v", a)
		}
		if a, _ := b.gateway().connect(s.at, raw); a.Allow || a.Reason != policy.DenyUsed {
			t.Errorf("another gateway: %+v", a)
		}
	})
	t.Run("uses that race", func(t *testing.T) {
		b := newBench(t, nil, Link{Policy: allowing(t, s, `,"uses":3`)})
		g := b.gateway()
		for i := range uint64(20) {
			g.wire.SendAsk(wire.Ask{Seq: 100 + i, Op: wire.OpAccept, Flow: i + 1, To: s.at})
		}
		made := 0
		for range 20 {
			_, fd, err := g.wire.ReceiveAnswer()
			if err != nil {
				t.Fatal(err)
			}
			if g.conn(fd) != nil {
				made++
			}
		}
		if made != 3 {
			t.Errorf("%d connections by a rule with three uses", made)
		}
	})
	t.Run("uses are kept elsewhere", func(t *testing.T) {
		p := allowing(t, s, `,"uses":3`)
		text := p.Rules[0].Text
		var mu sync.Mutex
		var told []int
		fail := error(nil)
		b := newBench(t, nil, Link{Policy: p, Used: map[string]int{text: 1}, Use: func(rule string, n int) error {
			mu.Lock()
			defer mu.Unlock()
			if rule != text {
				t.Errorf("rule %q", rule)
			}
			told = append(told, n)
			return fail
		}})
		g := b.gateway()
		if _, c := g.connect(s.at, raw); c == nil || !works(c) {
			t.Fatal("the second use")
		}
		mu.Lock()
		fail = errors.New("disk full")
		mu.Unlock()
		before := s.seen()
		if a, c := g.connect(s.at, raw); a.Allow || c != nil {
			t.Errorf("what cannot be kept: %+v", a)
		}
		if a, _ := g.connect(s.at, raw); a.Allow || a.Reason != policy.DenyUsed {
			t.Errorf("the fourth: %+v", a)
		}
		mu.Lock()
		defer mu.Unlock()
		if s.seen() != before || !slices.Equal(told, []int{2, 3}) {
			t.Errorf("told %v, %d dialled", told, s.seen()-before)
		}
	})
	t.Run("rate", func(t *testing.T) {
		b := newBench(t, nil, Link{Policy: allowing(t, s, `,"rate":"2/h"`)})
		g := b.gateway()
		for i := range 3 {
			if a, _ := g.connect(s.at, raw); a.Allow != (i < 2) || !a.Allow && a.Reason != policy.DenyRate {
				t.Errorf("connection %d: %+v", i+1, a)
			}
		}
	})
	t.Run("connections", func(t *testing.T) {
		b := newBench(t, nil, Link{Policy: allowing(t, s, `,"connections":1`)})
		g := b.gateway()
		if a, c := g.connect(s.at, raw); c == nil {
			t.Fatalf("%+v", a)
		}
		first := g.flow
		if a, _ := g.connect(s.at, raw); a.Allow || a.Reason != policy.DenyBusy {
			t.Errorf("two at a time: %+v", a)
		}
		g.flow, first = first, g.flow
		g.over()
		g.flow = first
		if a, c := g.connect(s.at, raw); c == nil {
			t.Errorf("one after the other: %+v", a)
		}
	})
	t.Run("expiry", func(t *testing.T) {
		var b *bench
		var g *gateway
		var c net.Conn
		for life := time.Second; c == nil; life *= 2 { // a busy machine may take longer than that
			b = newBench(t, nil, Link{Policy: allowing(t, s, fmt.Sprintf(`,"expires":%q`, time.Now().Add(life).UTC().Format(time.RFC3339Nano)))})
			g = b.gateway()
			var a wire.Answer
			if a, c = g.connect(s.at, raw); c == nil && (a.Reason != policy.DenyExpired || life > patience) {
				t.Fatalf("%+v", a)
			}
		}
		if !cutOff(c) {
			t.Error("a connection outlives its grant")
		}
		if a, _ := g.connect(s.at, raw); a.Allow || a.Reason != policy.DenyExpired {
			t.Errorf("afterwards: %+v", a)
		}
		eventually(t, "it is told", func() bool { return b.events.denied(policy.DenyExpired) })
	})
	t.Run("descriptors of all sandboxes", func(t *testing.T) {
		b := newBench(t, nil, Link{Policy: allowing(t, s, "")})
		b.broker.links["sb"].room.most = 2
		g := b.gateway()
		for i := range 3 {
			a, c := g.connect(s.at, raw)
			if (c != nil) != (i < 2) || i == 2 && a.Reason != policy.DenyBudget {
				t.Fatalf("connection %d: %+v", i+1, a)
			}
		}
		g.wire.SendAsk(wire.Ask{Op: wire.OpClose, Flow: 1}) // one that is over leaves its place
		eventually(t, "there is room again", func() bool { _, c := g.connect(s.at, raw); return c != nil })
		if n := b.broker.Close("sb"); len(n.Hosts) == 0 || b.broker.room.open.Load() != 0 {
			t.Errorf("%d places are taken by nobody", b.broker.room.open.Load())
		}
	})
	t.Run("flows", func(t *testing.T) {
		b := newBench(t, nil, Link{Policy: allowing(t, s, "")})
		g := b.gateway()
		for i := range maxFlows + 1 {
			g.flow++
			a, fd := g.ask(wire.Ask{Op: wire.OpAccept, Flow: g.flow, To: s.at})
			if g.conn(fd); a.Allow != (i < maxFlows) {
				t.Fatalf("flow %d: %+v", i+1, a)
			}
		}
	})
}

// TestReset: what a guest cut off is cut off outside, too, and does not end as if
// all was said.
func TestReset(t *testing.T) {
	ended := make(chan error, 1)
	s := newServer(t, "127.0.0.1:0", func(c net.Conn) {
		_, err := io.Copy(io.Discard, c)
		ended <- err
	})
	b := newBench(t, nil, Link{Policy: allowing(t, s, "")})
	g := b.gateway()
	for reason, want := range map[string]error{"": nil, wire.CloseReset: syscall.ECONNRESET} {
		_, c := g.connect(s.at, raw)
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if err := g.wire.SendAsk(wire.Ask{Op: wire.OpClose, Flow: g.flow, Reason: reason}); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; !errors.Is(err, want) {
			t.Errorf("%q: the server saw %v", reason, err)
		}
		if !cutOff(c) {
			t.Errorf("%q: the gateway's copy goes on", reason)
		}
	}
}

// TestBytes: the gateway says nothing, and the kernel counts.
func TestBytes(t *testing.T) {
	for what, serve := range map[string]func(net.Conn){
		"in":  func(c net.Conn) { io.Copy(c, zeros{}) },
		"out": func(c net.Conn) { io.Copy(io.Discard, c) },
	} {
		t.Run(what, func(t *testing.T) {
			s := newServer(t, "127.0.0.1:0", serve)
			b := newBench(t, nil, Link{Policy: allowing(t, s, `,"bytes":1000000`)})
			g := b.gateway()
			a, c := g.connect(s.at, raw)
			if c == nil {
				t.Fatalf("%+v", a)
			}
			if what == "out" {
				io.Copy(c, zeros{})
			} else if !cutOff(c) {
				t.Error("it goes on")
			}
			eventually(t, "it is told", func() bool { return b.events.denied(policy.DenyBytes) })
			if n := b.events.count(policy.DenyBytes); n != 1 {
				t.Errorf("told %d times", n)
			}
			if a, _ := g.connect(s.at, raw); a.Allow || a.Reason != policy.DenyBytes {
				t.Errorf("afterwards: %+v", a)
			}
			if sum := b.broker.Close("sb"); sum.InBytes+sum.OutBytes < 1000000 {
				t.Errorf("%d bytes out, %d in", sum.OutBytes, sum.InBytes)
			}
		})
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// TestBytesAreExact: what the kernel counts is what was carried, to the byte.
func TestBytesAreExact(t *testing.T) {
	s := newServer(t, "127.0.0.1:0", echo)
	b := newBench(t, nil, Link{Policy: allowing(t, s, "")})
	g := b.gateway()
	const n = 777777
	_, c := g.connect(s.at, raw)
	go c.Write(make([]byte, n))
	if _, err := io.ReadFull(c, make([]byte, n)); err != nil {
		t.Fatal(err)
	}
	if sum := b.broker.Summary("sb"); sum.OutBytes != n || sum.InBytes != n {
		t.Errorf("%d out, %d in; want %d", sum.OutBytes, sum.InBytes, n)
	}
	c.Close()
	g.over()
	if sum := b.broker.Close("sb"); sum.OutBytes != n || sum.InBytes != n {
		t.Errorf("at the end %d out, %d in; want %d", sum.OutBytes, sum.InBytes, n)
	}
}

// TestAnotherAddress: where the first address does not answer, others of the
// same name are tried, and only those.
func TestAnotherAddress(t *testing.T) {
	s := newServer(t, "127.0.0.3:0", echo)
	canary := newServer(t, fmt.Sprintf("127.0.0.4:%d", s.at.Port()), echo)
	b := newBench(t, &Files{Hosts: []byte("127.0.0.2 one.test\n127.0.0.3 one.test\n127.0.0.4 two.test\n")}, Link{Policy: rules(t,
		`[{"allow":"one.test:%d"},{"allow":"two.test:1"},{"allow":"127.0.0.0/8:1"},{"allow":"127.0.0.2/31:%d"}]`, s.at.Port(), s.at.Port())})
	g := b.gateway()
	if a := g.name("one.test", dns.TypeA); len(a.Addrs) != 2 {
		t.Fatalf("%+v", a)
	}
	if a := g.name("two.test", dns.TypeA); len(a.Addrs) != 1 {
		t.Fatalf("%+v", a)
	}
	a, c := g.connect(netip.MustParseAddrPort(fmt.Sprintf("127.0.0.2:%d", s.at.Port())), wire.Ask{Seen: "tls", Claim: "one.test"})
	if c == nil || !works(c) || c.RemoteAddr().String() != s.at.String() {
		t.Fatalf("%+v", a)
	}
	if canary.seen() != 0 {
		t.Error("the address of another name was dialled")
	}
	before := s.seen()
	b.broker.Change("sb", rules(t, `[{"allow":"one.test:%d"},{"allow":"127.0.0.2/32:%d"}]`, s.at.Port(), s.at.Port()))
	a, c = g.connect(netip.MustParseAddrPort(fmt.Sprintf("127.0.0.2:%d", s.at.Port())), wire.Ask{Seen: "tls", Claim: "one.test"})
	if c != nil || a.Fault != "refused" {
		t.Fatalf("where the other address is no longer allowed: %+v", a)
	}
	if s.seen() != before {
		t.Error("an address that is not allowed was dialled")
	}
}

// TestChangeMeanwhile: a connection that was allowed when it was asked for, and is
// not when it is made, is not handed over.
func TestChangeMeanwhile(t *testing.T) {
	s := newServer(t, "127.0.0.1:0", echo)
	p := allowing(t, s, `,"uses":9`)
	for what, change := range map[string]func(*bench){
		"denied":       func(b *bench) { b.broker.Change("sb", rules(t, `[]`)) },
		"still there":  func(b *bench) { b.broker.Change("sb", allowing(t, s, `,"uses":9`)) },
		"another rule": func(b *bench) { b.broker.Change("sb", allowing(t, s, "")) },
		"over": func(b *bench) {
			l := b.broker.link("sb")
			go b.broker.Close("sb")
			<-l.done
		},
	} {
		t.Run(what, func(t *testing.T) {
			var b *bench
			asked := make(chan struct{})
			b = newBench(t, nil, Link{Policy: p, Use: func(string, int) error {
				<-asked
				return nil
			}})
			l := b.broker.link("sb")
			g := b.gateway()
			g.flow++
			g.wire.SendAsk(wire.Ask{Seq: 5, Op: wire.OpAccept, Flow: g.flow, To: s.at})
			eventually(t, "it is dialled next", func() bool { l.mu.Lock(); defer l.mu.Unlock(); return l.spent[p.Rules[0].Text] != nil })
			change(b)
			close(asked)
			a, fd, err := g.wire.ReceiveAnswer()
			c := g.conn(fd)
			switch what {
			case "over":
				if err == nil && (a.Allow || c != nil) {
					t.Errorf("%+v", a)
				}
			case "denied":
				if err != nil || a.Allow || c != nil || a.Reason == "" {
					t.Errorf("%+v, %v", a, err)
				}
			default:
				if err != nil || c == nil || !works(c) {
					t.Errorf("%+v, %v", a, err)
				}
			}
		})
	}
}

func TestRequests(t *testing.T) {
	s := newServer(t, "127.0.0.1:0", echo)
	b := newBench(t, &Files{Hosts: []byte("127.0.0.1 one.test two.test\n")}, Link{Policy: rules(t, `[
		{"allow":"one.test:%[1]d","methods":["GET"],"paths":["/a"],"uses":3,"connections":1},
		{"allow":"two.test:1"}, {"deny":"two.test:%[1]d"}, {"allow":"127.0.0.1/32","methods":["GET"],"paths":["/a"]}]`, s.at.Port())})
	g := b.gateway()
	g.name("one.test", dns.TypeA)
	g.name("two.test", dns.TypeA)
	get := wire.Ask{Seen: "http", Claim: "one.test", Method: "GET", Path: "/a"}
	if a, c := g.connect(s.at, get); c == nil {
		t.Fatalf("%+v", a)
	}
	for _, tt := range []struct {
		claim, method, path, reason string
	}{
		{"one.test", "GET", "/a/b", ""},
		{"one.test", "POST", "/a", policy.DenyMethod},
		{"one.test", "GET", "/b", policy.DenyPath},
		{"two.test", "GET", "/a", policy.DenyRule},
		{"", "GET", "/a", policy.DenyRule},
		{"one.test", "GET", "/a", ""},
		{"one.test", "GET", "/a", policy.DenyUsed},
	} {
		a, fd := g.ask(wire.Ask{Op: wire.OpRequest, Flow: g.flow, Claim: tt.claim, Method: tt.method, Path: tt.path})
		if a.Allow != (tt.reason == "") || a.Reason != tt.reason || fd >= 0 {
			t.Errorf("%+v: %+v", tt, a)
		}
	}
	eventually(t, "a request is told", func() bool {
		x, ok := b.events.find(func(x Event) bool { return x.Data.Reason == policy.DenyPath })
		return ok && x.Data.Kind == "http" && x.Data.Path == "/b" && x.Data.Method == "GET" && strings.HasPrefix(x.Data.Target, "one.test:")
	})
}

func TestQUIC(t *testing.T) {
	p, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	at := p.LocalAddr().(*net.UDPAddr).AddrPort()
	b := newBench(t, nil, Link{Policy: rules(t, `[{"allow":"127.0.0.1/32:%d","quic":true}]`, at.Port())})
	g := b.gateway()
	a, fd := g.ask(wire.Ask{Op: wire.OpConnect, Flow: 1, Seen: "udp", To: at})
	c := g.conn(fd)
	if c == nil {
		t.Fatalf("%+v", a)
	}
	c.Write([]byte("x"))
	p.SetReadDeadline(time.Now().Add(patience))
	n, from, err := p.ReadFrom(make([]byte, 10))
	if n != 1 || err != nil {
		t.Error(n, err)
	}
	b.broker.Change("sb", rules(t, `[]`))
	if _, err := c.Write([]byte("x")); err == nil {
		_, err = c.Write([]byte("x"))
		if err == nil {
			t.Error("a cut UDP flow still sends")
		}
	}
	p.WriteTo([]byte("late"), from)
	c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	if n, _ := c.Read(make([]byte, 10)); n != 0 {
		t.Error("a cut UDP flow still receives")
	}
	b.broker.Change("sb", rules(t, `[{"allow":"127.0.0.1/32:%d","quic":true,"bytes":100}]`, at.Port()))
	if a, _ := g.ask(wire.Ask{Op: wire.OpConnect, Flow: 2, Seen: "udp", To: at}); a.Allow || a.Reason != policy.DenyBytes {
		t.Errorf("bytes that nobody counts: %+v", a)
	}
}

// TestNoDescriptorLeaks: a thousand flows, and as many descriptors as before.
func TestNoDescriptorLeaks(t *testing.T) {
	testkit.NoLeak(t)
	descriptors := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	s := newServer(t, "127.0.0.1:0", echo)
	b := newBench(t, nil, Link{Policy: rules(t, `[{"allow":"127.0.0.1/32:%d"},{"allow":"127.0.0.1/32:1"}]`, s.at.Port())})
	g := b.gateway()
	before := descriptors()
	for i := range 1000 {
		at := s.at
		if i%10 == 0 {
			at = netip.AddrPortFrom(s.at.Addr(), 1) // refused
		}
		_, c := g.connect(at, raw)
		if c != nil {
			c.Close()
		}
		if i%20 != 5 { // some are left to the end
			g.over()
		}
	}
	g.raw.Close()
	<-g.done
	eventually(t, "all are closed", func() bool { return descriptors() <= before })
	if n := len(b.broker.link("sb").flows); n != 0 {
		t.Errorf("%d flows are left", n)
	}
}

// TestSharedAddress: what is denied is told of the name that the client showed,
// whatever else was resolved to that address.
func TestSharedAddress(t *testing.T) {
	s := newServer(t, "127.0.0.1:0", echo)
	port := s.at.Port()
	p, err := policy.ParseEgress(json.RawMessage(`[{"allow":"preset:one","uses":1},{"allow":"preset:four","rate":"1/h"}]`), time.Now(), func(name string) (policy.Preset, error) {
		return policy.Preset{Hosts: []string{fmt.Sprintf("%s.test:%d", name, port)}}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	b := newBench(t, &Files{Hosts: []byte("127.0.0.1 one.test four.test\n")}, Link{Policy: p})
	g := b.gateway()
	claim := func(name string) wire.Ask { return wire.Ask{Seen: "tls", Claim: name} }
	for _, name := range []string{"four.test", "one.test"} {
		g.name(name, dns.TypeA)
		if a, c := g.connect(s.at, claim(name)); c == nil {
			t.Fatalf("%s: %+v", name, a)
		}
	}
	for name, want := range map[string]struct{ reason, rule string }{
		"one.test": {policy.DenyUsed, p.Rules[0].Text}, "four.test": {policy.DenyRate, p.Rules[1].Text}, "evil.test": {policy.DenyName, ""},
	} {
		if a, _ := g.connect(s.at, claim(name)); a.Allow || a.Reason != want.reason {
			t.Errorf("%s: %+v", name, a)
		}
		target := net.JoinHostPort(name, strconv.Itoa(int(port)))
		eventually(t, "it is told of "+name, func() bool {
			_, ok := b.events.find(func(x Event) bool {
				return x.Data.Target == target && x.Data.Reason == want.reason && x.Data.Rule == want.rule
			})
			return ok
		})
	}
}
