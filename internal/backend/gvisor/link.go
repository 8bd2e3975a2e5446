package gvisor

import (
	"net"
	"net/netip"

	"github.com/bermhq/berm/internal/egress/wire"
)

// linkName is what the guest sees of its wire.
const linkName = "eth0"

// fdBasedLink mirrors boot.FDBasedLink. The host's offloads and gVisor's own
// are off: frames are as large as IP lets them be, so there is nothing to split.
type fdBasedLink struct {
	Name                 string
	InterfaceIndex       int
	MTU                  int
	Addresses            []ipWithPrefix
	Routes               []route
	GSOMaxSize           uint32
	GVisorGSOEnabled     bool
	GVisorGRO            bool
	TXChecksumOffload    bool
	RXChecksumOffload    bool
	LinkAddress          net.HardwareAddr
	QDisc                int
	Neighbors            []neighbor
	NumChannels          int
	ProcessorsPerChannel int
}

type neighbor struct {
	IP           net.IP
	HardwareAddr net.HardwareAddr
}

type defaultRoute struct {
	Route route
	Name  string
}

// qdiscFIFO is config.QDiscFIFO, which gVisor's own default is.
const qdiscFIFO = 1

// withLink is the network of a sandbox with a wire, whose descriptor goes with
// the call. What the sentry sends has checksums; what it gets it believes, for
// nothing on the way could damage it. The gateway is a neighbour from the start,
// so that nothing is sent before the guest does something.
func withLink() linksAndRoutes {
	gw4, gw6 := ip(wire.Gateway4), ip(wire.Gateway6)
	mac := net.HardwareAddr(wire.GatewayMAC)
	l := loopbackOnly()
	l.FDBasedLinks = []fdBasedLink{{
		Name: linkName, InterfaceIndex: 2, MTU: wire.MTU,
		Addresses:         []ipWithPrefix{{ip(wire.Guest4), wire.Bits4}, {ip(wire.Guest6), wire.Bits6}},
		Routes:            []route{{Destination: subnet(wire.Guest4, wire.Bits4)}, {Destination: subnet(wire.Guest6, wire.Bits6)}},
		RXChecksumOffload: true,
		LinkAddress:       net.HardwareAddr(wire.GuestMAC), QDisc: qdiscFIFO,
		Neighbors:   []neighbor{{gw4, mac}, {gw6, mac}},
		NumChannels: 1, ProcessorsPerChannel: 1,
	}}
	l.Defaultv4Gateway = &defaultRoute{Name: linkName, Route: route{Destination: subnet(netip.IPv4Unspecified(), 0), Gateway: gw4}}
	l.Defaultv6Gateway = &defaultRoute{Name: linkName, Route: route{Destination: subnet(netip.IPv6Unspecified(), 0), Gateway: gw6}}
	return l
}

func ip(a netip.Addr) net.IP { return a.AsSlice() }

func subnet(a netip.Addr, bits int) net.IPNet {
	return net.IPNet{IP: ip(netip.PrefixFrom(a, bits).Masked().Addr()), Mask: net.CIDRMask(bits, a.BitLen())}
}
