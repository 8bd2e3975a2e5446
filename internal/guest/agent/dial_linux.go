package agent

import (
	"context"
	"errors"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/bermhq/berm/internal/guest"
)

// dialTime bounds one attempt to connect, lingerTime what a connection that the
// host gave up may still take to be handed what was written to it.
const (
	dialTime   = 5 * time.Second
	lingerTime = time.Second
)

// dial connects to a port of this machine and carries both directions. Without
// the net package, which would add a quarter to the agent.
func (c *call) dial(port int) error {
	if port <= 0 || port > 65535 {
		return syscall.EINVAL
	}
	f, err := dialLoopback(c.ctx, port)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := c.begun(); err != nil {
		return err
	}
	defer context.AfterFunc(c.ctx, func() {
		f.SetReadDeadline(time.Unix(1, 0))
		linger := time.Now()
		if c.s.ctx.Err() == nil {
			linger = linger.Add(lingerTime)
		}
		f.SetWriteDeadline(linger)
	})()
	sent := make(chan bool)
	go func() {
		defer close(sent)
		r := &dataReader{c: c}
		if _, err := r.WriteTo(f); err == nil {
			control(f, func(fd int) error { return syscall.Shutdown(fd, syscall.SHUT_WR) })
		} else if c.ctx.Err() == nil {
			c.refuse()
		}
	}()
	err = c.sendAll(f, 0)
	if err == nil {
		err = c.send(guest.KindEnd, make([]byte, guest.HeaderSize))
	}
	if err != nil && c.ctx.Err() == nil {
		c.stop() // it is broken: nothing can be sent either
		f.SetWriteDeadline(time.Unix(1, 0))
	}
	<-sent
	return err
}

func dialLoopback(ctx context.Context, port int) (*os.File, error) {
	f, err := connect(ctx, syscall.AF_INET, &syscall.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}})
	if err == nil || ctx.Err() != nil {
		return f, err
	}
	g, err6 := connect(ctx, syscall.AF_INET6, &syscall.SockaddrInet6{Port: port, Addr: [16]byte{15: 1}})
	if err6 == nil {
		return g, nil
	}
	return nil, err
}

func connect(ctx context.Context, family int, to syscall.Sockaddr) (*os.File, error) {
	fd, err := syscall.Socket(family, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	err = syscall.Connect(fd, to)
	f := os.NewFile(uintptr(fd), "connection")
	if err == syscall.EINPROGRESS || err == syscall.EINTR {
		err = connected(ctx, f)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1)
	return f, nil
}

// connected waits for a connection to be made, or refused.
func connected(ctx context.Context, f *os.File) error {
	f.SetWriteDeadline(time.Now().Add(dialTime))
	defer context.AfterFunc(ctx, func() { f.SetWriteDeadline(time.Unix(1, 0)) })()
	rc, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var answer error
	err = rc.Write(func(fd uintptr) bool {
		no, err := syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_ERROR)
		if err != nil || no != 0 {
			if answer = err; err == nil {
				answer = syscall.Errno(no)
			}
			return true
		}
		_, err = syscall.Getpeername(int(fd))
		return err == nil
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return syscall.ETIMEDOUT
	}
	if err == nil {
		err = answer
	}
	if err == nil {
		err = f.SetWriteDeadline(time.Time{})
	}
	return err
}

func control(f *os.File, do func(fd int) error) error {
	rc, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := rc.Control(func(fd uintptr) { inner = do(int(fd)) }); err != nil {
		return err
	}
	return inner
}

// maxPorts is how many ports are worth listing.
const maxPorts = 4096

// listening returns the TCP ports that a connection to loopback can reach.
func listening() ([]int, error) {
	ports := []int{}
	for _, name := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		b, err := os.ReadFile(name)
		if err != nil {
			if errors.Is(err, os.ErrNotExist) {
				continue
			}
			return nil, err
		}
		ports = append(ports, parsePorts(string(b))...)
	}
	slices.Sort(ports)
	ports = slices.Compact(ports)
	return ports[:min(len(ports), maxPorts)], nil
}
