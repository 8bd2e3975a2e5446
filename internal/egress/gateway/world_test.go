package gateway

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/fdbased"
	"gvisor.dev/gvisor/pkg/tcpip/network/arp"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/raw"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
	"gvisor.dev/gvisor/pkg/waiter"

	"github.com/bermhq/berm/internal/egress/wire"
	"github.com/bermhq/berm/internal/policy"
)

// patienceInTests is for what must come; nothing waits for it to pass.
const patienceInTests = 60 * time.Second

// Where things are in the world of the tests.
var (
	server4 = netip.MustParseAddr("198.51.100.1")
	server6 = netip.MustParseAddr("2001:db8::1")
)

const serverName = "allowed.test"

// pair returns both ends of a SOCK_SEQPACKET pair.
func pair(t testing.TB) (a, b *os.File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 4<<20)
	}
	return os.NewFile(uintptr(fds[0]), "a"), os.NewFile(uintptr(fds[1]), "b")
}

// fake is a broker that does what decide says, and dials what a test serves.
type fake struct {
	t      testing.TB
	conn   *wire.Conn
	decide func(wire.Ask) wire.Answer

	mu     sync.Mutex
	routes map[netip.AddrPort]string // to a server of the test; "" refuses
	asks   []wire.Ask
	socks  map[uint64]net.Conn
	change chan struct{} // closed and made anew at each ask
}

// usual is what a policy with the rule "allowed.test" says. Ports from 9000 on
// are of a rule that looks at nothing.
func usual(a wire.Ask) wire.Answer {
	ok := wire.Answer{Allow: true}
	switch a.Op {
	case wire.OpName:
		switch {
		case a.Name != serverName:
			return wire.Answer{Reason: policy.DenyNoRule}
		case a.Type == 1:
			ok.Addrs, ok.TTL = []netip.Addr{server4}, 60
		case a.Type == 28:
			ok.Addrs, ok.TTL = []netip.Addr{server6}, 60
		}
		return ok
	case wire.OpAccept:
		if a.To.Addr() != server4 && a.To.Addr() != server6 {
			return wire.Answer{Reason: policy.DenyUnresolved}
		}
		ok.Inspect = a.To.Port() < 9000
		return ok
	}
	switch {
	case a.Hidden:
		return wire.Answer{Reason: policy.DenyHidden}
	case a.Seen == "udp" && a.To.Port() < 9000:
		return wire.Answer{Reason: policy.DenyUDP}
	case a.Seen == "raw":
		return wire.Answer{Reason: policy.DenyProtocol}
	case (a.Seen == "tls" || a.Seen == "http") && a.Claim == "":
		return wire.Answer{Reason: policy.DenyNoName}
	case (a.Seen == "tls" || a.Seen == "http") && a.Claim != serverName:
		return wire.Answer{Reason: policy.DenyName, Text: a.Claim + " is not " + serverName, Fix: "--allow " + a.Claim}
	}
	return ok
}

func (f *fake) serve() {
	for {
		a, err := f.conn.ReceiveAsk()
		if errors.Is(err, wire.ErrMessage) {
			f.t.Errorf("asked: %v", err)
		}
		if err != nil {
			return
		}
		f.mu.Lock()
		f.asks = append(f.asks, a)
		close(f.change)
		f.change = make(chan struct{})
		f.mu.Unlock()
		switch a.Op {
		case wire.OpClose:
			f.mu.Lock()
			c := f.socks[a.Flow]
			delete(f.socks, a.Flow)
			f.mu.Unlock()
			if c != nil {
				if t, ok := c.(*net.TCPConn); ok && a.Reason == wire.CloseReset {
					t.SetLinger(0)
				}
				c.Close()
			}
		case wire.OpDenied:
		default:
			go f.answer(a)
		}
	}
}

func (f *fake) answer(a wire.Ask) {
	r := f.decide(a)
	r.Seq = a.Seq
	if (a.Op == wire.OpConnect || a.Op == wire.OpAccept && !r.Inspect) && r.Allow {
		f.mu.Lock()
		to, known := f.routes[a.To]
		f.mu.Unlock()
		network := "tcp"
		if a.Seen == "udp" {
			network = "udp"
		}
		c, err := net.Dial(network, to)
		if !known || err != nil {
			r.Allow, r.Fault = false, "refused"
		} else {
			f.mu.Lock()
			f.socks[a.Flow] = c
			f.mu.Unlock()
			sc, err := c.(syscall.Conn).SyscallConn()
			if err == nil {
				err = sc.Control(func(fd uintptr) { f.send(r, int(fd)) })
			}
			if err != nil {
				f.t.Error(err)
			}
			return
		}
	}
	f.send(r, -1)
}

func (f *fake) send(r wire.Answer, fd int) {
	if err := f.conn.SendAnswer(r, fd); err != nil && !errors.Is(err, unix.EPIPE) && !errors.Is(err, net.ErrClosed) && !errors.Is(err, unix.ECONNRESET) {
		f.t.Errorf("answer: %v", err)
	}
}

// wait returns the first ask that ok likes, of those that were and will be made.
func (f *fake) wait(ok func(wire.Ask) bool) wire.Ask {
	f.t.Helper()
	late := time.After(patienceInTests)
	for {
		f.mu.Lock()
		i := slices.IndexFunc(f.asks, ok)
		asks, change := f.asks, f.change
		f.mu.Unlock()
		if i >= 0 {
			return asks[i]
		}
		select {
		case <-change:
		case <-late:
			f.t.Fatalf("not asked; asked were %+v", asks)
		}
	}
}

// denied waits for a record of that kind and reason.
func (f *fake) denied(kind, reason string) wire.Ask {
	f.t.Helper()
	return f.wait(func(a wire.Ask) bool { return a.Op == wire.OpDenied && a.Kind == kind && a.Reason == reason })
}

// route sends what goes to to to a server.
func (f *fake) route(to netip.AddrPort, server string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.routes[to] = server
}

// A world is a gateway in this process with a broker and a guest.
type world struct {
	*fake
	g     *Gateway
	guest *stack.Stack
	ended chan error

	marks *os.File // of a process
}

// newWorld makes one; decide nil means usual.
func newWorld(t testing.TB, decide func(wire.Ask) wire.Answer) *world {
	t.Helper()
	guestEnd, linkEnd := pair(t)
	brokerEnd, askEnd := pair(t)
	keepOpen(t, linkEnd)
	w := &world{fake: newFake(t, brokerEnd, decide), ended: make(chan error, 1)}
	link, err := Packets(linkEnd)
	if err != nil {
		t.Fatal(err)
	}
	b, err := newBroker(askEnd)
	if err != nil {
		t.Fatal(err)
	}
	if w.g, err = newGateway(link, b); err != nil {
		t.Fatal(err)
	}
	w.g.window = windowFor(linkEnd)
	if err := b.begin(); err != nil {
		t.Fatal(err)
	}
	go b.serve()
	go func() { w.ended <- w.g.run() }()
	t.Cleanup(w.g.close)
	w.guest = newGuest(t, guestEnd)
	return w
}

// newFake serves the broker's end, and says go.
func newFake(t testing.TB, end *os.File, decide func(wire.Ask) wire.Answer) *fake {
	t.Helper()
	c, err := net.FileConn(end)
	if err != nil {
		t.Fatal(err)
	}
	end.Close()
	if decide == nil {
		decide = usual
	}
	f := &fake{t: t, conn: wire.NewConn(c.(*net.UnixConn)), decide: decide, routes: map[netip.AddrPort]string{},
		socks: map[uint64]net.Conn{}, change: make(chan struct{})}
	f.send(wire.Answer{}, -1)
	go f.serve()
	t.Cleanup(func() {
		f.conn.Close()
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, c := range f.socks {
			c.Close()
		}
	})
	return f
}

// keepOpen keeps a guest's link from ending while this program runs: gVisor's
// endpoint reads its end over and over, and takes a processor with it.
func keepOpen(t testing.TB, f *os.File) {
	t.Helper()
	raw, err := f.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { _, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) })
	}
	if err != nil {
		t.Fatal(err)
	}
}

// newGuest is a stack as a sandbox's is, on gVisor's own link.
func newGuest(t testing.TB, end *os.File) *stack.Stack {
	t.Helper()
	fd, err := unix.FcntlInt(end.Fd(), unix.F_DUPFD_CLOEXEC, 0) // blocking does not matter: it is set there
	if err != nil {
		t.Fatal(err)
	}
	end.Close()
	ep, err := fdbased.New(&fdbased.Options{FDs: []int{fd}, MTU: wire.MTU, EthernetHeader: true, Address: wire.GuestMAC,
		PacketDispatchMode: fdbased.RecvMMsg, ProcessorsPerChannel: 1, ClosedFunc: func(tcpip.Error) {}})
	if err != nil {
		t.Fatal(err)
	}
	s := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{arp.NewProtocol, ipv4.NewProtocol, ipv6.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol, icmp.NewProtocol4, icmp.NewProtocol6},
		RawFactory:         &raw.EndpointFactory{},
	})
	sack := tcpip.TCPSACKEnabled(true)
	s.SetTransportProtocolOption(tcp.ProtocolNumber, &sack)
	if err := s.CreateNIC(1, ep); err != nil {
		t.Fatal(err)
	}
	for _, a := range []struct {
		proto tcpip.NetworkProtocolNumber
		addr  netip.Addr
		bits  int
	}{{ipv4.ProtocolNumber, wire.Guest4, wire.Bits4}, {ipv6.ProtocolNumber, wire.Guest6, wire.Bits6}} {
		s.AddProtocolAddress(1, tcpip.ProtocolAddress{Protocol: a.proto,
			AddressWithPrefix: tcpip.AddressWithPrefix{Address: address(a.addr), PrefixLen: a.bits}}, stack.AddressProperties{})
	}
	s.SetRouteTable([]tcpip.Route{
		{Destination: header.IPv4EmptySubnet, Gateway: address(wire.Gateway4), NIC: 1},
		{Destination: header.IPv6EmptySubnet, Gateway: address(wire.Gateway6), NIC: 1},
	})
	t.Cleanup(s.Close)
	return s
}

func address(a netip.Addr) tcpip.Address { return tcpip.AddrFromSlice(a.AsSlice()) }

func proto(a netip.Addr) tcpip.NetworkProtocolNumber {
	if a.Is4() {
		return ipv4.ProtocolNumber
	}
	return ipv6.ProtocolNumber
}

// dial connects from within the guest.
func (w *world) dial(to netip.AddrPort) (*gonet.TCPConn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patienceInTests)
	defer cancel()
	c, err := gonet.DialContextTCP(ctx, w.guest, tcpip.FullAddress{NIC: 1, Addr: address(to.Addr()), Port: to.Port()}, proto(to.Addr()))
	if err == nil {
		c.SetDeadline(time.Now().Add(patienceInTests))
	}
	return c, err
}

func (w *world) mustDial(to netip.AddrPort) *gonet.TCPConn {
	w.t.Helper()
	c, err := w.dial(to)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// dialUDP makes a connected socket within the guest.
func (w *world) dialUDP(to netip.AddrPort) *gonet.UDPConn {
	w.t.Helper()
	c, err := gonet.DialUDP(w.guest, nil, &tcpip.FullAddress{NIC: 1, Addr: address(to.Addr()), Port: to.Port()}, proto(to.Addr()))
	if err != nil {
		w.t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(patienceInTests))
	return c
}

// listen starts a server outside that serves each connection with f, and sends
// what the guest has for to there.
func (w *world) listen(to netip.AddrPort, f func(*net.TCPConn)) {
	w.t.Helper()
	host := "127.0.0.1:0"
	if to.Addr().Is6() {
		host = "[::1]:0"
	}
	l, err := net.Listen("tcp", host)
	if err != nil {
		w.t.Skipf("no loopback: %v", err)
	}
	w.t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				f(c.(*net.TCPConn))
			}()
		}
	}()
	w.route(to, l.Addr().String())
}

func at(a netip.Addr, port uint16) netip.AddrPort { return netip.AddrPortFrom(a, port) }

// reset says whether an error of the guest's stack is that of a reset.
func reset(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Err.Error() == (&tcpip.ErrConnectionReset{}).String()
}

// refused says whether a connection was refused at once.
func refused(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Err.Error() == (&tcpip.ErrConnectionRefused{}).String()
}

func mustWrite(t testing.TB, c io.Writer, s string) {
	t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		t.Fatal(err)
	}
}

// rawSocket is the guest's, for a protocol.
func (w *world) rawSocket(p tcpip.TransportProtocolNumber, n tcpip.NetworkProtocolNumber) (tcpip.Endpoint, *waiter.Queue) {
	w.t.Helper()
	var wq waiter.Queue
	ep, err := w.guest.NewRawEndpoint(p, n, &wq, true)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(ep.Close)
	return ep, &wq
}
