package egress

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/bermhq/berm/internal/egress/wire"
	"github.com/bermhq/berm/internal/jail"
)

// TestConfined: all that a broker does works within the filters of the processes
// that it lives in. The test runs itself again for each, since a filter is for
// ever.
func TestConfined(t *testing.T) {
	confine := map[string]func() error{
		"worker": func() error { return jail.ConfineToInet("/", 0) },
		"daemon": func() error { return jail.Drop(0) },
	}
	if as := os.Getenv("BERM_TEST_CONFINED"); as != "" {
		kind, rest, _ := strings.Cut(as, " ")
		server, names, _ := strings.Cut(rest, " ")
		to := netip.MustParseAddrPort(server)
		b := newBench(t, &Files{Hosts: []byte("127.0.0.1 hosts.test")}, Link{Policy: rules(t,
			`[{"allow":"hosts.test:%d","bytes":1000},{"allow":"a.test:%d"},{"allow":"127.0.0.1/32"}]`, to.Port(), to.Port())})
		b.broker.resolver.current.servers = []string{names}
		g := b.gateway() // the pair comes from others, in those processes
		if err := confine[kind](); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"hosts.test", "a.test"} {
			if a := g.name(name, dns.TypeA); len(a.Addrs) != 1 {
				t.Fatalf("%s: %+v", name, a)
			}
			a, c := g.connect(to, wire.Ask{Seen: "tls", Claim: name})
			if c == nil || !works(c) {
				t.Fatalf("%s: %+v", name, a)
			}
			if err := g.wire.SendAsk(wire.Ask{Op: wire.OpClose, Flow: g.flow, Reason: wire.CloseReset}); err != nil {
				t.Fatal(err)
			}
		}
		g.name("a.test", dns.TypeA) // what was before is done
		if own(netip.MustParseAddr("198.51.100.77")) {
			t.Error("an address elsewhere counts as this host's")
		}
		if sum := b.broker.Close("sb"); sum.OutBytes != 2 || sum.InBytes != 2 || len(sum.Hosts) != 2 {
			t.Errorf("%+v", sum)
		}
		return
	}
	s := newServer(t, "127.0.0.1:0", echo)
	b := newBench(t, nil, Link{})
	nameServer(t, b, func(q *dns.Msg, tcp bool) []*dns.Msg {
		m := records(q, "a.test. 60 IN A 127.0.0.1")
		m.Truncated = !tcp
		return []*dns.Msg{m}
	})
	self := filepath.Join(t.TempDir(), "egress.test") // filters reach all threads only of a program without cgo
	build := exec.Command("go", "test", "-c", "-o", self, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for kind := range confine {
		cmd := exec.Command(self, "-test.run=^TestConfined$", "-test.count=1")
		cmd.Env = append(os.Environ(), fmt.Sprintf("BERM_TEST_CONFINED=%s %s %s", kind, s.at, b.broker.resolver.current.servers[0]))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", kind, err, out)
		}
	}
}
