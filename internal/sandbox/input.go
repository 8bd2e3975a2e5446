package sandbox

import (
	"context"
	"io"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/guest"
)

// An inlet is where a command takes what its caller sends. An error means that
// it no longer does, which only an end of its own makes known.
type inlet interface {
	Write(b []byte) (int, error) // waits while the command reads nothing
	CloseStdin() error
	Signal(sig int) error
	Resize(rows, cols uint16) error
}

// feed passes input events on until over or done. Stdin has a goroutine of its
// own, because the program may not be reading it.
func feed(s Streams, to inlet, over, done <-chan struct{}) {
	stdin := newQueue(2 * api.StdinWindow)
	defer stdin.kill()
	go func() {
		broken := false
		for {
			c, ok := stdin.get()
			if !ok {
				return
			}
			if c.data == nil {
				if err := to.CloseStdin(); err == nil && !broken && s.Took != nil {
					s.Took(0)
				}
				continue
			}
			if !broken {
				_, err := to.Write(c.data)
				broken = err != nil // it no longer reads: what comes is taken and dropped
			}
			if s.Took != nil {
				s.Took(len(c.data))
			}
		}
	}()
	for {
		select {
		case <-over:
			return
		case <-done:
			return
		case in, ok := <-s.Input:
			switch {
			case !ok:
				<-over
				return
			case in.StdinClose:
				stdin.put(chunk{})
			case in.Stdin != nil:
				stdin.put(chunk{data: in.Stdin})
			case in.Signal != 0:
				to.Signal(in.Signal)
			case in.Rows != 0 || in.Cols != 0:
				to.Resize(in.Rows, in.Cols)
			}
		}
	}
}

// keptInput is the inlet of a kept exec: each thing is a call of its own, and
// stdin a stream that is opened when there is some.
type keptInput struct {
	ctx context.Context // of whoever sends
	g   *guest.Client
	id  string
	in  *guest.Input
	err error
}

func (k *keptInput) open() error {
	if k.in == nil && k.err == nil {
		k.in, k.err = k.g.Stdin(k.ctx, k.id)
	}
	return k.err
}

func (k *keptInput) Write(b []byte) (int, error) {
	if err := k.open(); err != nil {
		return 0, err
	}
	n, err := k.in.Write(b)
	k.err = err
	return n, err
}

func (k *keptInput) CloseStdin() error {
	if err := k.open(); err != nil {
		return err
	}
	k.err = io.ErrClosedPipe
	return k.in.Close()
}

func (k *keptInput) Signal(sig int) error { return k.g.Signal(k.ctx, k.id, sig) }

func (k *keptInput) Resize(rows, cols uint16) error { return k.g.Resize(k.ctx, k.id, rows, cols) }
