package gateway

import (
	"encoding/binary"
	"net/netip"

	"gvisor.dev/gvisor/pkg/tcpip/checksum"

	"github.com/bermhq/berm/internal/egress/wire"
	"github.com/bermhq/berm/internal/policy"
)

// What the stack is not meant to see is taken out of the frames before it: it
// would answer pings for the whole world, believe router advertisements, and
// say nothing to what it does not know, so that the guest waits for ever.

// Numbers of Ethernet and IP.
const (
	etherIPv4, etherARP, etherIPv6 = 0x0800, 0x0806, 0x86dd

	etherHeader = 14
	ipv4Header  = 20
	ipv6Header  = 40

	protoHopOpts, protoICMP, protoIGMP, protoTCP, protoUDP = 0, 1, 2, 6, 17
	protoRouting, protoFragment, protoICMP6, protoDstOpts  = 43, 44, 58, 60
)

// An action is what becomes of a frame.
type action int

const (
	drop   action = iota
	pass          // to the stack
	refuse        // tell the guest and the broker
	stand         // answer in place of a neighbour that is not there
)

// A packet is what triage found out about a frame.
type packet struct {
	ip    []byte // without what Ethernet padded
	proto byte   // of the payload
	dst   netip.Addr
	port  uint16 // destination, of TCP and UDP
	first bool   // not a later fragment
	kind  string // tcp, udp, icmp: for the record
}

// triage looks at a frame.
func triage(frame []byte) (action, packet) {
	var p packet
	if len(frame) < etherHeader || frame[0]&1 == 0 && string(frame[:6]) != wire.GatewayMAC {
		return drop, p
	}
	p.ip = frame[etherHeader:]
	switch binary.BigEndian.Uint16(frame[12:]) {
	case etherARP:
		return pass, p
	case etherIPv4:
		return p.triage4()
	case etherIPv6:
		return p.triage6()
	}
	return drop, p
}

func (p packet) triage4() (action, packet) {
	b := p.ip
	if len(b) < ipv4Header || b[0]>>4 != 4 {
		return drop, p
	}
	head, total := int(b[0]&15)*4, int(binary.BigEndian.Uint16(b[2:]))
	if head < ipv4Header || total < head || total > len(b) || netip.AddrFrom4([4]byte(b[12:])) != wire.Guest4 {
		return drop, p
	}
	p.ip, p.proto, p.dst = b[:total], b[9], netip.AddrFrom4([4]byte(b[16:]))
	p.first = binary.BigEndian.Uint16(b[6:])&0x1fff == 0
	return p.judge(b[head:total], head > ipv4Header)
}

func (p packet) triage6() (action, packet) {
	b := p.ip
	if len(b) < ipv6Header || b[0]>>4 != 6 {
		return drop, p
	}
	total := ipv6Header + int(binary.BigEndian.Uint16(b[4:]))
	if total > len(b) {
		return drop, p
	}
	src := netip.AddrFrom16([16]byte(b[8:]))
	p.ip, p.proto, p.dst, p.first = b[:total], b[6], netip.AddrFrom16([16]byte(b[24:])), true
	rest := b[ipv6Header:total]
	if p.proto == protoICMP6 && len(rest) >= 8 && b[7] == 255 && (rest[0] == 135 || rest[0] == 136) {
		if p.dst = absent(src, rest); p.dst.IsValid() {
			return stand, p
		}
		return pass, p // neighbours find each other
	}
	if src != wire.Guest6 {
		return drop, p
	}
	odd := false // something between the two headers that the stack need not see
	for range 8 {
		size := 0
		switch p.proto {
		case protoHopOpts, protoRouting, protoDstOpts:
			if len(rest) < 8 {
				return drop, p
			}
			size = 8 + int(rest[1])*8
			odd = odd || p.proto == protoRouting
		case protoFragment:
			if len(rest) < 8 {
				return drop, p
			}
			size = 8
			p.first = binary.BigEndian.Uint16(rest[2:])&^7 == 0
			// Behind it only what needs no more looking for.
			odd = odd || rest[0] != protoTCP && rest[0] != protoUDP
		default:
			return p.judge(rest, odd)
		}
		if size > len(rest) {
			return drop, p
		}
		if p.proto, rest = rest[0], rest[size:]; !p.first {
			return p.judge(nil, odd)
		}
	}
	return p.judge(nil, true)
}

// judge decides by the payload, which is empty where it is not all there.
func (p packet) judge(payload []byte, odd bool) (action, packet) {
	p.kind = "icmp"
	switch p.proto {
	case protoTCP, protoUDP:
		p.kind = "tcp"
		if p.proto == protoUDP {
			p.kind = "udp"
		}
		if p.first && len(payload) >= 4 {
			p.port = binary.BigEndian.Uint16(payload[2:])
		}
		if odd || !reachable(p.dst) {
			return refuse, p
		}
		return pass, p
	case protoIGMP:
		return drop, p // its kernel says which groups it is in; nobody asked
	case protoICMP:
		// An error is never answered, and nobody here waits for one.
		if p.dst.Is4() && p.first && len(payload) > 0 && (payload[0] == 0 || payload[0] == 3 || payload[0] == 4 || payload[0] == 5 || payload[0] == 11 || payload[0] == 12) {
			return drop, p
		}
	case protoICMP6:
		if p.dst.Is6() && len(payload) > 0 && (payload[0] < 128 || payload[0] >= 129 && payload[0] <= 137 || payload[0] == 143) {
			return drop, p // errors, and what kernels say of groups and routers
		}
	}
	return refuse, p
}

// reachable says whether the stack can answer from a as its own address.
func reachable(a netip.Addr) bool {
	return !a.IsMulticast() && !a.IsUnspecified() && a != netip.AddrFrom4([4]byte{255, 255, 255, 255}) &&
		a != wire.Guest4 && a != wire.Guest6
}

// reason is the word for the record of a packet that was refused.
func (p packet) reason() string {
	switch p.kind {
	case "tcp":
		return policy.DenyAddress
	case "udp":
		return policy.DenyUDP
	}
	return policy.DenyICMP
}

// unreachable builds the frame that tells the guest that p goes nowhere; nil if
// nothing may be said. The codes are those that a guest's own kernel turns into
// an error at once: gVisor's knows, for TCP, "prohibited" of IPv4 and "no
// route" of IPv6, for UDP "port", and hands all to raw sockets as ping has.
func (p packet) unreachable() []byte {
	if !p.first {
		return nil
	}
	if p.dst.Is4() {
		code := byte(13) // administratively prohibited
		switch p.proto {
		case protoUDP:
			code = 3
		case protoTCP, protoICMP:
		default:
			code = 2 // no such protocol
		}
		inner := p.ip[:min(len(p.ip), 548)]
		b := make([]byte, etherHeader+ipv4Header+8, etherHeader+ipv4Header+8+len(inner))
		ether(b, etherIPv4)
		ip := b[etherHeader:]
		ip[0], ip[8], ip[9] = 0x45, 64, protoICMP
		binary.BigEndian.PutUint16(ip[2:], uint16(ipv4Header+8+len(inner)))
		copy(ip[12:], wire.Gateway4.AsSlice())
		copy(ip[16:], wire.Guest4.AsSlice())
		binary.BigEndian.PutUint16(ip[10:], ^checksum.Checksum(ip[:ipv4Header], 0))
		icmp := append(ip[ipv4Header:], inner...)
		icmp[0], icmp[1] = 3, code
		binary.BigEndian.PutUint16(icmp[2:], ^checksum.Checksum(icmp, 0))
		return b[:cap(b)]
	}
	code := byte(1) // administratively prohibited
	switch p.proto {
	case protoUDP:
		code = 4
	case protoTCP:
		code = 0 // no route
	}
	inner := p.ip[:min(len(p.ip), 1232)]
	b := make([]byte, etherHeader+ipv6Header+8, etherHeader+ipv6Header+8+len(inner))
	ether(b, etherIPv6)
	ip := b[etherHeader:]
	ip[0], ip[6], ip[7] = 0x60, protoICMP6, 64
	binary.BigEndian.PutUint16(ip[4:], uint16(8+len(inner)))
	copy(ip[8:], wire.Gateway6.AsSlice())
	copy(ip[24:], wire.Guest6.AsSlice())
	icmp := append(ip[ipv6Header:], inner...)
	icmp[0], icmp[1] = 1, code
	sum := checksum.Checksum(ip[8:ipv6Header], 0) // both addresses
	sum = checksum.Combine(checksum.Combine(sum, uint16(len(icmp))), protoICMP6)
	binary.BigEndian.PutUint16(icmp[2:], ^checksum.Checksum(icmp, sum))
	return b[:cap(b)]
}

// ether fills a frame's head.
func ether(b []byte, what uint16) {
	copy(b, wire.GuestMAC)
	copy(b[6:], wire.GatewayMAC)
	binary.BigEndian.PutUint16(b[12:], what)
}
