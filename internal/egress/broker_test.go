package egress

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/egress/wire"
	"github.com/bermhq/berm/internal/policy"
	"github.com/bermhq/berm/internal/testkit"
)

func TestNamesAndConnections(t *testing.T) {
	testkit.NoLeak(t)
	s := newServer(t, "127.0.0.1:0", echo)
	hosts := "127.0.0.1 one.test two.test # a comment\n::1 six.test\nfe80::1%lo zone.test\nnonsense x.test\n"
	b := newBench(t, &Files{Hosts: []byte(hosts)}, Link{Policy: rules(t,
		`[{"allow":"one.test:%d"},{"allow":"127.0.0.1/32:%d"},{"allow":"zone.test"},{"allow":"six.test"}]`, s.at.Port(), s.at.Port())})
	g := b.gateway()

	a := g.name("ONE.test.", dns.TypeA)
	if !a.Allow || !slices.Equal(a.Addrs, []netip.Addr{s.at.Addr()}) || a.TTL == 0 || a.TTL > guestTTL {
		t.Fatalf("one.test: %+v", a)
	}
	if a := g.name("one.test", dns.TypeAAAA); !a.Allow || len(a.Addrs) != 0 || a.NXName {
		t.Errorf("one.test AAAA: %+v", a)
	}
	if a := g.name("two.test", dns.TypeA); a.Allow || !a.NXName || a.Reason != policy.DenyNoRule {
		t.Errorf("two.test: %+v", a)
	}
	if a := g.name("six.test", dns.TypeAAAA); a.Allow || a.Reason != policy.DenyAddress || len(a.Addrs) != 0 {
		t.Errorf("six.test, which is loopback: %+v", a)
	}
	if a := g.name("zone.test", dns.TypeAAAA); len(a.Addrs) != 0 {
		t.Errorf("zone.test: %+v", a)
	}
	for _, bad := range []string{"", "a..test", "-a.test", "a b.test", strings.Repeat("a", 64) + ".test", "ä.test", "a\x00.test"} {
		if a := g.name(bad, dns.TypeA); a.Allow || len(a.Addrs) != 0 {
			t.Errorf("%q: %+v", bad, a)
		}
	}

	a, c := g.connect(s.at, wire.Ask{Seen: "tls", Claim: "one.test"})
	if !a.Allow || c == nil || !works(c) {
		t.Fatalf("connect: %+v", a)
	}
	g.over()
	eventually(t, "the flow is over", func() bool { return b.broker.Summary("sb").OutBytes >= 1 })
	if a, c := g.connect(netip.AddrPortFrom(s.at.Addr(), s.at.Port()+1), raw); a.Allow || c != nil || a.Reason == "" {
		t.Errorf("another port: %+v", a)
	}
	free := newServer(t, "127.0.0.1:0", echo)
	free.Close()
	b.broker.Change("sb", rules(t, `[{"allow":"127.0.0.1/32"}]`))
	if a, c := g.connect(free.at, raw); a.Allow || c != nil || a.Fault != "refused" || a.Reason != "" {
		t.Errorf("nobody listens: %+v", a)
	}

	sum := b.broker.Close("sb")
	if sum.OutBytes != 1 || sum.InBytes != 1 {
		t.Errorf("%d bytes out, %d in; want 1 and 1", sum.OutBytes, sum.InBytes)
	}
	if want := net.JoinHostPort("one.test", portOf(s)); !slices.Equal(sum.Hosts, []string{want}) {
		t.Errorf("hosts %q, want %q", sum.Hosts, want)
	}
	if want := "one.test:" + portOf(free) + ": could not be reached: refused"; !slices.Contains(sum.Faults, want) {
		t.Errorf("faults %q, want %q", sum.Faults, want)
	}
	if x, ok := b.events.find(func(x Event) bool { return x.Allowed && x.Data.Fault == "refused" }); !ok || x.Data.Text != "allowed, but could not be reached: refused" {
		t.Errorf("the event of a fault: %+v, %v", x, ok)
	}
	i := slices.IndexFunc(sum.Denied, func(d api.Denial) bool { return d.Target == "two.test" })
	if i < 0 || sum.Denied[i].Kind != "egress" || sum.Denied[i].Rule != "end" || sum.Denied[i].Reason == "" || !strings.HasPrefix(sum.Denied[i].Fix, "two.test") {
		t.Errorf("denied: %+v", sum.Denied)
	}
	if x, ok := b.events.find(func(x Event) bool { return x.Allowed && x.Data.Kind == "tls" && x.Data.IngressBytes == 1 }); !ok ||
		x.Data.Name != "one.test" || x.Data.SNI != "one.test" || x.Data.EgressBytes != 1 || x.Data.Verdict != "allowed" || x.Data.Since == "" {
		t.Errorf("bytes of a connection: %+v, %v", x, ok)
	}
	if err := <-g.done; err != nil {
		t.Errorf("Serve: %v", err)
	}
	if again := b.broker.Close("sb"); len(again.Hosts) != 0 {
		t.Errorf("closed twice: %+v", again)
	}
}

func portOf(s *server) string {
	_, port, _ := strings.Cut(s.at.String(), ":")
	return port
}

func TestUnknownLink(t *testing.T) {
	b := &bench{t: t, broker: New(Options{Files: &Files{}})}
	if err := b.broker.Change("sb", nil); !errors.Is(err, ErrUnknown) {
		t.Error(err)
	}
	c, other := unixPair(t)
	if err := b.broker.Serve("sb", other); !errors.Is(err, ErrUnknown) {
		t.Error(err)
	}
	c.SetReadDeadline(time.Now().Add(patience))
	if _, _, err := wire.NewConn(c).ReceiveAnswer(); err != io.EOF {
		t.Errorf("not hung up: %v", err)
	}
	if err := b.broker.Open("sb", Link{}); err != nil {
		t.Error(err)
	}
	if err := b.broker.Open("sb", Link{}); err == nil {
		t.Error("opened twice")
	}
	b.broker.Close("sb")
}
