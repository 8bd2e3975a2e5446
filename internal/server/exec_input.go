package server

import (
	"context"
	"sync/atomic"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/sandbox"
)

// An inlet brings standard input to an exec, never more of it at once than the
// engine takes ahead of the program.
type inlet struct {
	c     chan sandbox.Input
	ahead atomic.Int64
	room  chan struct{}
}

func newInlet() *inlet {
	return &inlet{c: make(chan sandbox.Input), room: make(chan struct{}, 1)}
}

// took is for sandbox.Streams.
func (i *inlet) took(n int) {
	i.ahead.Add(-int64(n))
	select {
	case i.room <- struct{}{}:
	default:
	}
}

// full says that the program is not reading.
func (i *inlet) full() bool { return i.ahead.Load() > api.StdinWindow-api.MaxFrame }

// write waits for room. ctx must be over when the exec is.
func (i *inlet) write(ctx context.Context, p []byte) error {
	for len(p) > 0 {
		n := min(len(p), api.MaxFrame)
		for i.full() {
			select {
			case <-i.room:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		i.ahead.Add(int64(n))
		if err := i.send(ctx, sandbox.Input{Stdin: p[:n]}); err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

func (i *inlet) send(ctx context.Context, in sandbox.Input) error {
	select {
	case i.c <- in:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
