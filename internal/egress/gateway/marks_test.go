package gateway

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/bermhq/berm/internal/egress/wire"
)

// mortal is a link whose end here can die without a word.
type mortal struct {
	FrameConn
	dead atomic.Bool
}

func (m *mortal) WriteFrame(parts [][]byte) error {
	if m.dead.Load() {
		return nil
	}
	return m.FrameConn.WriteFrame(parts)
}

// gatewayOn starts a gateway at an end of a link, which stays open, and returns
// what kills it.
func gatewayOn(t *testing.T, end *os.File, mem []byte) (*Gateway, *fake, func()) {
	t.Helper()
	f, err := dupOf(end)
	if err != nil {
		t.Fatal(err)
	}
	link, err := Packets(f)
	if err != nil {
		t.Fatal(err)
	}
	brokerEnd, askEnd := pair(t)
	fake := newFake(t, brokerEnd, nil)
	b, err := newBroker(askEnd)
	if err != nil {
		t.Fatal(err)
	}
	m := &mortal{FrameConn: link}
	g, err := newGateway(m, b)
	if err != nil {
		t.Fatal(err)
	}
	g.marks = newMarks(mem)
	if err := b.begin(); err != nil {
		t.Fatal(err)
	}
	go b.serve()
	ended := make(chan struct{})
	go func() {
		g.run()
		close(ended)
	}()
	t.Cleanup(g.close)
	return g, fake, func() {
		m.dead.Store(true)
		f.SetReadDeadline(time.Unix(1, 0))
		<-ended
	}
}

func dupOf(f *os.File) (d *os.File, err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	raw.Control(func(fd uintptr) {
		var n int
		if n, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0); err == nil {
			d = os.NewFile(uintptr(n), "dup")
		}
	})
	return d, err
}

// TestInherit: a guest that only listens learns that its gateway died from the
// next one, on all that was open, and on nothing else.
func TestInherit(t *testing.T) {
	guestEnd, linkEnd := pair(t)
	defer linkEnd.Close()
	keepOpen(t, linkEnd)
	mem := make([]byte, maxMarks*markSize)
	g1, f1, kill := gatewayOn(t, linkEnd, bytes.Clone(mem)) // copied: it lives on, in this test
	w := &world{fake: f1, g: g1}
	w.guest = newGuest(t, guestEnd)
	end := make(chan struct{})
	defer close(end)
	greet := func(c *net.TCPConn) {
		c.Write([]byte("x"))
		<-end // silent, whatever the guest does
	}
	open := map[string]*gonet.TCPConn{}
	for _, a := range []netip.Addr{server4, server6} {
		w.listen(at(a, 9000), greet)
		c := w.mustDial(at(a, 9000))
		if _, err := c.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		open["a relay to "+a.String()] = c
		open["before its first bytes to "+a.String()] = w.mustDial(at(a, 80))
	}
	open["names over TCP"] = w.mustDial(at(wire.Gateway4, 53))
	half := w.mustDial(at(server4, 9000))
	if _, err := half.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	half.CloseWrite()
	open["closed on one side"] = half
	kill()
	copy(mem, g1.marks.mem)

	g2, f2, _ := gatewayOn(t, linkEnd, mem)
	w.fake, w.g = f2, g2
	for what, c := range open {
		if _, err := c.Read(make([]byte, 1)); !reset(err) {
			t.Errorf("%s: the guest reads %v, want a reset", what, err)
		}
	}
	w.listen(at(server4, 9000), echo)
	c := w.mustDial(at(server4, 9000))
	if len(g2.marks.left()) > 0 {
		t.Error("what was asked about is still written down")
	}
	mustWrite(t, c, "y")
	if _, err := c.Read(make([]byte, 1)); err != nil {
		t.Errorf("the next connection: %v", err)
	}
	// One that is asked about and lives does not notice.
	_, port, _ := net.SplitHostPort(c.LocalAddr().String())
	k := mark{to: at(server4, 9000)}
	for _, b := range []byte(port) {
		k.port = k.port*10 + uint16(b-'0')
	}
	if !g2.isOpen(k) {
		t.Errorf("%+v is not known to be open", k)
	}
	for range 100 {
		g2.link.WriteFrame([][]byte{challenge(k, rand.Uint32())})
	}
	mustWrite(t, c, "z")
	if _, err := c.Read(make([]byte, 1)); err != nil {
		t.Errorf("a connection that was asked about: %v", err)
	}
	c.Close()
	for end := time.Now().Add(patienceInTests); ; time.Sleep(10 * time.Millisecond) {
		g2.marks.mu.Lock()
		clean := bytes.Equal(mem, make([]byte, len(mem)))
		g2.marks.mu.Unlock()
		if clean {
			break
		}
		if time.Now().After(end) {
			t.Fatal("what is over stays written down")
		}
	}
}

// TestMarksHostile: whatever was left, only connections that the guest can have
// are asked about, and no more than there is room for.
func TestMarksHostile(t *testing.T) {
	for range 200 {
		mem := make([]byte, maxMarks*markSize+rand.IntN(100))
		for i := range mem {
			mem[i] = byte(rand.Uint32())
			if i%markSize == 0 {
				mem[i] = 1
			}
		}
		for _, a := range []string{"::", "0.0.0.0", "255.255.255.255", "224.0.0.1", "ff02::1", wire.Guest4.String(), wire.Guest6.String()} {
			b, addr := mem[rand.IntN(maxMarks)*markSize:], netip.MustParseAddr(a).As16()
			copy(b[8:], addr[:])
		}
		m := newMarks(mem)
		left := m.left()
		if len(left) > maxMarks {
			t.Fatalf("%d connections", len(left))
		}
		for _, k := range left {
			if k.port == 0 || k.to.Port() == 0 || !reachable(k.to.Addr()) {
				t.Fatalf("%+v is asked about", k)
			}
			frame := challenge(k, rand.Uint32())
			guest, src := wire.Guest6, frame[22:38]
			ip, dst := header.IPv6(frame[14:]).TransportProtocol(), frame[38:54]
			if k.to.Addr().Is4() {
				guest, src, dst = wire.Guest4, frame[26:30], frame[30:34]
				ip = header.IPv4(frame[14:]).TransportProtocol()
			}
			if ip != header.TCPProtocolNumber || !bytes.Equal(dst, guest.AsSlice()) || !bytes.Equal(src, k.to.Addr().AsSlice()) {
				t.Fatalf("%+v: % x", k, frame)
			}
		}
		m.forget()
		if n := m.take(mark{1, at(server4, 2)}); n != 0 || binary.BigEndian.Uint16(mem[2:]) != 1 {
			t.Fatalf("slot %d", n)
		}
	}
	full := newMarks(make([]byte, 2*markSize))
	full.take(mark{})
	if a, b := full.take(mark{1, at(server4, 1)}), full.take(mark{2, at(server4, 1)}); a != 1 || b != -1 {
		t.Errorf("slots %d and %d of two, one of which is taken", a, b)
	}
	if n := (&marks{}).take(mark{1, at(server4, 1)}); n != -1 {
		t.Errorf("slot %d of none", n)
	}
	if m := openMarks(1 << 20); len(m.state) != 0 {
		t.Error("marks without a descriptor")
	}
}

// TestProcessMarks: what a process wrote down outlives it.
func TestProcessMarks(t *testing.T) {
	if testing.Short() {
		t.Skip("a process of its own")
	}
	w, cmd, _ := process(t)
	to := at(server6, 9000)
	w.listen(to, echo)
	w.mustDial(to)
	cmd.Process.Kill()
	cmd.Wait()
	mem := make([]byte, maxMarks*markSize)
	if n, err := w.marks.ReadAt(mem, 0); n != len(mem) || err != nil {
		t.Fatal(n, err)
	}
	if left := newMarks(mem).left(); len(left) != 1 || left[0].to != to {
		t.Errorf("%+v is left", left)
	}
}
