package gateway

import (
	"encoding/binary"
	"errors"
	"io"
	"net/netip"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"

	"github.com/bermhq/berm/internal/egress/wire"
	"github.com/bermhq/berm/internal/policy"
)

// Bounds of the name server.
const (
	dnsPort    = 53
	dnsOpen    = 64   // questions at one time; more are SERVFAIL
	dnsConns   = 16   // over TCP
	dnsRate    = 500  // answers a second
	dnsBurst   = 200  // and at once; what is beyond is SERVFAIL,
	dnsRefuse  = 5000 // as often as that in a second, and then nothing
	dnsUDP     = 512  // what an answer may be long, and
	dnsEDNS    = 1232 // to a client that says that it takes more
	dnsIdle    = 10 * time.Second
	dnsMessage = 4096 // longest question over TCP
)

// A bucket bounds a rate.
type bucket struct {
	mu    sync.Mutex
	rate  float64 // a second
	burst float64
	level float64
	last  time.Time
}

func newBucket(rate, burst float64) *bucket { return &bucket{rate: rate, burst: burst, level: burst} }

// take says whether one more is within the rate.
func (b *bucket) take(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.last.IsZero() {
		b.level = min(b.burst, b.level+now.Sub(b.last).Seconds()*b.rate)
	}
	b.last = now
	if b.level < 1 {
		return false
	}
	b.level--
	return true
}

// serveDNS opens the server's sockets.
func (g *Gateway) serveDNS() error {
	for _, a := range []struct {
		addr  netip.Addr
		proto tcpip.NetworkProtocolNumber
	}{{wire.Gateway4, ipv4.ProtocolNumber}, {wire.Gateway6, ipv6.ProtocolNumber}} {
		c, err := gonet.DialUDP(g.stack, &tcpip.FullAddress{NIC: nic, Addr: tcpip.AddrFromSlice(a.addr.AsSlice()), Port: dnsPort}, nil, a.proto)
		if err != nil {
			return err
		}
		go g.dnsUDP(c)
	}
	return nil
}

// dnsUDP answers questions of one socket.
func (g *Gateway) dnsUDP(c *gonet.UDPConn) {
	buf := make([]byte, 4096)
	for {
		n, from, err := c.ReadFrom(buf)
		if err != nil {
			return
		}
		if !g.dnsRate.take(time.Now()) {
			if a := g.dnsBusy(buf[:n], true); a != nil {
				c.WriteTo(a, from)
			}
			continue
		}
		q := append([]byte(nil), buf[:n]...)
		g.dnsGo(q, true, func(a []byte) {
			if a != nil {
				c.WriteTo(a, from)
			}
		})
	}
}

// dnsBusy is the answer to a question too many; nil if that is one, too.
func (g *Gateway) dnsBusy(q []byte, udp bool) []byte {
	g.records.add("dns", policy.DenyBudget, netip.AddrPort{}, "")
	if !g.dnsRefuse.take(time.Now()) {
		return nil
	}
	return answerDNS(q, udp, func(string, dnsmessage.Type) (wire.Answer, bool) { return wire.Answer{}, false })
}

// dnsGo answers in a goroutine of its own, if there is room for one. A question
// that deserves no answer gets nil.
func (g *Gateway) dnsGo(q []byte, udp bool, reply func([]byte)) {
	select {
	case g.dnsOpen <- struct{}{}:
	default:
		reply(g.dnsBusy(q, udp))
		return
	}
	go func() {
		defer func() { <-g.dnsOpen }()
		reply(answerDNS(q, udp, g.name))
	}()
}

// synOwn is for connections to the gateway itself.
func (g *Gateway) synOwn(r *tcp.ForwarderRequest, to netip.AddrPort) {
	if to.Port() != dnsPort {
		r.Complete(true)
		g.records.add("tcp", policy.DenyGateway, to, "")
		return
	}
	if g.dnsConns.Add(1) > dnsConns {
		g.dnsConns.Add(-1)
		r.Complete(true)
		return
	}
	defer g.dnsConns.Add(-1)
	c := g.establish(r, nil)
	if c == nil {
		return
	}
	defer c.Close()
	for {
		late := time.After(dnsIdle)
		var head [2]byte
		if readAll(c, head[:], late) != nil {
			return
		}
		n := binary.BigEndian.Uint16(head[:])
		if n > dnsMessage {
			return
		}
		q := make([]byte, n)
		if readAll(c, q, late) != nil {
			return
		}
		done := make(chan []byte, 1)
		if g.dnsRate.take(time.Now()) {
			g.dnsGo(q, false, func(a []byte) { done <- a })
		} else {
			done <- g.dnsBusy(q, false)
		}
		a := <-done
		if a == nil {
			return
		}
		if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(a))), a...)); err != nil {
			return
		}
	}
}

func readAll(c *guestConn, b []byte, late <-chan time.Time) error {
	for len(b) > 0 {
		n, err := c.readUntil(b, late)
		if err != nil {
			return err
		}
		if n == 0 {
			return io.ErrNoProgress
		}
		b = b[n:]
	}
	return nil
}

// name asks the broker about a name; false means that nobody knows.
func (g *Gateway) name(name string, t dnsmessage.Type) (wire.Answer, bool) {
	if !plainName(name) {
		// Whatever it is, no rule is about it, and it need not go further.
		g.records.add("dns", policy.DenyNoRule, netip.AddrPort{}, printable(strings.ReplaceAll(name, "\n", "?"), 253))
		return wire.Answer{Reason: policy.DenyNoRule}, true
	}
	a, _, err := g.broker.ask(wire.Ask{Op: wire.OpName, Name: name, Type: uint16(t)})
	return a, err == nil && a.Fault == ""
}

// plainName says whether a name, in lower case, is one that a policy can be
// about. An underscore is in names of services.
func plainName(s string) bool {
	for i := range len(s) {
		if c := s[i]; !('a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '_' || c == '.') {
			return false
		}
	}
	return s != "" && len(s) <= 253
}

// answerDNS builds the answer to a message; nil if it deserves none. ask returns
// false where nobody knows.
func answerDNS(msg []byte, udp bool, ask func(name string, t dnsmessage.Type) (wire.Answer, bool)) []byte {
	var p dnsmessage.Parser
	h, err := p.Start(msg)
	if err != nil || h.Response {
		return nil
	}
	out := dnsmessage.Message{Header: dnsmessage.Header{
		ID: h.ID, Response: true, OpCode: h.OpCode, RecursionDesired: h.RecursionDesired, RecursionAvailable: true,
	}}
	limit := 65535
	if udp {
		limit = dnsUDP
	}
	if h.OpCode != 0 {
		out.RCode = dnsmessage.RCodeNotImplemented
		return pack(out, limit)
	}
	q, edns, err := question(&p)
	if err != nil {
		out.RCode = dnsmessage.RCodeFormatError
		return pack(out, limit)
	}
	out.Questions = []dnsmessage.Question{q}
	if edns != nil {
		if udp {
			limit = min(max(int(edns.Class), dnsUDP), dnsEDNS)
		}
		var opt dnsmessage.ResourceHeader
		opt.SetEDNS0(dnsEDNS, dnsmessage.RCodeSuccess, false)
		out.Additionals = []dnsmessage.Resource{{Header: opt, Body: &dnsmessage.OPTResource{}}}
	}
	if q.Class != dnsmessage.ClassINET {
		out.RCode = dnsmessage.RCodeNotImplemented
		return pack(out, limit)
	}
	name := strings.TrimSuffix(strings.ToLower(q.Name.String()), ".")
	a, known := ask(name, q.Type)
	switch {
	case !known:
		out.RCode = dnsmessage.RCodeServerFailure
	case a.NXName, !a.Allow && a.Reason != policy.DenyQuery:
		out.RCode = dnsmessage.RCodeNameError
	case a.Allow:
		out.Answers = addresses(q, a)
	}
	return pack(out, limit)
}

// question reads all of a message: exactly one question and at most EDNS.
func question(p *dnsmessage.Parser) (q dnsmessage.Question, edns *dnsmessage.ResourceHeader, err error) {
	if q, err = p.Question(); err != nil {
		return q, nil, err
	}
	if _, err := p.Question(); err != dnsmessage.ErrSectionDone {
		return q, nil, errors.New("more than one question")
	}
	if p.SkipAllAnswers() != nil || p.SkipAllAuthorities() != nil {
		return q, nil, errors.New("not well-formed")
	}
	for {
		h, err := p.AdditionalHeader()
		if err == dnsmessage.ErrSectionDone {
			return q, edns, nil
		}
		if err != nil {
			return q, nil, err
		}
		if h.Type == dnsmessage.TypeOPT {
			if edns != nil {
				return q, nil, errors.New("EDNS twice")
			}
			edns = &h
		}
		if err := p.SkipAdditional(); err != nil {
			return q, nil, err
		}
	}
}

// addresses are the records for q.
func addresses(q dnsmessage.Question, a wire.Answer) (list []dnsmessage.Resource) {
	h := dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: a.TTL}
	for _, addr := range a.Addrs {
		switch {
		case q.Type == dnsmessage.TypeA && addr.Is4():
			list = append(list, dnsmessage.Resource{Header: h, Body: &dnsmessage.AResource{A: addr.As4()}})
		case q.Type == dnsmessage.TypeAAAA && addr.Is6():
			list = append(list, dnsmessage.Resource{Header: h, Body: &dnsmessage.AAAAResource{AAAA: addr.As16()}})
		}
	}
	return list
}

// pack makes bytes of a message, without its answers if it is too long with
// them.
func pack(m dnsmessage.Message, limit int) []byte {
	b, err := m.Pack()
	if err == nil && len(b) > limit {
		m.Truncated, m.Answers = true, nil
		b, err = m.Pack()
	}
	if err != nil || len(b) > limit {
		return nil
	}
	return b
}
