package server

import (
	"container/list"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
)

// Bound is l with at most n connections open, and of one address at most
// strangers that have shown no token yet. Beyond either the oldest stranger has
// to go, or, if there is none, whoever has been idle for longest: nobody without
// a token keeps those with one out. Where all are busy, new ones wait to be
// accepted, in a queue that the kernel bounds.
func Bound(l net.Listener, n, strangers int) net.Listener {
	b := &bounded{Listener: l, n: n, strangers: strangers, all: list.New(), from: map[string]int{}}
	b.changed.L = &b.mu
	return b
}

type bounded struct {
	net.Listener
	n, strangers int

	mu      sync.Mutex
	changed sync.Cond
	closed  bool
	all     *list.List     // of *guest, the oldest first
	from    map[string]int // strangers by address
}

// A guest is one connection.
type guest struct {
	net.Conn
	b    *bounded
	addr string        // "" for one that has none
	in   *list.Element // of b.all; nil: gone
	// With b.mu:
	known bool // it has shown a good token
	idle  bool
}

type connKey struct{}

// trust notes that the connection of a request has shown a good token.
func trust(r *http.Request) {
	if g, ok := r.Context().Value(connKey{}).(*guest); ok {
		g.b.mu.Lock()
		defer g.b.mu.Unlock()
		if !g.known && g.in != nil {
			g.b.forget(g)
		}
		g.known = true
	}
}

// trusted says whether it has.
func trusted(r *http.Request) bool {
	g, ok := r.Context().Value(connKey{}).(*guest)
	if !ok {
		return false
	}
	g.b.mu.Lock()
	defer g.b.mu.Unlock()
	return g.known
}

func (b *bounded) Accept() (net.Conn, error) {
	c, err := b.Listener.Accept()
	if err != nil {
		return nil, err
	}
	g := &guest{Conn: c, b: b}
	if a, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		g.addr = a.AddrPort().Addr().Unmap().String()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if g.addr != "" && b.from[g.addr] >= b.strangers {
		b.drop(func(o *guest) bool { return !o.known && o.addr == g.addr })
	}
	for !b.closed && b.all.Len() >= b.n {
		if !b.drop(func(o *guest) bool { return !o.known }) && !b.drop(func(o *guest) bool { return o.idle }) {
			b.changed.Wait()
		}
	}
	if b.closed {
		c.Close()
		return nil, net.ErrClosed
	}
	g.in = b.all.PushBack(g)
	b.from[g.addr]++
	return g, nil
}

// drop closes the oldest connection that f picks. With mu.
func (b *bounded) drop(f func(*guest) bool) bool {
	for e := b.all.Front(); e != nil; e = e.Next() {
		if g := e.Value.(*guest); f(g) {
			b.remove(g)
			nc := g.Conn
			if t, ok := nc.(*tls.Conn); ok { // without a goodbye, which can take long
				nc = t.NetConn()
			}
			nc.Close()
			return true
		}
	}
	return false
}

// remove takes a connection off the books. With mu.
func (b *bounded) remove(g *guest) {
	if g.in == nil {
		return
	}
	b.all.Remove(g.in)
	g.in = nil
	if !g.known {
		b.forget(g)
	}
	b.changed.Broadcast()
}

// forget counts a stranger less. With mu.
func (b *bounded) forget(g *guest) {
	if b.from[g.addr]--; b.from[g.addr] == 0 {
		delete(b.from, g.addr)
	}
}

func (b *bounded) Close() error {
	b.mu.Lock()
	b.closed = true
	b.changed.Broadcast()
	b.mu.Unlock()
	return b.Listener.Close()
}

// at is told what the server does with the connection.
func (g *guest) at(state http.ConnState) {
	g.b.mu.Lock()
	defer g.b.mu.Unlock()
	if g.idle = state == http.StateIdle; g.idle {
		g.b.changed.Broadcast()
	}
}

func (g *guest) Close() error {
	err := g.Conn.Close()
	g.b.mu.Lock()
	defer g.b.mu.Unlock()
	g.b.remove(g)
	return err
}

// CloseWrite is for those who end one direction of an upgraded connection.
func (g *guest) CloseWrite() error {
	if h, ok := g.Conn.(interface{ CloseWrite() error }); ok {
		return h.CloseWrite()
	}
	return net.ErrClosed
}
