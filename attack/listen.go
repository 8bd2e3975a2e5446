package attack

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"
)

// A lure is a set of servers on this host that nobody has a reason to call.
// They listen on loopback and on unix sockets only.
type lure struct {
	closers []func() error
	done    sync.WaitGroup
	at      [][2]string // network and address of each

	mu    sync.Mutex
	calls map[string]int
}

// setLure opens the servers and notes their addresses in what was planted. Each
// is called once from here: a server that cannot be reached proves nothing by its
// silence.
func setLure(p *planting) (_ *lure, err error) {
	l, t := &lure{calls: map[string]int{}}, &p.target
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	if t.TCP4, err = l.tcp("tcp4", "127.0.0.1:0", nil); err != nil {
		return nil, err
	}
	if t.TCP6, err = l.tcp("tcp6", "[::1]:0", nil); err != nil {
		t.TCP6, err = 0, nil // a host without IPv6
	}
	if t.UDP4, err = l.udp(); err != nil {
		return nil, err
	}
	t.Abstract = p.word
	if err := l.unix("@"+t.Abstract, nil); err != nil {
		return nil, err
	}
	if err := l.unix(t.UnixPath, nil); err != nil {
		return nil, err
	}
	if err := os.Chmod(t.UnixPath, 0o666); err != nil {
		return nil, err
	}
	if err := l.talkers(p); err != nil {
		return nil, err
	}
	return l, l.check()
}

func (l *lure) called(by string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls[by]++
}

// take returns who was called since the last take.
func (l *lure) take() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.calls
	l.calls = map[string]int{}
	return c
}

// serve counts who calls, and lets talk answer if it is not nil.
func (l *lure) serve(ln net.Listener, name string, talk func(net.Conn)) {
	l.closers = append(l.closers, ln.Close)
	l.at = append(l.at, [2]string{ln.Addr().Network(), ln.Addr().String()})
	l.done.Add(1)
	go func() {
		defer l.done.Done()
		for {
			c, err := ln.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				time.Sleep(10 * time.Millisecond)
				continue
			}
			l.called(name)
			if talk == nil {
				c.Close()
				continue
			}
			go func() {
				defer c.Close()
				c.SetDeadline(time.Now().Add(talkTime))
				talk(c)
			}()
		}
	}()
}

func (l *lure) tcp(network, addr string, talk func(net.Conn)) (port int, err error) {
	ln, err := net.Listen(network, addr)
	if err != nil {
		return 0, err
	}
	l.serve(ln, "the TCP server on "+ln.Addr().String(), talk)
	return ln.Addr().(*net.TCPAddr).Port, nil
}

func (l *lure) unix(path string, talk func(net.Conn)) error {
	ln, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	l.serve(ln, "the unix socket "+path, talk)
	return nil
}

func (l *lure) udp() (port int, err error) {
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return 0, err
	}
	l.closers = append(l.closers, c.Close)
	l.at = append(l.at, [2]string{"udp4", c.LocalAddr().String()})
	l.done.Add(1)
	go func() {
		defer l.done.Done()
		var b [64]byte
		for {
			if _, _, err := c.ReadFrom(b[:]); err != nil {
				if errors.Is(err, net.ErrClosed) {
					return
				}
				continue
			}
			l.called("the UDP server on " + c.LocalAddr().String())
		}
	}()
	return c.LocalAddr().(*net.UDPAddr).Port, nil
}

// check calls every server once and waits until all have noticed.
func (l *lure) check() error {
	for _, c := range l.at {
		conn, err := net.Dial(c[0], c[1])
		if err != nil {
			return fmt.Errorf("canary server %s: %w", c[1], err)
		}
		conn.Write([]byte("self check"))
		conn.Close()
	}
	for end := time.Now().Add(2 * time.Second); ; time.Sleep(time.Millisecond) {
		l.mu.Lock()
		n := len(l.calls)
		l.mu.Unlock()
		if n == len(l.at) {
			l.take()
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("%d of %d canary servers do not notice a call", len(l.at)-n, len(l.at))
		}
	}
}

func (l *lure) close() {
	for _, c := range l.closers {
		c()
	}
	l.done.Wait()
}
