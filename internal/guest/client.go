package guest

import (
	"context"
	"io"
	"math/rand/v2"
	"sync"
)

// A Client is the host's end of one guest's stream. It is safe for concurrent
// use. Its memory is bounded by Options: about MaxStreams times Window.
type Client struct {
	nc    io.ReadWriteCloser
	opt   Options
	epoch uint32
	nonce uint64

	out    chan outFrame
	wake   chan struct{} // credits wait to be sent
	greet  chan struct{} // closed when hello is there
	hello  Hello
	done   chan struct{}
	gone   sync.WaitGroup // reader and writer
	failed sync.Once
	err    error // set before done is closed

	mu    sync.Mutex
	calls map[uint32]*call
	last  uint32
	owed  []credit
}

type credit struct {
	stream uint32
	n      int
}

// New starts to speak to the guest at the other end of nc: it sends the marker
// and the greeting and does not wait. Calls may be made at once. The Client
// owns nc.
func New(nc io.ReadWriteCloser, opt Options) *Client {
	if opt.MaxFrame <= 0 || opt.MaxFrame > MaxFrame {
		opt.MaxFrame = MaxFrame
	}
	if opt.Window <= 0 {
		opt.Window = 512 << 10
	}
	opt.Window = min(max(opt.Window, 64<<10), 16<<20)
	if opt.MaxStreams <= 0 {
		opt.MaxStreams = 64
	}
	if opt.MaxSkip <= 0 {
		opt.MaxSkip = 64 << 20
	}
	c := &Client{
		nc: nc, opt: opt,
		out:   make(chan outFrame, 32),
		wake:  make(chan struct{}, 1),
		greet: make(chan struct{}),
		done:  make(chan struct{}),
		calls: make(map[uint32]*call),
	}
	if opt.Epoch == 0 {
		opt.Epoch = rand.Uint32()
	}
	c.epoch, c.nonce = newMarks(opt.Epoch, rand.Uint64())
	mine := Hello{Version: Version}
	b := AppendMarker(nil, c.epoch, c.nonce)
	c.out <- outFrame{b: AppendFrame(b, c.epoch, 0, KindHello, mine.Append(nil))}
	c.gone.Add(2)
	go c.read()
	go c.write()
	return c
}

// Hello waits for the guest to greet and returns what it says of itself.
func (c *Client) Hello(ctx context.Context) (Hello, error) {
	select {
	case <-c.greet:
		return c.hello, nil
	default:
	}
	select {
	case <-c.greet:
		return c.hello, nil
	case <-c.done:
		select {
		case <-c.greet: // it did, and then the stream ended
			return c.hello, nil
		default:
			return Hello{}, c.err
		}
	case <-ctx.Done():
		return Hello{}, ctx.Err()
	}
}

// Close ends the stream and every call on it, and waits for the Client's own
// goroutines. The guest itself goes on.
func (c *Client) Close() error {
	c.fail(ErrClosed)
	c.gone.Wait()
	return nil
}

// Done is closed when the stream has ended.
func (c *Client) Done() <-chan struct{} { return c.done }

// Err says why the stream ended; nil while it lives.
func (c *Client) Err() error {
	select {
	case <-c.done:
		return c.err
	default:
		return nil
	}
}

func (c *Client) fail(err error) {
	c.failed.Do(func() {
		caught(err)
		c.err = err
		close(c.done)
		c.nc.Close()
	})
}

// grant queues a credit. It never waits: the writer picks credits up, so a
// guest that does not read cannot stall the reader of its output.
func (c *Client) grant(stream uint32, n int) {
	if n == 0 {
		return
	}
	c.mu.Lock()
	if _, open := c.calls[stream]; open {
		for i := range c.owed {
			if c.owed[i].stream == stream {
				c.owed[i].n += n
				n = 0
			}
		}
		if n > 0 {
			c.owed = append(c.owed, credit{stream, n})
		}
	}
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *Client) credits(b []byte) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range c.owed {
		b = AppendFrame(b, c.epoch, o.stream, KindCredit, AppendCredit(nil, o.n))
	}
	c.owed = c.owed[:0]
	return b
}
