package mem

import (
	"context"
	"fmt"
	"net"
	"os"
	"syscall"

	"github.com/bermhq/berm/internal/backend"
)

// Gateway is the first frame on the wire of an instance: a gateway starts for
// it. Whoever calls plays that gateway, on the end that is returned; the broker
// has the other one. The socket is cut when the instance ends, or the process
// that this Backend pretends to be in.
func (b *Backend) Gateway(id string) (*net.UnixConn, error) {
	if err := b.lost(); err != nil {
		return nil, err
	}
	b.mu.Lock()
	i := b.live[id]
	b.mu.Unlock()
	switch {
	case i == nil:
		return nil, backend.ErrGone
	case !i.link:
		return nil, fmt.Errorf("mem: %s has no link", id)
	}
	ours, theirs, err := pair()
	if err != nil {
		return nil, err
	}
	context.AfterFunc(i.life, func() { ours.Close() })
	context.AfterFunc(b.dead, func() { ours.Close() })
	b.opt.Gateway(id, theirs)
	return ours, nil
}

// pair is a SOCK_SEQPACKET pair, which keeps the bounds of messages.
func pair() (a, b *net.UnixConn, err error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_SEQPACKET|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "gateway")
		c, cerr := net.FileConn(f) // of a copy
		f.Close()
		if cerr != nil {
			err = cerr
			continue
		}
		ends[i] = c.(*net.UnixConn)
	}
	if err != nil {
		for _, c := range ends {
			if c != nil {
				c.Close()
			}
		}
		return nil, nil, err
	}
	return ends[0], ends[1], nil
}
