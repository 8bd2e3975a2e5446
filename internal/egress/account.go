package egress

import (
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bermhq/berm/internal/policy"
)

// kept is the broker's copy of a connection: it never reads or writes it, but it
// asks the kernel what went through, and cuts. It is a bare descriptor, since the
// runtime would be woken by everything that arrives on one of its own.
type kept struct {
	fd  int
	tcp bool
}

// keep makes c a descriptor of nobody's poller. It stays non-blocking. c is
// closed.
func keep(c net.Conn) (*kept, error) {
	defer c.Close()
	sc, ok := c.(syscall.Conn)
	if !ok {
		return nil, syscall.EINVAL
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil, err
	}
	k := &kept{fd: -1}
	_, k.tcp = c.(*net.TCPConn)
	cerr := raw.Control(func(fd uintptr) { k.fd, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 3) })
	if err == nil {
		err = cerr
	}
	if err != nil {
		return nil, err
	}
	return k, nil
}

func (k *kept) dup() (int, error) { return unix.FcntlInt(uintptr(k.fd), unix.F_DUPFD_CLOEXEC, 3) }
func (k *kept) close()            { unix.Close(k.fd) }

// shutdown ends the connection for everybody who holds a descriptor of it.
func (k *kept) shutdown() {
	unix.Shutdown(k.fd, unix.SHUT_RDWR)
	if !k.tcp {
		k.disconnect() // or datagrams would still come in
	}
}

// counted asks the kernel what a TCP connection has carried: what was written to
// it, and what came in. ok is false where the kernel does not say, and for UDP:
// nobody counts that but the gateway, whose word is not taken.
func (k *kept) counted() (out, in int64, ok bool) {
	if !k.tcp {
		return 0, 0, false
	}
	info, err := unix.GetsockoptTCPInfo(k.fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	// The handshake counts as one byte that was acknowledged, so that 0 is the
	// answer of a kernel without this counter.
	if err != nil || info.Bytes_acked == 0 {
		return 0, 0, false
	}
	out, in = int64(info.Bytes_acked)-1, int64(info.Bytes_received)
	if queued, err := unix.IoctlGetInt(k.fd, unix.SIOCOUTQ); err == nil {
		out += int64(queued) // it was let out of the sandbox already
	}
	return out, in, true
}

// sample adds what a flow has carried since the last time to its sandbox and its
// rule. mu is held.
func (l *link) sample(f *flow) {
	if f.conn == nil {
		return
	}
	out, in, ok := f.conn.counted()
	if !ok {
		return
	}
	// A FIN is a byte to the counters: they may go up by it, never down.
	dout, din := max(0, out-f.out), max(0, in-f.in)
	f.out, f.in = f.out+dout, f.in+din
	l.out, l.in = l.out+dout, l.in+din
	if f.holds {
		l.spentOn(f.rule.Text).bytes += dout + din
	}
}

// watch looks after open flows whose rule ends by itself: by bytes or by time.
// mu is held.
func (l *link) watch() {
	if l.watching || l.closed {
		return
	}
	for f := range l.flows {
		if f.state == flowOpen && ends(f.rule) {
			l.watching = true
			l.wg.Go(l.watcher)
			return
		}
	}
}

func ends(r policy.EgressRule) bool { return r.Bytes > 0 || !r.Expires.IsZero() }

func (l *link) watcher() {
	tick := time.NewTimer(countEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-l.done:
			return
		}
		every := watchEvery
		l.mu.Lock()
		l.watching = false
		for f := range l.flows {
			if f.state == flowOpen && f.rule.Bytes > 0 {
				l.sample(f)
				every = countEvery
			}
		}
		tick.Reset(every)
		now := time.Now()
		over := l.again(func(f *flow) bool {
			r := &f.rule
			return r.Bytes > 0 && l.spentOn(r.Text).bytes >= r.Bytes || !r.Expires.IsZero() && !now.Before(r.Expires)
		})
		for f := range l.flows {
			l.watching = l.watching || f.state == flowOpen && ends(f.rule)
		}
		l.watching = l.watching && !l.closed
		on := l.watching
		l.mu.Unlock()
		all(over)
		if !on {
			return
		}
	}
}
