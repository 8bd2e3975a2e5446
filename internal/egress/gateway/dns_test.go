package gateway

import (
	"encoding/binary"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/bermhq/berm/internal/egress/wire"
	"github.com/bermhq/berm/internal/policy"
)

func query(t testing.TB, name string, what dnsmessage.Type) []byte {
	t.Helper()
	n, err := dnsmessage.NewName(name)
	if err != nil {
		t.Fatal(err)
	}
	m := dnsmessage.Message{Header: dnsmessage.Header{ID: 77, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: n, Type: what, Class: dnsmessage.ClassINET}}}
	b, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestDNS(t *testing.T) {
	w := newWorld(t, nil)
	exchange := map[string]func(server netip.Addr, q []byte) []byte{
		"udp": func(server netip.Addr, q []byte) []byte {
			c := w.dialUDP(at(server, 53))
			defer c.Close()
			mustWrite(t, c, string(q))
			b := make([]byte, 2000)
			n, err := c.Read(b)
			if err != nil {
				t.Fatal(err)
			}
			return b[:n]
		},
		"tcp": func(server netip.Addr, q []byte) []byte {
			c := w.mustDial(at(server, 53))
			defer c.Close()
			mustWrite(t, c, string(append(binary.BigEndian.AppendUint16(nil, uint16(len(q))), q...)))
			var n [2]byte
			io.ReadFull(c, n[:])
			b := make([]byte, binary.BigEndian.Uint16(n[:]))
			if _, err := io.ReadFull(c, b); err != nil {
				t.Fatal(err)
			}
			return b
		},
	}
	for how, ask := range exchange {
		for _, server := range []netip.Addr{wire.Gateway4, wire.Gateway6} {
			for _, tt := range []struct {
				name string
				what dnsmessage.Type
				code dnsmessage.RCode
				want string
			}{
				{"Allowed.TEST.", dnsmessage.TypeA, 0, server4.String()},
				{"allowed.test.", dnsmessage.TypeAAAA, 0, server6.String()},
				{"allowed.test.", dnsmessage.Type(65), 0, ""},
				{"other.test.", dnsmessage.TypeA, dnsmessage.RCodeNameError, ""},
				{"bad!name.test.", dnsmessage.TypeTXT, dnsmessage.RCodeNameError, ""},
			} {
				t.Run(how+" "+server.String()+" "+tt.name, func(t *testing.T) {
					var m dnsmessage.Message
					if err := m.Unpack(ask(server, query(t, tt.name, tt.what))); err != nil {
						t.Fatal(err)
					}
					got := ""
					for _, r := range m.Answers {
						switch b := r.Body.(type) {
						case *dnsmessage.AResource:
							got += netip.AddrFrom4(b.A).String()
						case *dnsmessage.AAAAResource:
							got += netip.AddrFrom16(b.AAAA).String()
						}
						if r.Header.TTL != 60 {
							t.Errorf("TTL %d", r.Header.TTL)
						}
					}
					if m.ID != 77 || !m.Response || !m.RecursionAvailable || m.Authoritative || m.RCode != tt.code || got != tt.want {
						t.Errorf("got %+v, %q; want %v, %q", m.Header, got, tt.code, tt.want)
					}
				})
			}
		}
	}
	if a := w.denied("dns", policy.DenyNoRule); a.Name != "bad!name.test" {
		t.Errorf("recorded %q", a.Name)
	}
	w.wait(func(a wire.Ask) bool { return a.Op == wire.OpName && a.Name == "allowed.test" && a.Type == 1 })
}

func TestAnswerDNS(t *testing.T) {
	var many []netip.Addr
	for i := range 32 {
		many = append(many, netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 15: byte(i)}))
	}
	answer := func(string, dnsmessage.Type) (wire.Answer, bool) { return wire.Answer{Allow: true, Addrs: many}, true }
	edit := func(f func(*dnsmessage.Message)) []byte {
		var m dnsmessage.Message
		m.Unpack(query(t, "a.test.", dnsmessage.TypeAAAA))
		f(&m)
		b, err := m.Pack()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	opt := func(size int) dnsmessage.Resource {
		var h dnsmessage.ResourceHeader
		h.SetEDNS0(size, 0, false)
		return dnsmessage.Resource{Header: h, Body: &dnsmessage.OPTResource{}}
	}
	for _, tt := range []struct {
		name    string
		msg     []byte
		udp     bool
		code    dnsmessage.RCode
		answers int
		cut     bool
	}{
		{"over TCP", query(t, "a.test.", dnsmessage.TypeAAAA), false, 0, 32, false},
		{"too long", query(t, "a.test.", dnsmessage.TypeAAAA), true, 0, 0, true},
		{"EDNS", edit(func(m *dnsmessage.Message) { m.Additionals = append(m.Additionals, opt(4096)) }), true, 0, 32, false},
		{"EDNS of too little", edit(func(m *dnsmessage.Message) { m.Additionals = append(m.Additionals, opt(600)) }), true, 0, 0, true},
		{"EDNS twice", edit(func(m *dnsmessage.Message) { m.Additionals = append(m.Additionals, opt(600), opt(600)) }), true, dnsmessage.RCodeFormatError, 0, false},
		{"two questions", edit(func(m *dnsmessage.Message) { m.Questions = append(m.Questions, m.Questions[0]) }), true, dnsmessage.RCodeFormatError, 0, false},
		{"no question", edit(func(m *dnsmessage.Message) { m.Questions = nil }), true, dnsmessage.RCodeFormatError, 0, false},
		{"class CHAOS", edit(func(m *dnsmessage.Message) { m.Questions[0].Class = 3 }), true, dnsmessage.RCodeNotImplemented, 0, false},
		{"update", edit(func(m *dnsmessage.Message) { m.OpCode = 5 }), true, dnsmessage.RCodeNotImplemented, 0, false},
		{"type A of such addresses", query(t, "a.test.", dnsmessage.TypeA), true, 0, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var m dnsmessage.Message
			b := answerDNS(tt.msg, tt.udp, answer)
			if err := m.Unpack(b); err != nil {
				t.Fatal(err)
			}
			if m.RCode != tt.code || len(m.Answers) != tt.answers || m.Truncated != tt.cut {
				t.Errorf("got %v, %d answers, cut %v", m.RCode, len(m.Answers), m.Truncated)
			}
			if tt.udp && len(b) > dnsEDNS {
				t.Errorf("%d bytes", len(b))
			}
		})
	}
	for name, msg := range map[string][]byte{
		"an answer": edit(func(m *dnsmessage.Message) { m.Response = true }), "nothing": nil, "half a head": make([]byte, 7),
	} {
		if b := answerDNS(msg, true, answer); b != nil {
			t.Errorf("%s is answered: %x", name, b)
		}
	}
}

// TestDNSBusy: beyond its bound the server says so at once.
func TestDNSBusy(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	w := newWorld(t, func(a wire.Ask) wire.Answer {
		<-release
		return usual(a)
	})
	for range dnsOpen {
		w.g.dnsOpen <- struct{}{}
	}
	c := w.dialUDP(at(wire.Gateway4, 53))
	defer c.Close()
	mustWrite(t, c, string(query(t, "allowed.test.", dnsmessage.TypeA)))
	b := make([]byte, 600)
	n, err := c.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	var m dnsmessage.Message
	if err := m.Unpack(b[:n]); err != nil || m.RCode != dnsmessage.RCodeServerFailure {
		t.Errorf("got %v, %v", m.RCode, err)
	}
}

func TestBucket(t *testing.T) {
	b, now := newBucket(10, 2), time.Unix(1, 0)
	for i, want := range []bool{true, true, false} {
		if b.take(now) != want {
			t.Errorf("%d: %v", i, !want)
		}
	}
	if !b.take(now.Add(100*time.Millisecond)) || b.take(now.Add(100*time.Millisecond)) {
		t.Error("a tenth of a second is one")
	}
}

func FuzzDNS(f *testing.F) {
	f.Add(query(f, "a.test.", dnsmessage.TypeA), true)
	f.Add(query(f, strings.Repeat("a.", 100)+"test.", dnsmessage.TypeTXT), false)
	f.Add([]byte{0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0xc0, 12, 0, 1, 0, 1}, true) // a name that is itself
	f.Fuzz(func(t *testing.T, msg []byte, udp bool) {
		b := answerDNS(msg, udp, func(name string, _ dnsmessage.Type) (wire.Answer, bool) {
			if name != strings.ToLower(name) || len(name) > 255 {
				t.Fatalf("asked for %q", name)
			}
			return wire.Answer{Allow: true, Addrs: []netip.Addr{server4, server6}}, true
		})
		if b == nil {
			return
		}
		var m dnsmessage.Message
		if err := m.Unpack(b); err != nil {
			t.Fatalf("%x: %v", b, err)
		}
		if !m.Response || len(m.Questions) > 1 || udp && len(b) > dnsEDNS || m.ID != binary.BigEndian.Uint16(msg) {
			t.Fatalf("got %+v, %d bytes", m.Header, len(b))
		}
	})
}

// TestDNSRate: every question above the rate is answered at once, with a
// failure, and told as one line; the bound on failures is a bound.
func TestDNSRate(t *testing.T) {
	w := newWorld(t, nil)
	w.g.dnsRate = newBucket(0, 3)
	w.g.dnsRefuse = newBucket(0, 40)
	c := w.dialUDP(at(wire.Gateway4, 53))
	defer c.Close()
	ask := func(q []byte) dnsmessage.RCode {
		t.Helper()
		mustWrite(t, c, string(q))
		var m dnsmessage.Message
		buf := make([]byte, 600)
		n, err := c.Read(buf)
		if err == nil {
			err = m.Unpack(buf[:n])
		}
		if err != nil {
			t.Fatal(err)
		}
		return m.RCode
	}
	q := query(t, "allowed.test.", dnsmessage.TypeA)
	for i := range 3 + 39 {
		want := dnsmessage.RCodeSuccess
		if i >= 3 {
			want = dnsmessage.RCodeServerFailure
		}
		if got := ask(q); got != want {
			t.Fatalf("question %d: %v, want %v", i, got, want)
		}
	}
	tcp := w.mustDial(at(wire.Gateway4, 53))
	defer tcp.Close()
	mustWrite(t, tcp, string(append(binary.BigEndian.AppendUint16(nil, uint16(len(q))), q...)))
	head := make([]byte, 2+12)
	if _, err := io.ReadFull(tcp, head); err != nil || head[2+3]&15 != byte(dnsmessage.RCodeServerFailure) {
		t.Errorf("over TCP: % x, %v", head, err)
	}
	mustWrite(t, c, string(q))   // beyond all bounds
	w.wait(func(wire.Ask) bool { // the lock is held
		n := 0
		for _, a := range w.asks {
			if a.Op == wire.OpDenied && a.Kind == "dns" && a.Reason == policy.DenyBudget {
				n += a.Count
			}
		}
		return n == 41
	})
	c.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
	if n, err := c.Read(head); err == nil {
		t.Errorf("an answer of %d bytes beyond all bounds", n)
	}
}
