package guest

import "context"

// An outFrame is bytes on their way out: small ones hold whole frames, large
// ones a pooled buffer with room for a header in front of its body.
type outFrame struct {
	b      []byte
	pool   *[]byte // b is inside it, header not yet written
	stream uint32
}

// batch is how many bytes of small frames are gathered into one write.
const batch = 32 << 10

// write sends what is queued until the stream ends.
func (c *Client) write() {
	defer c.gone.Done()
	small := make([]byte, 0, batch+8<<10)
	for {
		var f outFrame
		select {
		case f = <-c.out:
		case <-c.wake:
		case <-c.done:
			return
		}
		small = c.credits(small[:0])
		for more := true; more; {
			if f.pool == nil && len(f.b) <= 8<<10 {
				small = append(small, f.b...)
			} else if !c.flush(&small) || !c.send(f) {
				return
			}
			if more = len(small) < batch; more {
				select {
				case f = <-c.out:
				default:
					more = false
				}
			}
		}
		if !c.flush(&small) {
			return
		}
	}
}

func (c *Client) flush(b *[]byte) bool {
	if len(*b) == 0 {
		return true
	}
	_, err := c.nc.Write(*b)
	*b = (*b)[:0]
	return c.sent(err)
}

func (c *Client) sent(err error) bool {
	if err != nil {
		c.fail(goneError{err})
	}
	return err == nil
}

func (c *Client) send(f outFrame) bool {
	if f.pool == nil {
		_, err := c.nc.Write(f.b)
		return c.sent(err)
	}
	defer giveBuf(f.pool)
	PutHeader(f.b, c.epoch, f.stream, KindData, len(f.b)-HeaderSize)
	_, err := c.nc.Write(f.b)
	return c.sent(err)
}

// queue hands a frame to the writer.
func (c *Client) queue(ctx context.Context, f outFrame) error {
	select {
	case <-c.done:
		return c.err
	default:
	}
	select {
	case c.out <- f:
		return nil
	case <-c.done:
		return c.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// goneError is a stream that broke under us. It does not wrap the cause: that
// is often io.EOF, which would read as the end of a process or a file.
type goneError struct{ cause error }

func (e goneError) Error() string { return ErrGone.Error() + ": " + e.cause.Error() }
func (e goneError) Unwrap() error { return ErrGone }
