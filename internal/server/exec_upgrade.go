package server

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/sandbox"
)

// execUpgrade takes the connection and speaks frames on it until the exec is over.
func (s *server) execUpgrade(w http.ResponseWriter, r *http.Request, req api.ExecRequest) error {
	id := r.PathValue("id")
	if _, err := s.find(r.Context(), id); err != nil {
		return err
	}
	hj, ok := w.(http.Hijacker)
	if !ok {
		return fmt.Errorf("this connection cannot be upgraded")
	}
	nc, rw, err := hj.Hijack()
	if err != nil {
		return fmt.Errorf("upgrade: %w", err)
	}
	defer nc.Close()
	c := &execConn{nc: nc, r: rw.Reader, timeout: s.opt.WriteTimeout}
	if err := c.write([]byte("HTTP/1.1 101 Switching Protocols\r\nUpgrade: " + api.ExecProtocol + "\r\nConnection: Upgrade\r\n\r\n")); err != nil {
		return nil // the connection is ours and gone: there is nobody to tell
	}

	ctx, cancel := upgraded(r)
	defer cancel()
	input, left := make(chan sandbox.Input), make(chan struct{})
	go func() {
		defer close(left)
		defer cancel() // the client left, or broke the rules
		c.readAll(ctx, input)
	}()
	res, err := s.e.Exec(ctx, id, req, sandbox.Streams{
		Output: c.output,
		Input:  input,
		Took: func(n int) {
			c.ahead.Add(-int64(n))
			c.frame(api.FrameAck, binary.BigEndian.AppendUint32(nil, uint32(n)))
		},
		Lost: func(_ sandbox.Stream, n int64) {
			c.frame(api.FrameLost, binary.BigEndian.AppendUint64(nil, uint64(n)))
		},
	})
	c.hurry(s.opt.LastWord)
	if err != nil {
		c.last(api.FrameError, public(err))
	} else {
		c.last(api.FrameResult, res)
	}
	// Closing over unread bytes could take the result back; the client closes
	// as soon as it has it.
	cancel()
	select {
	case <-left:
	case <-time.After(time.Second):
	}
	return nil
}

// execConn is the server's end of an upgraded connection.
type execConn struct {
	nc    net.Conn
	r     *bufio.Reader
	ahead atomic.Int64 // bytes of stdin taken from the client and not yet acknowledged

	mu  sync.Mutex // held while a frame is written; before tmu
	buf []byte

	tmu     sync.Mutex
	timeout time.Duration // of one write
}

// write writes all of p or ends the connection: nothing may follow a part of a
// frame.
func (c *execConn) write(p []byte) error {
	c.tmu.Lock()
	c.nc.SetWriteDeadline(time.Now().Add(c.timeout))
	c.tmu.Unlock()
	_, err := c.nc.Write(p)
	if err != nil {
		c.nc.Close()
	}
	return err
}

// hurry bounds the writes that are to come, and the one that is on its way.
func (c *execConn) hurry(d time.Duration) {
	c.tmu.Lock()
	defer c.tmu.Unlock()
	c.timeout = d
	c.nc.SetWriteDeadline(time.Now().Add(d))
}

// frame sends one frame. It is called from several goroutines.
func (c *execConn) frame(kind byte, payload []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var h [api.FrameHeader]byte
	api.PutFrameHeader(&h, kind, len(payload))
	c.buf = append(append(c.buf[:0], h[:]...), payload...)
	return c.write(c.buf)
}

func (c *execConn) output(s sandbox.Stream, p []byte) error {
	kind := byte(api.FrameStdout)
	if s == sandbox.Stderr {
		kind = api.FrameStderr
	}
	for len(p) > 0 {
		n := min(len(p), api.MaxFrame)
		if err := c.frame(kind, p[:n]); err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

func (c *execConn) last(kind byte, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // our own types
	}
	c.frame(kind, b)
}

// readAll passes the client's frames on until the connection ends or the
// client breaks a rule.
func (c *execConn) readAll(ctx context.Context, to chan<- sandbox.Input) {
	for {
		var h [api.FrameHeader]byte
		if _, err := io.ReadFull(c.r, h[:]); err != nil {
			return
		}
		kind, size, ok := api.ParseFrameHeader(h)
		if !ok {
			return
		}
		p := make([]byte, size)
		if _, err := io.ReadFull(c.r, p); err != nil {
			return
		}
		in, ok := parseInput(kind, p)
		if !ok || kind == api.FrameStdin && c.ahead.Add(int64(size)) > api.StdinWindow {
			return
		}
		if in.Stdin != nil && size == 0 {
			continue
		}
		select {
		case to <- in:
		case <-ctx.Done(): // over: what still comes is dropped
		}
	}
}

func parseInput(kind byte, p []byte) (in sandbox.Input, ok bool) {
	switch kind {
	case api.FrameStdin:
		in.Stdin = p
	case api.FrameStdinClose:
		in.StdinClose = true
	case api.FrameResize:
		if len(p) != 4 {
			return in, false
		}
		in.Rows, in.Cols = binary.BigEndian.Uint16(p), binary.BigEndian.Uint16(p[2:])
	case api.FrameSignal:
		if len(p) != 1 || p[0] == 0 || p[0] > 64 {
			return in, false
		}
		in.Signal = int(p[0])
	default:
		return in, false
	}
	return in, true
}
