package server

import (
	"context"
	"net"
	"net/http"
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
	// It would be answered before anybody asks for a token.
	srv.DisableGeneralOptionsHandler = true
	srv.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, c)
	}
	srv.ConnState = func(c net.Conn, state http.ConnState) {
		if g, ok := c.(*guest); ok {
			g.at(state)
		}
	}
	return srv
}
