package world

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// Ports on which somebody answers outside, at every address.
var (
	tcpPorts = []int{21, 22, 25, 53, 80, 143, 443, 853, 1080, 3128, 5432, 6379, 8080, 8081, 8443, 9050}
	udpPorts = []int{53, 69, 123, 161, 443, 500, 1900, 5353, 8080, 8443}
)

// serve opens every socket that is outside. It is called on the thread that is
// there.
func (w *World) serve() error {
	if err := w.capture(); err != nil {
		return err
	}
	var err error
	if w.certificate, err = selfSigned(); err != nil {
		return err
	}
	for _, network := range []string{"4", "6"} {
		for _, port := range tcpPorts {
			l, err := net.Listen("tcp"+network, fmt.Sprintf(":%d", port))
			if err != nil {
				return err
			}
			w.accept(l, w.talk)
		}
		for _, port := range udpPorts {
			if err := w.datagrams("udp"+network, port); err != nil {
				return err
			}
		}
	}
	return nil
}

// accept serves a listener until the world ends.
func (w *World) accept(l net.Listener, serve func(net.Conn)) {
	w.closers = append(w.closers, l.Close)
	w.done.Add(1)
	go func() {
		defer w.done.Done()
		for {
			c, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				time.Sleep(10 * time.Millisecond)
				continue
			}
			if !w.log.enter(c) {
				c.Close()
				continue
			}
			w.done.Add(1)
			go func() {
				defer w.done.Done()
				defer w.log.leave(c)
				defer c.Close()
				serve(c)
			}()
		}
	}()
}

// datagrams answers on one UDP port from the address that was asked: with DNS on
// its port, with an echo elsewhere.
func (w *World) datagrams(network string, port int) error {
	pc, err := net.ListenPacket(network, fmt.Sprintf(":%d", port))
	if err != nil {
		return err
	}
	c := pc.(*net.UDPConn)
	w.closers = append(w.closers, c.Close)
	rc, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var oerr error
	err = rc.Control(func(fd uintptr) {
		if network == "udp4" {
			oerr = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_PKTINFO, 1)
		} else {
			const freeBind = 78 // IPV6_FREEBIND: answers come from addresses that no card has
			oerr = errors.Join(unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1),
				unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, freeBind, 1))
		}
	})
	if err := errors.Join(err, oerr); err != nil {
		return err
	}
	w.done.Add(1)
	go func() {
		defer w.done.Done()
		b, oob := make([]byte, 64<<10), make([]byte, 256)
		for {
			n, on, _, from, err := c.ReadMsgUDPAddrPort(b, oob)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				continue
			}
			at, reply := asked(oob[:on])
			out := b[:min(n, 64)]
			if port == 53 {
				out = w.answer(b[:n], resolver(at))
			}
			if out != nil {
				c.WriteMsgUDPAddrPort(out, reply, from)
			}
		}
	}()
	return nil
}

// asked is the address that a datagram was sent to, and what sends the answer
// from there.
func asked(oob []byte) (at netip.Addr, reply []byte) {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return at, nil
	}
	for _, m := range msgs {
		switch {
		case m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_PKTINFO && len(m.Data) >= 12:
			at = netip.AddrFrom4([4]byte(m.Data[8:12]))
			return at, unix.PktInfo4(&unix.Inet4Pktinfo{Spec_dst: at.As4()})
		case m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_PKTINFO && len(m.Data) >= 16:
			at = netip.AddrFrom16([16]byte(m.Data[:16]))
			return at, unix.PktInfo6(&unix.Inet6Pktinfo{Addr: at.As16()})
		}
	}
	return at, nil
}

// host opens the host's own services, inside: whoever calls them came from a
// sandbox.
func (w *World) host() error {
	for _, port := range []int{22, 7070, 8080} {
		for _, network := range []string{"4", "6"} {
			l, err := net.Listen("tcp"+network, fmt.Sprintf(":%d", port))
			if err != nil {
				return err
			}
			to := map[string]string{"4": "127.0.0.1", "6": "::1"}[network]
			w.lures = append(w.lures, net.JoinHostPort(to, fmt.Sprint(port)))
			w.accept(l, w.lured)
		}
	}
	for _, network := range []string{"udp4", "udp6"} {
		c, err := net.ListenPacket(network, ":8080")
		if err != nil {
			return err
		}
		w.closers = append(w.closers, c.Close)
		w.done.Add(1)
		go func() {
			defer w.done.Done()
			b := make([]byte, 2048)
			for {
				n, from, err := c.ReadFrom(b)
				if errors.Is(err, net.ErrClosed) {
					return
				}
				if err == nil {
					w.log.hit("the host's own service on UDP port 8080")
					c.WriteTo(b[:min(n, 64)], from)
				}
			}
		}()
	}
	return nil
}

// lured is called by nobody but sandboxes, and by settle.
func (w *World) lured(c net.Conn) {
	c.SetDeadline(time.Now().Add(patience))
	b := make([]byte, 4096)
	n, _ := c.Read(b)
	if string(b[:n]) == mark {
		w.log.marked()
		return
	}
	w.log.hit(fmt.Sprintf("the host's own service on %s", c.LocalAddr()))
	c.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhost\n"))
}
