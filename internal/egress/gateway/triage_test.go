package gateway

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"os"
	"slices"
	"testing"

	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/bermhq/berm/internal/egress/wire"
)

// frame4 is a frame of the guest's with IPv4.
func frame4(proto byte, to netip.Addr, payload ...byte) []byte {
	b := make([]byte, ipv4Header, ipv4Header+len(payload))
	b[0], b[8], b[9] = 0x45, 64, proto
	binary.BigEndian.PutUint16(b[2:], uint16(cap(b)))
	copy(b[12:], wire.Guest4.AsSlice())
	copy(b[16:], to.AsSlice())
	return toGateway(etherIPv4, append(b, payload...))
}

// frame6 is one with IPv6.
func frame6(next byte, to netip.Addr, payload ...byte) []byte {
	b := make([]byte, ipv6Header)
	b[0], b[6], b[7] = 0x60, next, 64
	binary.BigEndian.PutUint16(b[4:], uint16(len(payload)))
	copy(b[8:], wire.Guest6.AsSlice())
	copy(b[24:], to.AsSlice())
	return toGateway(etherIPv6, append(b, payload...))
}

func toGateway(what uint16, ip []byte) []byte {
	b := []byte(wire.GatewayMAC + wire.GuestMAC)
	return append(binary.BigEndian.AppendUint16(b, what), ip...)
}

// edited is b with changes.
func edited(b []byte, f func([]byte)) []byte { f(b); return b }

func TestTriage(t *testing.T) {
	tcp := []byte{4, 0, 0, 80, 0, 0, 0, 0}
	group4, group6 := netip.MustParseAddr("224.0.0.1"), netip.MustParseAddr("ff02::1")
	for _, tt := range []struct {
		name  string
		frame []byte
		want  action
		kind  string
		port  uint16
	}{
		{"TCP", frame4(protoTCP, server4, tcp...), pass, "tcp", 80},
		{"UDP, six", frame6(protoUDP, server6, tcp...), pass, "udp", 80},
		{"padded", append(frame4(protoTCP, server4, tcp...), 0, 0, 0), pass, "tcp", 80},
		{"ARP", toGateway(etherARP, make([]byte, 28)), pass, "", 0},
		{"neighbour", edited(frame6(protoICMP6, wire.Gateway6, 135, 0, 0, 0, 0, 0, 0, 0), func(b []byte) { b[etherHeader+7] = 255 }), pass, "", 0},
		{"neighbour from afar", frame6(protoICMP6, wire.Gateway6, 135, 0, 0, 0, 0, 0, 0, 0), drop, "icmp", 0},
		{"router", edited(frame6(protoICMP6, group6, 134, 0, 0, 0, 0, 0, 0, 0), func(b []byte) { b[etherHeader+7] = 255 }), drop, "icmp", 0},
		{"later fragment", edited(frame4(protoUDP, server4, tcp...), func(b []byte) { b[etherHeader+7] = 9 }), pass, "udp", 0},
		{"behind options", frame6(protoHopOpts, server6, append([]byte{protoTCP, 0, 1, 4, 0, 0, 0, 0}, tcp...)...), pass, "tcp", 80},
		{"fragment, six", frame6(protoFragment, server6, append([]byte{protoUDP, 0, 0, 1, 0, 0, 0, 0}, tcp...)...), pass, "udp", 80},
		{"ping", frame4(protoICMP, server4, 8, 0, 0, 0, 0, 0, 0, 0), refuse, "icmp", 0},
		{"ping, six", frame6(protoICMP6, server6, 128, 0, 0, 0, 0, 0, 0, 0), refuse, "icmp", 0},
		{"ping in a fragment, six", frame6(protoFragment, server6, protoICMP6, 0, 0, 1, 0, 0, 0, 0, 128, 0, 0, 0), refuse, "icmp", 0},
		{"options in a fragment, six", frame6(protoFragment, server6, protoDstOpts, 0, 0, 9, 0, 0, 0, 0, 128, 0, 0, 0), refuse, "icmp", 0},
		{"an error of its own", frame4(protoICMP, server4, 3, 3, 0, 0, 0, 0, 0, 0), drop, "icmp", 0},
		{"SCTP", frame4(132, server4, tcp...), refuse, "icmp", 0},
		{"GRE, six", frame6(47, server6, tcp...), refuse, "icmp", 0},
		{"no next header", frame6(59, server6), refuse, "icmp", 0},
		{"routing header", frame6(protoRouting, server6, append([]byte{protoTCP, 0, 0, 1, 0, 0, 0, 0}, tcp...)...), refuse, "tcp", 80},
		{"options, four", edited(frame4(protoTCP, server4, append([]byte{1, 1, 1, 1}, tcp...)...), func(b []byte) { b[etherHeader] = 0x46 }), refuse, "tcp", 80},
		{"group", frame4(protoTCP, group4, tcp...), refuse, "tcp", 80},
		{"group, six", frame6(protoUDP, group6, tcp...), refuse, "udp", 80},
		{"everybody", frame4(protoUDP, netip.MustParseAddr("255.255.255.255"), tcp...), refuse, "udp", 80},
		{"nobody", frame4(protoTCP, netip.IPv4Unspecified(), tcp...), refuse, "tcp", 80},
		{"itself", frame6(protoTCP, wire.Guest6, tcp...), refuse, "tcp", 80},
		{"groups it is in", frame4(protoIGMP, group4, 0x16, 0, 0, 0), drop, "icmp", 0},
		{"another's address", edited(frame4(protoTCP, server4, tcp...), func(b []byte) { b[etherHeader+15]++ }), drop, "", 0},
		{"another's address, six", edited(frame6(protoTCP, server6, tcp...), func(b []byte) { b[etherHeader+23]++ }), drop, "", 0},
		{"to another station", edited(frame4(protoTCP, server4, tcp...), func(b []byte) { b[5]++ }), drop, "", 0},
		{"another protocol", toGateway(0x88cc, make([]byte, 40)), drop, "", 0},
		{"too long for its frame", edited(frame4(protoTCP, server4, tcp...), func(b []byte) { b[etherHeader+3]++ }), drop, "", 0},
		{"cut", frame4(protoTCP, server4)[:30], drop, "", 0},
		{"cut, six", frame6(protoTCP, server6)[:50], drop, "", 0},
		{"header beyond the end", frame6(protoHopOpts, server6, protoTCP, 9, 0, 0, 0, 0, 0, 0), drop, "", 0},
		{"many headers", frame6(protoDstOpts, server6, bytes.Repeat([]byte{protoDstOpts, 0, 1, 4, 0, 0, 0, 0}, 20)...), refuse, "icmp", 0},
		{"empty", nil, drop, "", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, p := triage(tt.frame)
			if got != tt.want || got != drop && (p.kind != tt.kind || p.port != tt.port) {
				t.Errorf("got %v %q %d; want %v %q %d", got, p.kind, p.port, tt.want, tt.kind, tt.port)
			}
			if got == refuse {
				checkUnreachable(t, p)
			}
		})
	}
}

// checkUnreachable holds what is said of a packet against gVisor's reading.
func checkUnreachable(t *testing.T, p packet) {
	t.Helper()
	b := p.unreachable()
	if b == nil {
		if p.first {
			t.Error("nothing is said")
		}
		return
	}
	ip := b[etherHeader:]
	if p.dst.Is4() {
		h := header.IPv4(ip)
		icmp := header.ICMPv4(h.Payload())
		if !h.IsValid(len(ip)) || !h.IsChecksumValid() || header.ICMPv4Checksum(icmp, 0) != icmp.Checksum() {
			t.Errorf("not well-formed: %x", b)
		}
		return
	}
	h := header.IPv6(ip)
	icmp := header.ICMPv6(h.Payload())
	want := header.ICMPv6Checksum(header.ICMPv6ChecksumParams{Header: icmp, Src: h.SourceAddress(), Dst: h.DestinationAddress()})
	if !h.IsValid(len(ip)) || icmp.Checksum() != want {
		t.Errorf("not well-formed: %x", b)
	}
}

// nowhere is a link whose other end swallows all.
type nowhere struct{}

func (nowhere) ReadFrame([]byte) (int, error) { return 0, os.ErrClosed }
func (nowhere) WriteFrame([][]byte) error     { return nil }
func (nowhere) Close() error                  { return nil }

// FuzzFrames gives the stack frames of any kind, several in a row, behind a
// broker that allows all and dials nothing. It must not panic.
func FuzzFrames(f *testing.F) {
	syn := make([]byte, 20)
	binary.BigEndian.PutUint16(syn, 1000)
	binary.BigEndian.PutUint16(syn[2:], 80)
	syn[12], syn[13], syn[14] = 0x50, 2, 0xff
	join := func(frames ...[]byte) (all []byte) {
		for _, fr := range frames {
			all = append(binary.BigEndian.AppendUint16(all, uint16(len(fr))), fr...)
		}
		return all
	}
	dns := append([]byte{4, 0, 0, 53, 0, 8 + 24, 0, 0}, query(f, "a.test.", 1)...)
	f.Add(join(frame4(protoTCP, server4, syn...), frame6(protoTCP, server6, syn...)))
	f.Add(join(frame4(protoUDP, wire.Gateway4, dns...), frame6(protoUDP, wire.Gateway6, dns...)))
	f.Add(join(frame4(protoICMP, server4, 8, 0, 0, 0), frame6(protoICMP6, server6, 128, 0, 0, 0)))
	f.Add(join(edited(frame4(protoUDP, server4, syn...), func(b []byte) { b[etherHeader+6] = 0x20 }),
		edited(frame4(protoUDP, server4, syn...), func(b []byte) { b[etherHeader+7] = 1 })))
	f.Add(join(frame6(protoFragment, server6, append([]byte{protoUDP, 0, 0, 1, 0, 0, 0, 0}, dns...)...),
		frame6(protoFragment, server6, append([]byte{protoUDP, 0, 0, 9, 0, 0, 0, 0}, dns...)...)))
	f.Add(join(toGateway(etherARP, append([]byte{0, 1, 8, 0, 6, 4, 0, 1}, make([]byte, 20)...))))
	f.Add(join(edited(frame6(protoICMP6, wire.Gateway6, append([]byte{135, 0, 0, 0, 0, 0, 0, 0}, slices.Concat(wire.Gateway6.AsSlice(), []byte{1, 1, 2, 3, 4, 5, 6, 7})...)...),
		func(b []byte) { b[etherHeader+7] = 255 })))
	brokerEnd, askEnd := pair(f)
	newFake(f, brokerEnd, func(a wire.Ask) wire.Answer {
		if a.Op == wire.OpConnect {
			return wire.Answer{Fault: "refused"}
		}
		return wire.Answer{Allow: true, Inspect: true}
	})
	b, err := newBroker(askEnd)
	if err != nil {
		f.Fatal(err)
	}
	if err := b.begin(); err != nil {
		f.Fatal(err)
	}
	go b.serve()
	g, err := newGateway(nowhere{}, b)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(g.close)
	f.Fuzz(func(t *testing.T, all []byte) {
		for len(all) >= 2 {
			n := min(int(binary.BigEndian.Uint16(all)), len(all)-2)
			g.frame(all[2 : 2+n])
			all = all[2+n:]
		}
	})
}

// TestStream: frames keep their ends on a link of bytes.
func TestStream(t *testing.T) {
	var b bufferCloser
	s := Stream(&b)
	if err := s.WriteFrame([][]byte{[]byte("ab"), nil, []byte("c")}); err != nil {
		t.Fatal(err)
	}
	s.WriteFrame([][]byte{[]byte("d")})
	if b.String() != "\x00\x00\x00\x03abc\x00\x00\x00\x01d" {
		t.Fatalf("wrote %q", b.String())
	}
	buf := make([]byte, wire.MaxFrame)
	for _, want := range []string{"abc", "d"} {
		if n, err := s.ReadFrame(buf); err != nil || string(buf[:n]) != want {
			t.Errorf("read %q, %v", buf[:n], err)
		}
	}
	for _, bad := range []string{"\x00\x00\x00\x00", "\x00\x00\xff\xff", "\xff\xff\xff\xff"} {
		b.Reset()
		b.WriteString(bad)
		if _, err := s.ReadFrame(buf); err == nil {
			t.Errorf("%q is taken for a frame", bad)
		}
	}
}

type bufferCloser struct{ bytes.Buffer }

func (*bufferCloser) Close() error { return nil }
