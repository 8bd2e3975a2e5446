package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"strings"
	"time"
)

// upgrade sends a request on a connection of its own and returns that
// connection after "101 Switching Protocols". Unlike http.Client it leaves the
// half-close to the caller.
func (c *Client) upgrade(ctx context.Context, method, path, protocol string, body string) (*Stream, error) {
	fail := func(err error) (*Stream, error) {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, fmt.Errorf("%s %s: %w", method, strings.SplitN(path, "?", 2)[0], err)
	}
	if c.bad != nil {
		return nil, c.bad
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base.String()+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", protocol)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	c.sign(req)
	nc, err := c.dial(ctx)
	if err != nil {
		return fail(err)
	}
	stop := context.AfterFunc(ctx, func() { nc.SetDeadline(time.Unix(1, 0)) })
	head := &io.LimitedReader{R: nc, N: 64 << 10} // until the body begins
	r := bufio.NewReaderSize(head, 32<<10)
	err = req.Write(nc)
	var resp *http.Response
	if err == nil {
		resp, err = http.ReadResponse(r, req)
	}
	if err != nil {
		stop()
		nc.Close()
		return fail(err)
	}
	head.N = math.MaxInt64
	if resp.StatusCode >= 400 {
		defer nc.Close()
		defer stop()
		return nil, refusal(resp)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols || !strings.EqualFold(resp.Header.Get("Upgrade"), protocol) {
		stop()
		nc.Close()
		return fail(fmt.Errorf("the server answered %d instead of upgrading", resp.StatusCode))
	}
	if !stop() {
		nc.Close()
		return fail(errors.New("interrupted"))
	}
	return &Stream{Conn: nc, r: r}, nil
}

// A Stream is a connection after its upgrade: every byte is the other side's.
type Stream struct {
	net.Conn
	r *bufio.Reader
}

// Read reads what the other side sent, the bytes that came with the answer first.
func (s *Stream) Read(p []byte) (int, error) { return s.r.Read(p) }

// CloseWrite says that nothing more will be written, where the connection can.
func (s *Stream) CloseWrite() error {
	if w, ok := s.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return errors.ErrUnsupported
}
