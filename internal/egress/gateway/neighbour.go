package gateway

import (
	"encoding/binary"
	"net/netip"

	"gvisor.dev/gvisor/pkg/tcpip/checksum"

	"github.com/bermhq/berm/internal/egress/wire"
)

// absent is the address that a neighbour solicitation of the guest asks for, if
// it is one of the link's that nobody has; else the zero value. The stack says
// nothing to those, and the guest would wait for a neighbour for ever. Over IPv4
// the stack answers for every address, so what is sent there is refused at once.
func absent(src netip.Addr, icmp []byte) netip.Addr {
	const solicitation = 135
	if icmp[0] != solicitation || len(icmp) < 24 || src != wire.Guest6 {
		return netip.Addr{}
	}
	a := netip.AddrFrom16([16]byte(icmp[8:24]))
	if a == wire.Guest6 || a == wire.Gateway6 || !netip.PrefixFrom(wire.Gateway6, wire.Bits6).Contains(a) {
		return netip.Addr{}
	}
	return a
}

// advert is the frame that says that a is here.
func advert(a netip.Addr) []byte {
	b := make([]byte, etherHeader+ipv6Header+32)
	ether(b, etherIPv6)
	ip := b[etherHeader:]
	ip[0], ip[6], ip[7] = 0x60, protoICMP6, 255
	binary.BigEndian.PutUint16(ip[4:], 32)
	copy(ip[8:], a.AsSlice())
	copy(ip[24:], wire.Guest6.AsSlice())
	icmp := ip[ipv6Header:]
	icmp[0], icmp[4] = 136, 0x60 // solicited, and in place of what was known before
	copy(icmp[8:], a.AsSlice())
	icmp[24], icmp[25] = 2, 1 // target link-layer address, in units of 8 bytes
	copy(icmp[26:], wire.GatewayMAC)
	sum := checksum.Checksum(ip[8:ipv6Header], 0) // both addresses
	sum = checksum.Combine(checksum.Combine(sum, uint16(len(icmp))), protoICMP6)
	binary.BigEndian.PutUint16(icmp[2:], ^checksum.Checksum(icmp, sum))
	return b
}
