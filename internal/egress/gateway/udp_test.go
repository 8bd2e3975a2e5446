package gateway

import (
	"bytes"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
	"gvisor.dev/gvisor/pkg/waiter"

	"github.com/bermhq/berm/internal/egress/wire"
	"github.com/bermhq/berm/internal/policy"
)

func TestUDPDenied(t *testing.T) {
	for _, tt := range []struct {
		name   string
		to     netip.AddrPort
		reason string // "": the broker's to record
	}{
		{"QUIC", at(server4, 443), ""},
		{"QUIC, six", at(server6, 443), ""},
		{"another name server", at(netip.MustParseAddr("8.8.8.8"), 53), ""},
		{"gateway", at(wire.Gateway4, 123), policy.DenyGateway},
		{"gateway, six", at(wire.Gateway6, 123), policy.DenyGateway},
		{"group", at(netip.MustParseAddr("224.0.0.251"), 5353), policy.DenyUDP},
		{"group, six", at(netip.MustParseAddr("ff02::fb"), 5353), policy.DenyUDP},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, nil)
			ep := w.socketUDP(tt.to)
			once := func() {
				t.Helper()
				if _, err := ep.Write(strings.NewReader("x"), tcpip.WriteOptions{}); err != nil {
					t.Fatal(err)
				}
				var got tcpip.Error
				eventually(t, func() bool { got = ep.LastError(); return got != nil }, func() string { return "nothing is said of it" })
				if _, is := got.(*tcpip.ErrConnectionRefused); !is {
					t.Errorf("got %v, want it refused", got)
				}
			}
			once()
			if tt.reason != "" {
				w.denied("udp", tt.reason)
				return
			}
			w.wait(func(a wire.Ask) bool { return a.Op == wire.OpConnect && a.Seen == "udp" && a.To == tt.to })
			// The next ones ask nobody, and are told once a second.
			for range 5 {
				once()
			}
			w.denied("udp", policy.DenyUDP)
		})
	}
}

// socketUDP makes a connected socket within the guest, as its kernel has it.
func (w *world) socketUDP(to netip.AddrPort) tcpip.Endpoint {
	w.t.Helper()
	var wq waiter.Queue
	ep, err := w.guest.NewEndpoint(udp.ProtocolNumber, proto(to.Addr()), &wq)
	if err == nil {
		err = ep.Connect(tcpip.FullAddress{NIC: 1, Addr: address(to.Addr()), Port: to.Port()})
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(ep.Close)
	return ep
}

func TestUDPRelay(t *testing.T) {
	w := newWorld(t, nil)
	for _, addr := range []netip.Addr{server4, server6} {
		t.Run(addr.String(), func(t *testing.T) {
			host := "127.0.0.1:0"
			if addr.Is6() {
				host = "[::1]:0"
			}
			l, err := net.ListenPacket("udp", host)
			if err != nil {
				t.Skip(err)
			}
			defer l.Close()
			go func() {
				b := make([]byte, 65535)
				for {
					n, from, err := l.ReadFrom(b)
					if err != nil {
						return
					}
					l.WriteTo(b[:n], from)
				}
			}()
			to := at(addr, 9443)
			w.route(to, l.LocalAddr().String())
			c := w.dialUDP(to)
			defer c.Close()
			for _, size := range []int{5, 0, 1400, 59000} { // each whole, an empty one too
				msg := bytes.Repeat([]byte{7}, size)
				if _, err := c.Write(msg); err != nil {
					t.Fatal(err)
				}
				b := make([]byte, 65535)
				n, err := c.Read(b)
				if err != nil || !bytes.Equal(b[:n], msg) {
					t.Fatalf("%d bytes: got %d, %v", size, n, err)
				}
			}
		})
	}
}

// TestPing: it is not answered, but hears at once that it will not be.
func TestPing(t *testing.T) {
	w := newWorld(t, nil)
	v6 := header.ICMPv6(make([]byte, header.ICMPv6EchoMinimumSize))
	v6.SetType(header.ICMPv6EchoRequest)
	for _, tt := range []struct {
		name  string
		to    netip.Addr
		proto tcpip.TransportProtocolNumber
		net   tcpip.NetworkProtocolNumber
		send  []byte
		want  []byte // type and code
	}{
		{"four", server4, header.ICMPv4ProtocolNumber, ipv4.ProtocolNumber, echo4(), []byte{3, 13}},
		{"gateway", wire.Gateway4, header.ICMPv4ProtocolNumber, ipv4.ProtocolNumber, echo4(), []byte{3, 13}},
		{"six", server6, header.ICMPv6ProtocolNumber, ipv6.ProtocolNumber, v6, []byte{1, 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ep, wq := w.rawSocket(tt.proto, tt.net)
			to := tcpip.FullAddress{NIC: 1, Addr: address(tt.to)}
			if _, err := ep.Write(bytes.NewReader(tt.send), tcpip.WriteOptions{To: &to}); err != nil {
				t.Fatal(err)
			}
			for { // until it comes; the socket hears of neighbours, too
				got := readRaw(t, ep, wq)
				if tt.net == ipv4.ProtocolNumber {
					got = got[header.IPv4(got).HeaderLength():]
				}
				if bytes.HasPrefix(got, tt.want) {
					break
				}
			}
			if a := w.denied("icmp", policy.DenyICMP); a.Count < 1 {
				t.Errorf("recorded %+v", a)
			}
		})
	}
}

func echo4() []byte {
	h := header.ICMPv4(make([]byte, header.ICMPv4MinimumSize))
	h.SetType(header.ICMPv4Echo)
	h.SetChecksum(header.ICMPv4Checksum(h, 0))
	return h
}

// readRaw reads one message of a raw socket.
func readRaw(t *testing.T, ep tcpip.Endpoint, wq *waiter.Queue) []byte {
	t.Helper()
	entry, ready := waiter.NewChannelEntry(waiter.ReadableEvents)
	wq.EventRegister(&entry)
	defer wq.EventUnregister(&entry)
	late := time.After(patienceInTests)
	for {
		b := make([]byte, 2000)
		sw := tcpip.SliceWriter(b)
		res, err := ep.Read(&sw, tcpip.ReadOptions{})
		if err == nil {
			return b[:res.Count]
		}
		select {
		case <-ready:
		case <-late:
			t.Fatalf("nothing came: %v", err)
		}
	}
}

func TestRecords(t *testing.T) {
	var told []wire.Ask
	r := newRecords(func(a wire.Ask) error { told = append(told, a); return nil })
	to := at(server4, 1)
	for range 5 {
		r.add("udp", policy.DenyUDP, to, "")
	}
	if len(told) != 1 || told[0].Count != 1 {
		t.Fatalf("told %+v", told)
	}
	r.flush()
	if len(told) != 2 || told[1].Count != 4 || told[1].To != to {
		t.Fatalf("told %+v", told)
	}
	r.flush() // quiet since then
	r.add("udp", policy.DenyUDP, to, "")
	if len(told) != 3 {
		t.Fatalf("told %+v", told)
	}
	for i := range 2 * maxRecords {
		r.add("tcp", policy.DenyGateway, at(server4, uint16(i)), "")
	}
	told = nil
	r.flush()
	if len(told) != 1 || told[0].To.IsValid() || told[0].Count != maxRecords+1 {
		t.Errorf("told %+v", told)
	}
}
