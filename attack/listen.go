package attack

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"time"
)

// A lure is a set of servers on this host that nobody has a reason to call.
// They listen on loopback and on unix sockets only.
type lure struct {
	closers []func() error
	done    sync.WaitGroup

	mu    sync.Mutex
	calls map[string]int
}

// setLure opens the servers and notes their addresses in t. Each is called once
// from here: a server that cannot be reached proves nothing by its silence.
func setLure(word string, t *target) (_ *lure, err error) {
	l := &lure{calls: map[string]int{}}
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	if t.TCP4, err = l.tcp("tcp4", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	if t.TCP6, err = l.tcp("tcp6", "[::1]:0"); err != nil {
		t.TCP6, err = 0, nil // a host without IPv6
	}
	if t.UDP4, err = l.udp(); err != nil {
		return nil, err
	}
	t.Abstract = word
	if err := l.unix("@" + t.Abstract); err != nil {
		return nil, err
	}
	if err := l.unix(t.UnixPath); err != nil {
		return nil, err
	}
	if err := os.Chmod(t.UnixPath, 0o666); err != nil {
		return nil, err
	}
	return l, l.check(t)
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

func (l *lure) serve(ln net.Listener, name string) {
	l.closers = append(l.closers, ln.Close)
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
			c.Close()
		}
	}()
}

func (l *lure) tcp(network, addr string) (port int, err error) {
	ln, err := net.Listen(network, addr)
	if err != nil {
		return 0, err
	}
	l.serve(ln, "the TCP server on "+ln.Addr().String())
	return ln.Addr().(*net.TCPAddr).Port, nil
}

func (l *lure) unix(path string) error {
	ln, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	l.serve(ln, "the unix socket "+path)
	return nil
}

func (l *lure) udp() (port int, err error) {
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return 0, err
	}
	l.closers = append(l.closers, c.Close)
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
func (l *lure) check(t *target) error {
	calls := [][2]string{
		{"tcp4", "127.0.0.1:" + strconv.Itoa(t.TCP4)}, {"udp4", "127.0.0.1:" + strconv.Itoa(t.UDP4)},
		{"unix", "@" + t.Abstract}, {"unix", t.UnixPath},
	}
	if t.TCP6 != 0 {
		calls = append(calls, [2]string{"tcp6", "[::1]:" + strconv.Itoa(t.TCP6)})
	}
	for _, c := range calls {
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
		if n == len(calls) {
			l.take()
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("%d of %d canary servers do not notice a call", len(calls)-n, len(calls))
		}
	}
}

func (l *lure) close() {
	for _, c := range l.closers {
		c()
	}
	l.done.Wait()
}
