package server

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/bermhq/berm/api"
)

// dialPort makes of the connection a raw stream to a port inside.
func (s *server) dialPort(w http.ResponseWriter, r *http.Request) error {
	port, err := portOf(r)
	if err != nil {
		return err
	}
	if !strings.EqualFold(r.Header.Get("Upgrade"), api.StreamProtocol) {
		return &api.Error{Code: api.CodeBadRequest, Message: "dial needs the header Upgrade: " + api.StreamProtocol}
	}
	guest, err := s.e.Dial(r.Context(), r.PathValue("id"), port)
	if err != nil {
		return err
	}
	defer guest.Close()
	hj, ok := w.(http.Hijacker)
	if !ok {
		return errors.New("this connection cannot be upgraded")
	}
	nc, rw, err := hj.Hijack()
	if err != nil {
		return err
	}
	defer nc.Close()
	nc.SetWriteDeadline(time.Now().Add(s.opt.WriteTimeout))
	if _, err := io.WriteString(nc, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: "+api.StreamProtocol+"\r\nConnection: Upgrade\r\n\r\n"); err != nil {
		return nil
	}
	var wg sync.WaitGroup
	stop := func() { nc.Close(); guest.Close() }
	wg.Go(func() { pipe(guest, rw.Reader, s.opt.WriteTimeout, stop) })
	wg.Go(func() { pipe(nc, guest, s.opt.WriteTimeout, stop) })
	// The end of the server ends both. The request's own context ends as soon as
	// the client closes its half.
	ctx, end := upgraded(r)
	defer end()
	ctx, cancel := s.untilStop(ctx, 0)
	defer cancel(nil)
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
		stop()
		<-done
	}
	return nil
}

// pipe copies until from ends, and then ends that half of to. A side that takes
// nothing for too long, or breaks, ends both.
func pipe(to net.Conn, from io.Reader, timeout time.Duration, stop func()) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			to.SetWriteDeadline(time.Now().Add(timeout))
			if _, werr := to.Write(buf[:n]); werr != nil {
				stop()
				return
			}
		}
		if err == io.EOF {
			if h, ok := to.(interface{ CloseWrite() error }); !ok || h.CloseWrite() != nil {
				stop()
			}
			return
		}
		if err != nil {
			stop()
			return
		}
	}
}
