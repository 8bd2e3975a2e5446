package server

import (
	"net"
	"net/http"
	"sync"
	"time"
)

// Harden sets the bounds of srv on what a client costs before its request is
// understood, and keeps it to HTTP/1.1: some routes leave HTTP by an upgrade,
// which its successors do not have.
func Harden(srv *http.Server) *http.Server {
	srv.ReadHeaderTimeout = 10 * time.Second
	srv.IdleTimeout = 2 * time.Minute
	srv.MaxHeaderBytes = 32 << 10
	srv.Protocols = new(http.Protocols)
	srv.Protocols.SetHTTP1(true)
	return srv
}

// Bound is l with at most n connections open; those beyond wait to be accepted,
// in a queue that the kernel bounds.
func Bound(l net.Listener, n int) net.Listener {
	return &bounded{Listener: l, room: make(chan struct{}, n), done: make(chan struct{})}
}

type bounded struct {
	net.Listener
	room chan struct{}
	once sync.Once
	done chan struct{}
}

func (b *bounded) Accept() (net.Conn, error) {
	select {
	case b.room <- struct{}{}:
	case <-b.done:
		return nil, net.ErrClosed
	}
	c, err := b.Listener.Accept()
	if err != nil {
		<-b.room
		return nil, err
	}
	return &counted{Conn: c, leave: sync.OnceFunc(func() { <-b.room })}, nil
}

func (b *bounded) Close() error {
	b.once.Do(func() { close(b.done) })
	return b.Listener.Close()
}

type counted struct {
	net.Conn
	leave func()
}

func (c *counted) Close() error {
	defer c.leave()
	return c.Conn.Close()
}

// CloseWrite is for those who end one direction of an upgraded connection.
func (c *counted) CloseWrite() error {
	if h, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return h.CloseWrite()
	}
	return net.ErrClosed
}
