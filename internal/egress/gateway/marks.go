package gateway

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"

	"github.com/bermhq/berm/internal/egress/wire"
)

// A guest that only listens would hear nothing of its gateway's death, ever. So
// a gateway writes down which connections the guest has, in memory that the
// keeper holds for the next one, and that one asks the guest about each: it
// sends what TCP must answer, and the answer finds nobody here, which is a reset.

// Bounds of what is written down.
const (
	marksFD   = 6
	markSize  = 32
	maxMarks  = 512
	markSeals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW // what is mapped stays there
	// askAgain is longer than a guest's TCP may refuse to answer for having
	// answered something like it a moment ago: half a second.
	askAgain = 700 * time.Millisecond
)

// A mark is a connection of the guest's: its port, and what it connected to.
type mark struct {
	port uint16
	to   netip.AddrPort
}

type slotState byte

const (
	slotFree slotState = iota
	slotLeft           // by the gateway before
	slotOpen
	slotOver // nobody here uses it, and the stack may still have something to send
)

type marks struct {
	mem []byte // written, and read only at the start

	mu    sync.Mutex
	state []slotState
	list  []mark
}

// openMarks maps what the keeper gave. Without it, as one from before has it,
// nothing is written down.
func openMarks(fd int) *marks {
	var st unix.Stat_t
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil || seals&markSeals != markSeals || unix.Fstat(fd, &st) != nil {
		return &marks{} // the descriptor is something else, or not there
	}
	defer unix.Close(fd)
	mem, err := unix.Mmap(fd, 0, int(min(st.Size, maxMarks*markSize)), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return &marks{}
	}
	return newMarks(mem)
}

// newMarks takes over what is in mem, which is whatever the one before, or who
// had taken it over, liked to write.
func newMarks(mem []byte) *marks {
	n := min(len(mem)/markSize, maxMarks)
	m := &marks{mem: mem, state: make([]slotState, n), list: make([]mark, n)}
	for i := range n {
		b := mem[i*markSize:][:markSize]
		addr := netip.AddrFrom16([16]byte(b[8:])).Unmap()
		k := mark{binary.BigEndian.Uint16(b[2:]), netip.AddrPortFrom(addr, binary.BigEndian.Uint16(b[4:]))}
		if b[0] == 1 && k.port != 0 && k.to.Port() != 0 && reachable(addr) {
			m.state[i], m.list[i] = slotLeft, k
			continue
		}
		clear(b)
	}
	return m
}

// take writes a connection down. It returns the slot, or -1 if there is none.
func (m *marks) take(k mark) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, s := range m.state {
		if s != slotFree {
			continue
		}
		m.state[i], m.list[i] = slotOpen, k
		b, addr := m.mem[i*markSize:][:markSize], k.to.Addr().As16()
		binary.BigEndian.PutUint16(b[2:], k.port)
		binary.BigEndian.PutUint16(b[4:], k.to.Port())
		copy(b[8:], addr[:])
		b[0] = 1
		return i
	}
	return -1
}

// over says that nobody uses a slot's connection any more. It is free once the
// stack has forgotten it, too.
func (m *marks) over(slot int) {
	if slot < 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state[slot] = slotOver
}

// sweep frees the slots of connections that are no more.
func (m *marks) sweep(open func(mark) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, s := range m.state {
		if s == slotOver && !open(m.list[i]) {
			m.free(i)
		}
	}
}

// free is called with m.mu held.
func (m *marks) free(i int) {
	m.state[i] = slotFree
	clear(m.mem[i*markSize:][:markSize])
}

// left are the connections of the gateway before.
func (m *marks) left() (list []mark) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, s := range m.state {
		if s == slotLeft {
			list = append(list, m.list[i])
		}
	}
	return list
}

// forget frees what left returned.
func (m *marks) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, s := range m.state {
		if s == slotLeft {
			m.free(i)
		}
	}
}

// isOpen says whether the stack knows a connection.
func (g *Gateway) isOpen(k mark) bool {
	proto, guest := tcpip.NetworkProtocolNumber(ipv6.ProtocolNumber), wire.Guest6
	if k.to.Addr().Is4() {
		proto, guest = ipv4.ProtocolNumber, wire.Guest4
	}
	return g.stack.FindTransportEndpoint(proto, tcp.ProtocolNumber, stack.TransportEndpointID{
		LocalAddress: tcpip.AddrFromSlice(k.to.Addr().AsSlice()), LocalPort: k.to.Port(),
		RemoteAddress: tcpip.AddrFromSlice(guest.AsSlice()), RemotePort: k.port,
	}, nic) != nil
}

// inherit has the guest reset what it had open with the gateway before. It may
// wait for the guest to read.
func (g *Gateway) inherit() {
	list := g.marks.left()
	if len(list) == 0 {
		return
	}
	for range 2 {
		for _, k := range list {
			if g.isOpen(k) {
				continue // the port's next connection
			}
			// Of two numbers so far apart at least one is in no window.
			seq := rand.Uint32()
			for _, s := range []uint32{seq, seq + 1<<31} {
				if g.link.WriteFrame([][]byte{challenge(k, s)}) != nil {
					return
				}
			}
		}
		g.marks.forget()
		select {
		case <-time.After(askAgain):
		case <-g.stop:
			return
		}
	}
}

// challenge is the frame that a guest must answer with an acknowledgment if it
// has this connection and seq is not what comes next: an acknowledgment itself,
// which nobody takes for data or for the end of anything.
func challenge(k mark, seq uint32) []byte {
	const size = 20
	head, guest, kind := ipv6Header, wire.Guest6, uint16(etherIPv6)
	if k.to.Addr().Is4() {
		head, guest, kind = ipv4Header, wire.Guest4, etherIPv4
	}
	b := make([]byte, etherHeader+head+size)
	ether(b, kind)
	ip := b[etherHeader:]
	addrs := ip[8:ipv6Header]
	if head == ipv4Header {
		addrs = ip[12:ipv4Header]
		ip[0], ip[8], ip[9] = 0x45, 64, protoTCP
		binary.BigEndian.PutUint16(ip[2:], ipv4Header+size)
	} else {
		ip[0], ip[6], ip[7] = 0x60, protoTCP, 64
		binary.BigEndian.PutUint16(ip[4:], size)
	}
	copy(addrs, k.to.Addr().AsSlice())
	copy(addrs[len(addrs)/2:], guest.AsSlice())
	if head == ipv4Header {
		binary.BigEndian.PutUint16(ip[10:], ^checksum.Checksum(ip[:ipv4Header], 0))
	}
	seg := ip[head:]
	binary.BigEndian.PutUint16(seg, k.to.Port())
	binary.BigEndian.PutUint16(seg[2:], k.port)
	binary.BigEndian.PutUint32(seg[4:], seq)
	binary.BigEndian.PutUint32(seg[8:], seq)
	seg[12], seg[13] = size/4<<4, 0x10            // ACK
	binary.BigEndian.PutUint16(seg[14:], 1<<16-1) // window
	sum := checksum.Checksum(addrs, size)         // and the length,
	sum = checksum.Combine(sum, protoTCP)         // as the pseudo-header has them
	binary.BigEndian.PutUint16(seg[16:], ^checksum.Checksum(seg, sum))
	return b
}
