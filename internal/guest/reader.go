package guest

import (
	"bytes"
	"io"
)

// A hostReader reads a guest's stream through one small buffer; long bodies go
// straight to where they are wanted.
type hostReader struct {
	r      io.Reader
	buf    []byte
	lo, hi int
}

func (r *hostReader) fill() error {
	if r.lo > 0 {
		r.hi = copy(r.buf, r.buf[r.lo:r.hi])
		r.lo = 0
	}
	n, err := r.r.Read(r.buf[r.hi:])
	r.hi += n
	if n > 0 {
		return nil
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

// full fills p.
func (r *hostReader) full(p []byte) error {
	n := copy(p, r.buf[r.lo:r.hi])
	r.lo += n
	if n == len(p) {
		return nil
	}
	_, err := io.ReadFull(r.r, p[n:])
	return err
}

// peek makes sure that n bytes are buffered and returns them.
func (r *hostReader) peek(n int) ([]byte, error) {
	for r.hi-r.lo < n {
		if err := r.fill(); err != nil {
			return nil, err
		}
	}
	return r.buf[r.lo : r.lo+n], nil
}

// seek skips everything up to and including marker, at most limit bytes.
func (r *hostReader) seek(marker []byte, limit int) error {
	for skipped := 0; ; {
		if i := bytes.Index(r.buf[r.lo:r.hi], marker); i >= 0 {
			r.lo += i + len(marker)
			return nil
		}
		if n := r.hi - r.lo - len(marker) + 1; n > 0 {
			r.lo += n
			if skipped += n; skipped > limit {
				return protocolError("no answer to the marker")
			}
		}
		if err := r.fill(); err != nil {
			return err
		}
	}
}

// read takes the guest's frames until the stream ends. It never waits for
// anybody but the guest.
func (c *Client) read() {
	defer c.gone.Done()
	r := &hostReader{r: c.nc, buf: make([]byte, 32<<10)}
	err := r.seek(AppendMarker(nil, c.epoch, c.nonce), c.opt.MaxSkip)
	for err == nil {
		err = c.frame(r)
	}
	if _, bad := err.(protocolError); !bad && err != ErrClosed {
		err = goneError{err}
	}
	c.fail(err)
}

func (c *Client) frame(r *hostReader) error {
	h, err := r.peek(HeaderSize)
	if err != nil {
		return err
	}
	epoch, stream, kind, n := get32(h), get32(h[4:]), h[8], int(get32(h[9:]))
	r.lo += HeaderSize
	if epoch != c.epoch {
		return protocolError("frame of another epoch")
	}
	if n > c.opt.MaxFrame {
		return protocolError("frame too long")
	}
	if c.hello.Version == 0 {
		return c.greeting(r, stream, kind, n)
	}
	c.mu.Lock()
	ca := c.calls[stream]
	c.mu.Unlock()
	if ca == nil {
		return protocolError("frame for a stream that is not open")
	}
	if kind == KindData || kind == KindDataErr || kind == KindGap {
		return ca.data(r, kind, n)
	}
	if kind == KindSeen {
		return ca.sighting(r, n)
	}
	if n > MaxReply || n > 10 && kind != KindReply {
		return protocolError("message too long")
	}
	body := make([]byte, n)
	if err := r.full(body); err != nil {
		return err
	}
	switch kind {
	case KindCredit:
		if g, ok := ParseCredit(body); !ok || !ca.send.Grant(g) {
			return protocolError("credit that was never taken")
		}
	case KindStop:
		if ca.stopped {
			return protocolError("stopped twice")
		}
		ca.stopped = true
		ca.send.Close()
	case KindEnd:
		if ca.method != MethodDial || ca.ended || n != 0 {
			return protocolError("end out of place")
		}
		ca.ended = true
		ca.in.End()
	case KindReply:
		return ca.finish(body)
	default:
		return protocolError("unknown kind of frame")
	}
	return nil
}

// greeting takes the first frame, which must be a hello of a known version.
func (c *Client) greeting(r *hostReader, stream uint32, kind byte, n int) error {
	if stream != 0 || kind != KindHello || n > maxGuestString {
		return protocolError("no greeting")
	}
	body := make([]byte, n)
	if err := r.full(body); err != nil {
		return err
	}
	var h Hello
	if !h.Decode(body) || h.Version <= 0 {
		return protocolError("malformed greeting")
	}
	if h.Version != Version && h.Version != Version-1 {
		return protocolError("agent of an unsupported version")
	}
	c.hello = h
	close(c.greet)
	return nil
}
