package gateway

import (
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Copy buffers: the smaller with many connections, so that what is under way
// stays bounded.
const (
	bufferMost  = 2 << 20
	copySmall   = 64 << 10
	copyLarge   = 512 << 10
	copyFewOpen = 16
)

var (
	smallBuffers = sync.Pool{New: func() any { return new([copySmall]byte) }}
	largeBuffers = sync.Pool{New: func() any { return new([copyLarge]byte) }}
)

// buffer returns a buffer and what gives it back.
func (g *Gateway) buffer() ([]byte, func()) {
	if g.conns.Load() <= copyFewOpen {
		b := largeBuffers.Get().(*[copyLarge]byte)
		return b[:], func() { largeBuffers.Put(b) }
	}
	b := smallBuffers.Get().(*[copySmall]byte)
	return b[:], func() { smallBuffers.Put(b) }
}

// relay copies both ways until both are over, pending first.
func (f *flow) relay(pending []byte) {
	back := f.answers(nil)
	f.upward(pending)
	<-back.done
}

// upward copies what the guest sends until it ends, and passes its end on.
func (f *flow) upward(pending []byte) {
	if len(pending) > 0 {
		if _, err := f.out.Write(pending); err != nil {
			return // the other direction sees the same
		}
	}
	buf, put := f.g.buffer()
	defer put()
	for {
		n, err := f.guest.Read(buf)
		if err == nil {
			if !f.follows(buf[:n]) {
				f.guest.Abort()
				f.cut()
				return
			}
			_, err = f.out.Write(buf[:n])
			if err != nil {
				return
			}
			continue
		}
		if err == io.EOF {
			f.shutdown()
		} else {
			f.cut()
		}
		return
	}
}

// shutdown ends what the server reads.
func (f *flow) shutdown() {
	if raw, err := f.out.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { unix.Shutdown(int(fd), unix.SHUT_WR) })
	}
}

// cut ends a connection that the guest has cut.
func (f *flow) cut() {
	f.reset.Store(true)
	f.out.SetDeadline(time.Now()) // the other direction ends, too
}

// answers is the direction from the server to the guest, at work.
type answers struct {
	done chan struct{}
	// heard is when the server last said something.
	heard atomic.Int64
	// hold keeps the guest's end open behind the last answer: something
	// follows.
	hold atomic.Bool
}

// answers starts to copy what the server sends. first, if it is not nil, gets
// the first bytes before the guest does.
func (f *flow) answers(first func([]byte)) *answers {
	a := &answers{done: make(chan struct{})}
	a.heard.Store(time.Now().UnixNano())
	go func() {
		defer close(a.done)
		if first != nil {
			defer first(nil)
		}
		buf, put := f.g.buffer()
		defer put()
		for {
			n, err := f.out.Read(buf)
			switch {
			case err == nil:
				a.heard.Store(time.Now().UnixNano())
				if first != nil {
					first(buf[:n])
				}
				if _, err := f.guest.Write(buf[:n]); err != nil {
					f.cut()
					return
				}
			case err == io.EOF:
				if !a.hold.Load() {
					f.guest.CloseWrite()
				}
				return
			case errors.Is(err, os.ErrDeadlineExceeded):
				return // somebody else ends it
			default:
				f.guest.Abort()
				return
			}
		}
	}()
	return a
}

// idle cuts what has been without traffic for long.
type idle struct {
	mu    sync.Mutex
	flows map[*flow]struct{}
}

func (i *idle) add(f *flow) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.flows[f] = struct{}{}
}

func (i *idle) remove(f *flow) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.flows, f)
}

// sweep cuts flows on which nothing went through since before.
func (i *idle) sweep(before time.Time) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for f := range i.flows {
		if f.active.Load() < before.UnixNano() {
			f.guest.Abort()
			if out := f.cutOut.Load(); out != nil {
				out.SetDeadline(time.Now())
			}
		}
	}
}
