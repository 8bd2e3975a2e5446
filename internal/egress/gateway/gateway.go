package gateway

import (
	"fmt"
	"io"
	"net/netip"
	"sync/atomic"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/ethernet"
	"gvisor.dev/gvisor/pkg/tcpip/network/arp"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"

	"github.com/bermhq/berm/internal/egress/wire"
)

const nic = 1

// Bounds of what the gateway says of what it refuses.
const (
	icmpRate  = 1000 // messages a second
	icmpBurst = 200
)

// A Gateway is one sandbox's network.
type Gateway struct {
	stack     *stack.Stack
	link      FrameConn
	ep        *endpoint
	broker    *broker
	records   *records
	idle      idle
	udp       datagrams
	icmp      *bucket
	dnsRate   *bucket
	dnsRefuse *bucket
	dnsOpen   chan struct{}
	stop      chan struct{}
	marks     *marks
	rest      rest
	seen      uint64 // of flows, by busy
	window    int64  // the most that a guest may have under way on a connection

	flows    atomic.Uint64 // the last number
	conns    atomic.Int64
	dnsConns atomic.Int64
}

// newGateway builds the stack behind link. It reads nothing from it.
func newGateway(link FrameConn, b *broker) (*Gateway, error) {
	g := &Gateway{
		link: link, ep: &endpoint{link: link}, broker: b, records: newRecords(b.tell),
		idle:    idle{flows: map[*flow]struct{}{}},
		udp:     datagrams{asking: map[netip.AddrPort]struct{}{}, denied: map[netip.AddrPort]time.Time{}},
		icmp:    newBucket(icmpRate, icmpBurst),
		dnsRate: newBucket(dnsRate, dnsBurst), dnsRefuse: newBucket(dnsRefuse, dnsRefuse), dnsOpen: make(chan struct{}, dnsOpen),
		stop: make(chan struct{}), window: bufferMost, marks: &marks{},
	}
	g.stack = stack.New(stack.Options{
		NetworkProtocols: []stack.NetworkProtocolFactory{
			arp.NewProtocol, ipv4.NewProtocol,
			// Nothing that the guest's routers may say is believed.
			ipv6.NewProtocolWithOptions(ipv6.Options{NDPConfigs: ipv6.NDPConfigurations{HandleRAs: ipv6.HandlingRAsDisabled}}),
		},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol},
	})
	if err := g.options(); err != nil {
		return nil, err
	}
	if err := g.stack.CreateNIC(nic, ethernet.New(g.ep)); err != nil {
		return nil, fmt.Errorf("gateway: link: %v", err)
	}
	// Whatever the guest connects to, it finds it here.
	g.stack.SetPromiscuousMode(nic, true)
	g.stack.SetSpoofing(nic, true)
	var routes []tcpip.Route
	for _, a := range []struct {
		proto       tcpip.NetworkProtocolNumber
		mine, guest netip.Addr
		bits        int
		all         tcpip.Subnet
	}{
		{ipv4.ProtocolNumber, wire.Gateway4, wire.Guest4, wire.Bits4, header.IPv4EmptySubnet},
		{ipv6.ProtocolNumber, wire.Gateway6, wire.Guest6, wire.Bits6, header.IPv6EmptySubnet},
	} {
		addr := tcpip.AddressWithPrefix{Address: tcpip.AddrFromSlice(a.mine.AsSlice()), PrefixLen: a.bits}
		if err := g.stack.AddProtocolAddress(nic, tcpip.ProtocolAddress{Protocol: a.proto, AddressWithPrefix: addr}, stack.AddressProperties{}); err != nil {
			return nil, fmt.Errorf("gateway: address: %v", err)
		}
		if err := g.stack.AddStaticNeighbor(nic, a.proto, tcpip.AddrFromSlice(a.guest.AsSlice()), wire.GuestMAC); err != nil {
			return nil, fmt.Errorf("gateway: neighbour: %v", err)
		}
		routes = append(routes, tcpip.Route{Destination: a.all, NIC: nic})
	}
	g.stack.SetRouteTable(routes)
	g.stack.SetTransportProtocolHandler(tcp.ProtocolNumber, tcp.NewForwarder(g.stack, bufferMost, maxSyn, g.syn).HandlePacket)
	g.stack.SetTransportProtocolHandler(udp.ProtocolNumber, g.datagram)
	if err := g.serveDNS(); err != nil {
		return nil, fmt.Errorf("gateway: dns: %w", err)
	}
	return g, nil
}

// options sets what is not as gVisor has it.
func (g *Gateway) options() error {
	sack, moderate := tcpip.TCPSACKEnabled(true), tcpip.TCPModerateReceiveBufferOption(false)
	linger, wait := tcpip.TCPLingerTimeoutOption(10*time.Second), tcpip.TCPTimeWaitTimeoutOption(time.Second)
	for _, o := range []tcpip.SettableTransportProtocolOption{
		&sack, &moderate, &linger, &wait,
		&tcpip.TCPReceiveBufferSizeRangeOption{Min: 4 << 10, Default: bufferMost, Max: bufferMost},
		&tcpip.TCPSendBufferSizeRangeOption{Min: 4 << 10, Default: bufferMost, Max: bufferMost},
	} {
		if err := g.stack.SetTransportProtocolOption(tcp.ProtocolNumber, o); err != nil {
			return fmt.Errorf("gateway: %T: %v", o, err)
		}
	}
	return nil
}

// run reads the link until it ends. A nil error is its end.
func (g *Gateway) run() error {
	go g.records.run(g.stop)
	go g.sweep()
	go g.inherit()
	buf := make([]byte, wire.MaxFrame)
	for {
		n, err := g.link.ReadFrame(buf)
		if err == io.EOF || err == nil && n == 0 {
			return nil
		}
		if err != nil {
			return err
		}
		g.frame(buf[:n])
	}
}

// close frees what the stack holds.
func (g *Gateway) close() {
	close(g.stop)
	g.link.Close()
	g.broker.conn.Close()
	g.stack.Close()
	g.stack.RemoveNIC(nic)
}

// frame takes one frame from the guest.
func (g *Gateway) frame(b []byte) {
	switch what, p := triage(b); what {
	case pass:
		g.ep.deliver(b)
	case refuse:
		g.records.add(p.kind, p.reason(), netip.AddrPortFrom(p.dst, p.port), "")
		g.refuse(p)
	case stand:
		if g.icmp.take(time.Now()) {
			g.link.WriteFrame([][]byte{advert(p.dst)})
		}
	}
}

// refuse tells the guest that p goes nowhere.
func (g *Gateway) refuse(p packet) {
	if frame := p.unreachable(); frame != nil && g.icmp.take(time.Now()) {
		g.link.WriteFrame([][]byte{frame})
	}
}

func (g *Gateway) sweep() {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for n := 1; ; n++ {
		select {
		case now := <-t.C:
			if g.rest.over(g.busy()) {
				giveBack()
			}
			g.marks.sweep(g.isOpen)
			if n%60 == 0 {
				g.idle.sweep(now.Add(-idleTime))
			}
		case <-g.stop:
			return
		}
	}
}
