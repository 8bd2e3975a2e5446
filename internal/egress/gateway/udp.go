package gateway

import (
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
	"gvisor.dev/gvisor/pkg/waiter"

	"github.com/bermhq/berm/internal/egress/wire"
	"github.com/bermhq/berm/internal/policy"
)

// Bounds of UDP.
const (
	udpFlows    = 64
	udpAsking   = 16 // destinations that are asked about at one time
	udpIdle     = 30 * time.Second
	udpRemember = time.Second // a denial is the answer for so long
	udpDenied   = 256         // denials that are remembered
)

// datagrams is the state of all UDP but DNS.
type datagrams struct {
	mu     sync.Mutex
	flows  int
	asking map[netip.AddrPort]struct{}
	denied map[netip.AddrPort]time.Time // until when
}

// datagram is called for each datagram that belongs to no flow, by the link's
// reader. False means that nobody is there: the stack says so to the guest.
func (g *Gateway) datagram(id stack.TransportEndpointID, pkt *stack.PacketBuffer) bool {
	to := addrPort(id.LocalAddress, id.LocalPort)
	if to.Addr() == wire.Gateway4 || to.Addr() == wire.Gateway6 {
		g.records.add("udp", policy.DenyGateway, to, "")
		return false
	}
	d := &g.udp
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	if until, is := d.denied[to]; is && now.Before(until) {
		g.records.add("udp", policy.DenyUDP, to, "")
		return false
	}
	delete(d.denied, to)
	if _, is := d.asking[to]; is {
		return true // lost, as datagrams may be; the first one is kept
	}
	if len(d.asking) >= udpAsking || d.flows >= udpFlows {
		g.records.add("udp", policy.DenyBudget, to, "")
		return false
	}
	d.asking[to] = struct{}{}
	d.flows++
	held := pkt.Clone()
	go func() {
		g.udpFlow(id, held, to)
		held.DecRef()
		d.mu.Lock()
		d.flows--
		d.mu.Unlock()
	}()
	return true
}

// udpFlow asks about a destination and relays if it may.
func (g *Gateway) udpFlow(id stack.TransportEndpointID, first *stack.PacketBuffer, to netip.AddrPort) {
	flow := g.flows.Add(1)
	a, out, err := g.broker.ask(wire.Ask{Op: wire.OpConnect, Flow: flow, To: to, Seen: string(policy.SeenUDP)})
	if err != nil || !a.Allow || out == nil {
		g.udp.forget(to, err == nil && a.Fault == "")
		if out != nil {
			out.Close()
		}
		g.refuse(udpPacket(first, to))
		return
	}
	defer g.broker.tell(wire.Ask{Op: wire.OpClose, Flow: flow})
	defer out.Close()
	var wq waiter.Queue
	ep, terr := udp.NewForwarderRequest(g.stack, id, first.Clone()).CreateEndpoint(&wq)
	g.udp.forget(to, false) // from here on the flow gets what comes
	if terr != nil {
		return
	}
	guest := gonet.NewUDPConn(&wq, ep)
	defer guest.Close()
	raw, err := out.SyscallConn()
	if err != nil {
		return
	}
	// Both directions push the end away; the one that finds it reached ends both.
	alive := func() {
		t := time.Now().Add(udpIdle)
		guest.SetReadDeadline(t)
		out.SetReadDeadline(t)
	}
	alive()
	go func() {
		defer guest.Close()
		buf := make([]byte, wire.MTU)
		for {
			n := -1
			var err error
			if rerr := raw.Read(func(fd uintptr) bool {
				n, err = unix.Read(int(fd), buf) // os.File takes an empty datagram for the end
				return err != unix.EAGAIN
			}); rerr != nil {
				return
			}
			if err == unix.ECONNREFUSED {
				continue // of an earlier datagram
			}
			if err != nil {
				return
			}
			if _, err := guest.Write(buf[:n]); err != nil {
				return
			}
			alive()
		}
	}()
	buf := make([]byte, wire.MTU)
	for {
		n, err := guest.Read(buf)
		if err != nil {
			return
		}
		out.Write(buf[:n]) // what cannot be sent is lost
		alive()
	}
}

// forget ends the asking about to, and remembers a denial for a while.
func (d *datagrams) forget(to netip.AddrPort, denied bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.asking, to)
	if !denied {
		return
	}
	now := time.Now()
	if len(d.denied) >= udpDenied {
		for k, until := range d.denied {
			if now.After(until) {
				delete(d.denied, k)
			}
		}
	}
	if len(d.denied) < udpDenied {
		d.denied[to] = now.Add(udpRemember)
	}
}

// udpPacket is what an error message quotes of a datagram.
func udpPacket(pkt *stack.PacketBuffer, to netip.AddrPort) packet {
	ip := append([]byte(nil), pkt.NetworkHeader().Slice()...)
	ip = append(ip, pkt.TransportHeader().Slice()...)
	if len(ip) > header.IPv6MinimumSize+1232 {
		ip = ip[:header.IPv6MinimumSize+1232]
	}
	return packet{ip: ip, proto: protoUDP, dst: to.Addr(), port: to.Port(), first: true, kind: "udp"}
}
