package egress

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/miekg/dns"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/egress/wire"
	"github.com/bermhq/berm/internal/policy"
	"github.com/bermhq/berm/internal/testkit"
)

// TestCounted: what happens often is told seldom, and nothing is lost.
func TestCounted(t *testing.T) {
	testkit.NoLeak(t)
	e := &events{}
	l := newTeller(e.sink)
	for i := range 500 {
		l.deny(api.EgressData{Kind: "dns", Target: "a.test", Reason: policy.DenyNoRule}, 1)
		l.deny(api.EgressData{Kind: "tcp", Target: fmt.Sprint(i), Reason: policy.DenyNoRule, Text: "why", Rule: "r", Fix: "how"}, 1)
		l.allow(api.EgressData{Kind: "tls", Target: "b.test:443", Rule: "b.test"})
	}
	l.deny(api.EgressData{Kind: "icmp", Target: "c", Reason: policy.DenyICMP}, 77)
	l.bytes(api.EgressData{Kind: "tls", Target: "b.test:443", Rule: "b.test"}, 10, 20)
	l.bytes(api.EgressData{Kind: "tls", Target: "b.test:443", Rule: "b.test"}, 1, 2)
	l.hurry()
	l.close()
	l.deny(api.EgressData{Kind: "dns", Target: "late", Reason: policy.DenyNoRule}, 1)

	type sum struct{ n, events int }
	got := map[string]sum{}
	for _, x := range e.list {
		s := got[x.Data.Kind]
		s.events++
		switch {
		case x.Data.Since == "":
			s.n++
		default:
			s.n += x.Data.Count
		}
		got[x.Data.Kind] = s
		if x.Allowed != (x.Data.Verdict == "allowed") || !x.Allowed && x.Data.Verdict != "denied" {
			t.Errorf("%+v", x)
		}
	}
	// A slow machine needs more than a second, and tells twenty more in each.
	if s := got["dns"]; s.n != 500 || s.events < deniedASec+1 || s.events > 300 {
		t.Errorf("dns: %+v", s)
	}
	if s := got["tcp"]; s.n != 500 || s.events != 500 {
		t.Errorf("tcp: %+v", s)
	}
	if s := got["tls"]; s.n != 500 || s.events != 2 {
		t.Errorf("tls: %+v", s)
	}
	if s := got["icmp"]; s.n != 77 || s.events != 1 {
		t.Errorf("icmp: %+v", s)
	}
	if last := e.list[len(e.list)-1]; !slices.ContainsFunc(e.list, func(x Event) bool { return x.Data.EgressBytes == 11 && x.Data.IngressBytes == 22 }) {
		t.Errorf("bytes: last %+v", last)
	}
	var s Summary
	l.summary(&s)
	if len(s.Denied) != summaryItems || !s.Truncated || !s.DeniedTruncated {
		t.Errorf("%d denials listed, truncated %v", len(s.Denied), s.Truncated)
	}
	if d := s.Denied[1]; d != (api.Denial{Kind: "egress", Target: "0", Rule: "r", Reason: "why", Code: policy.DenyNoRule, Fix: "how"}) {
		t.Errorf("%+v", d)
	}
}

// TestTooManyKinds: a flood of different things is told as it comes, and who
// brings it waits for the sink.
func TestTooManyKinds(t *testing.T) {
	testkit.NoLeak(t)
	var n atomic.Int64
	gate := make(chan struct{})
	l := newTeller(func(Event) { <-gate; n.Add(1) })
	const all = tellKeys + 2000
	done := make(chan struct{})
	go func() {
		for i := range all {
			l.deny(api.EgressData{Kind: "tcp", Target: fmt.Sprint(i), Reason: policy.DenyNoRule}, 1)
		}
		close(done)
	}()
	eventually(t, "the queue is full", func() bool { l.mu.Lock(); defer l.mu.Unlock(); return len(l.queue) == tellQueue })
	select {
	case <-done:
		t.Error("nobody waited for the sink")
	default:
	}
	close(gate)
	<-done
	l.hurry()
	l.close()
	if n.Load() != all {
		t.Errorf("%d told", n.Load())
	}
	if len(l.tallies) > tellKeys {
		t.Errorf("%d kinds are kept", len(l.tallies))
	}
}

// TestSinkMayEnd: what a sink hears may make somebody end the sandbox, while the
// sink still has it.
func TestSinkMayEnd(t *testing.T) {
	testkit.NoLeak(t)
	b := New(Options{Files: &Files{}})
	ended := make(chan Summary, 1)
	var once atomic.Bool
	if err := b.Open("sb", Link{Policy: rules(t, `[]`), Sink: func(Event) {
		if once.CompareAndSwap(false, true) {
			go func() { ended <- b.Close("sb") }()
		}
	}}); err != nil {
		t.Fatal(err)
	}
	ours, theirs := unixPair(t)
	served := make(chan error, 1)
	go func() { served <- b.Serve("sb", theirs) }()
	g := wire.NewConn(ours)
	g.SendAsk(wire.Ask{Seq: 1, Op: wire.OpName, Name: "a.test", Type: dns.TypeA})
	if sum := <-ended; len(sum.Denied) != 1 {
		t.Errorf("%+v", sum)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// TestReported: what a gateway refused by itself is recorded in words that are
// ours.
func TestReported(t *testing.T) {
	b := newBench(t, &Files{Hosts: []byte("127.0.0.1 one.test")}, Link{Policy: rules(t, `[{"allow":"one.test"},{"allow":"127.0.0.1/32"}]`)})
	g := b.gateway()
	g.name("one.test", dns.TypeA)
	to := newServer(t, "127.0.0.1:0", echo).at
	l := b.broker.links["sb"]
	l.mu.Lock()
	l.handed.add("two.test", netip.MustParseAddr("192.0.2.9"))
	l.mu.Unlock()
	for _, a := range []wire.Ask{
		{Kind: "udp", Reason: policy.DenyUDP, To: to},
		{Kind: "icmp", Reason: policy.DenyICMP, To: to, Count: 9},
		{Kind: "http", Reason: policy.DenyHTTP, To: to, Claim: "\x1b[2J", Method: "CONNECT", Path: "/\n"},
		{Kind: "owned", Reason: "all is well", Name: "\x1b[2Jx"},
		{Kind: "dns", Reason: policy.DenyQuery, Name: "B.test", Count: 3},
		{Kind: "http", Reason: policy.DenyHTTP, To: netip.MustParseAddrPort("192.0.2.9:80"), Name: "two.test", Text: "GET with\x1b a body"},
	} {
		a.Op = wire.OpDenied
		if err := g.wire.SendAsk(a); err != nil {
			t.Fatal(err)
		}
	}
	g.name("one.test", dns.TypeA) // all before it were read
	sum := b.broker.Close("sb")
	var got []string
	for _, x := range b.events.list {
		if d := x.Data; !x.Allowed {
			if d.Text == "" {
				t.Errorf("no text: %+v", d)
			}
			if d.Target == "two.test:80" && (!strings.HasSuffix(d.Text, "(the gateway says: GET with? a body)") || d.Fix != `{"allow":"two.test:80","sni":"any"}`) {
				t.Errorf("%+v", d)
			}
			got = append(got, fmt.Sprint(d.Kind, " ", d.Target, " ", d.Reason, " ", max(1, d.Count), " ", d.SNI, d.Method, d.Path))
		}
	}
	slices.Sort(got)
	want := []string{
		"dns b.test query-type 3 ",
		"http one.test:" + fmt.Sprint(to.Port()) + " http 1 ?[2JCONNECT/?",
		"http two.test:80 http 1 ",
		"icmp 127.0.0.1 icmp 9 ",
		"tcp ?[2jx protocol 1 ",
		"udp one.test:" + fmt.Sprint(to.Port()) + " udp 1 ",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if len(sum.Denied) != len(want) {
		t.Errorf("%+v", sum.Denied)
	}
}
