package gateway

import (
	"errors"
	"io"
	"net/netip"
	"os"
	"sync/atomic"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"

	"github.com/bermhq/berm/internal/egress/sniff"
	"github.com/bermhq/berm/internal/egress/wire"
	"github.com/bermhq/berm/internal/policy"
)

// Bounds of connections.
const (
	maxConns      = 256 // DNS not counted
	maxSyn        = 320 // that are asked about or half open
	handshakeTime = 10 * time.Second
	idleTime      = 15 * time.Minute
)

// A flow is one TCP connection of the guest.
type flow struct {
	g      *Gateway
	id     uint64
	to     netip.AddrPort
	guest  *guestConn
	active atomic.Int64
	out    *os.File                // the connected descriptor, once there is one
	cutOut atomic.Pointer[os.File] // the same, for idle
	reset  atomic.Bool             // the guest cut it off: so must we outside
	follow *sniff.Follower         // of TLS, for upward
}

// syn is called for each SYN, in a goroutine of its own.
func (g *Gateway) syn(r *tcp.ForwarderRequest) {
	id := r.ID()
	to := addrPort(id.LocalAddress, id.LocalPort)
	if to.Addr() == wire.Gateway4 || to.Addr() == wire.Gateway6 {
		g.synOwn(r, to)
		return
	}
	if g.conns.Add(1) > maxConns {
		g.conns.Add(-1)
		r.Complete(true)
		g.records.add("tcp", policy.DenyBudget, to, "")
		return
	}
	defer g.conns.Add(-1)
	f := &flow{g: g, id: g.flows.Add(1), to: to}
	accept := f.ask(wire.Ask{Op: wire.OpAccept})
	if !accept.Allow {
		if accept.Reason == "" { // it may have been dialled
			f.end()
		}
		r.Complete(true) // what is refused outside is refused inside, too
		return
	}
	defer f.end()
	if f.guest = g.establish(r, &f.active); f.guest == nil {
		return
	}
	g.idle.add(f)
	defer g.idle.remove(f)
	if accept.Inspect {
		f.inspect()
	} else {
		f.relay(nil)
	}
}

// end closes what is open and tells the broker, which holds the socket, too.
func (f *flow) end() {
	if f.guest != nil {
		f.guest.Close()
	}
	if f.out != nil {
		f.out.Close()
	}
	a := wire.Ask{Op: wire.OpClose, Flow: f.id}
	if f.reset.Load() {
		a.Reason = wire.CloseReset
	}
	f.g.broker.tell(a)
}

// connect asks for the connection outside of a flow that was looked at.
func (f *flow) connect(a wire.Ask) wire.Answer {
	a.Op = wire.OpConnect
	return f.ask(a)
}

// ask asks about the flow. f.out is set if the answer allows, and wants no look
// at it first.
func (f *flow) ask(a wire.Ask) wire.Answer {
	a.Flow, a.To = f.id, f.to
	answer, file, err := f.g.broker.ask(a)
	if err != nil {
		return wire.Answer{Fault: "unreachable"}
	}
	answer.Inspect = answer.Inspect && a.Op == wire.OpAccept
	made := answer.Allow && !answer.Inspect
	switch {
	case file != nil && !made:
		file.Close()
	case file == nil && made:
		answer.Allow, answer.Fault, made = false, "unreachable", false
	}
	if made {
		f.out = file
		f.cutOut.Store(file)
	}
	return answer
}

// establish completes the handshake with the guest; nil if there is no guest at
// its end.
func (g *Gateway) establish(r *tcp.ForwarderRequest, active *atomic.Int64) *guestConn {
	id := r.ID()
	late := time.AfterFunc(handshakeTime, func() {
		proto := header.IPv4ProtocolNumber
		if id.LocalAddress.Len() == header.IPv6AddressSize {
			proto = header.IPv6ProtocolNumber
		}
		if ep, ok := g.stack.FindTransportEndpoint(proto, tcp.ProtocolNumber, id, nic).(tcpip.Endpoint); ok {
			ep.Abort()
		}
	})
	// Before the guest has it: it is not to have one that nobody knows of.
	slot := g.marks.take(mark{id.RemotePort, addrPort(id.LocalAddress, id.LocalPort)})
	var wq waiter.Queue
	ep, err := r.CreateEndpoint(&wq)
	if !late.Stop() && err == nil {
		ep.Abort()
		err = &tcpip.ErrTimeout{}
	}
	r.Complete(false)
	if err != nil {
		g.marks.over(slot)
		return nil
	}
	size := bufferFor(g.conns.Load())
	ep.SocketOptions().SetReceiveBufferSize(min(size, g.window), true)
	ep.SocketOptions().SetSendBufferSize(size, true)
	if active != nil {
		active.Store(time.Now().UnixNano())
	}
	return &guestConn{ep: ep, wq: &wq, active: active, marks: g.marks, slot: slot}
}

// bufferFor is how much a connection may hold, each way, when so many are open.
func bufferFor(open int64) int64 {
	switch {
	case open <= 8:
		return bufferMost
	case open <= 32:
		return bufferMost / 4
	}
	return bufferMost / 16
}

// inspect looks at what the guest sends first, and asks what to do.
func (f *flow) inspect() {
	p := &peeker{conn: f.guest}
	begun, late := time.After(quiet), time.After(headTime)
	var (
		hello sniff.HelloReader
		heads sniff.HeadReader
		fed   int
	)
	for {
		wait := late
		switch sniff.Look(p.data()) {
		case sniff.More:
			wait = begun
		case sniff.TLS:
			h, err := hello.Feed(p.data()[fed:])
			fed = len(p.data())
			if err == nil {
				f.tls(p, h, hello.Len())
				return
			}
			if err != sniff.ErrMore {
				f.raw(p)
				return
			}
		case sniff.HTTP:
			q, n, err := heads.Next(p.data())
			if err != nil {
				f.notHTTP(q, err)
				return
			}
			if n > 0 {
				f.http(p, q, n)
				return
			}
		case sniff.Raw:
			f.raw(p)
			return
		}
		err := p.more(wait)
		switch {
		case err == nil:
		case sniff.Look(p.data()) == sniff.More && (errors.Is(err, os.ErrDeadlineExceeded) || err == io.EOF):
			f.raw(p) // the server may speak first
			return
		default:
			if !errors.Is(err, errReset) {
				f.g.records.addText("tcp", policy.DenyProtocol, f.to, "", "its first bytes did not end in time, or not at all")
			}
			f.abort()
			return
		}
	}
}

// abort cuts both ends off.
func (f *flow) abort() {
	f.reset.Store(true)
	f.guest.Abort()
}

// raw goes on with a connection that is neither TLS nor HTTP.
func (f *flow) raw(p *peeker) {
	if a := f.connect(wire.Ask{Seen: string(policy.SeenRaw)}); !a.Allow {
		f.guest.Abort()
		return
	}
	f.relay(p.data())
}

// tls goes on with a connection that began with h, n bytes long.
func (f *flow) tls(p *peeker, h sniff.ClientHello, n int) {
	a := f.connect(wire.Ask{Seen: string(policy.SeenTLS), Claim: h.Name, Hidden: h.Hidden})
	switch {
	case a.Allow:
		if f.follow = h.Follow(); !f.follows(p.data()[n:]) {
			f.abort()
			return
		}
		f.relay(p.data())
	case a.Fault != "":
		f.guest.Abort()
	default:
		// Alert, TLS 1.2, two bytes: fatal, access_denied. Clients say so.
		f.guest.Write([]byte{21, 3, 3, 0, 2, 2, 49})
		f.guest.finish()
	}
}

// follows says whether what the guest sends next on a connection of TLS may go
// on, and records it if not.
func (f *flow) follows(b []byte) bool {
	if f.follow == nil || f.follow.Next(b) {
		return true
	}
	f.g.records.addText("tls", policy.DenyProtocol, f.to, "", "a second client hello that is not as the first")
	return false
}

func addrPort(a tcpip.Address, port uint16) netip.AddrPort {
	addr, _ := netip.AddrFromSlice(a.AsSlice())
	return netip.AddrPortFrom(addr, port)
}

var _ stack.TransportEndpoint = (*tcp.Endpoint)(nil) // establish relies on both
