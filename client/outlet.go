package client

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"
)

const (
	aheadLimit = 256 << 10 // output that waits for the caller's writers
	lateLimit  = 32 << 20  // the same when the program is over: more than a server keeps
	pieceSize  = 16 << 10  // of one Write

	// deafAfter is longer than a server waits for a client that takes nothing.
	deafAfter = 65 * time.Second
	// lateAfter the program's time is up, it is over.
	lateAfter = 3 * time.Second
	// unreadAfter ends the wait for a writer that takes nothing any more, when
	// the program did not end by itself; leaveAfter when the caller left.
	unreadAfter = 5 * time.Second
	leaveAfter  = 500 * time.Millisecond
)

// Unread says that a writer of Stdio took nothing any more and was left in the
// middle of a Write: it must not be used again.
type Unread struct {
	Lost int64 // bytes that no writer took, at most
	Err  error // what else went wrong; nil if the result is true all the same
}

func (u *Unread) Error() string {
	s := fmt.Sprintf("exec: nobody read the output, %d bytes of it are lost", u.Lost)
	if u.Err != nil {
		s += ": " + u.Err.Error()
	}
	return s
}

func (u *Unread) Unwrap() error { return u.Err }

// An outlet stands between the server, which sends, and the caller's writers,
// which may block for ever: a pipe that nobody reads. It keeps the order of all
// of them, and a slow writer slows the server.
type outlet struct {
	broke func() // called when a writer failed

	mu    sync.Mutex
	cond  sync.Cond
	items []piece
	free  [][]byte
	bytes int // in items, and of the piece that is being written
	limit int
	drop  bool // what is over the limit is lost, instead of waiting
	lost  int64
	shut  bool // nothing more comes
	left  bool // given up
	err   error
	moved time.Time // when a writer last took something

	done chan struct{} // closed when the last writer returned
}

type piece struct {
	w io.Writer
	p []byte
}

func newOutlet(broke func()) *outlet {
	o := &outlet{broke: broke, limit: aheadLimit, moved: time.Now(), done: make(chan struct{})}
	o.cond.L = &o.mu
	go o.run()
	return o
}

// put takes a copy of p, when there is room.
func (o *outlet) put(w io.Writer, p []byte) {
	if w == nil || len(p) == 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.bytes > 0 && o.bytes+len(p) > o.limit && !o.drop && !o.left && o.err == nil {
		o.cond.Wait()
	}
	if o.left || o.err != nil || o.drop && o.bytes+len(p) > o.limit {
		o.lost += int64(len(p))
		return
	}
	var buf []byte
	if n := len(o.free); n > 0 {
		buf, o.free = o.free[n-1], o.free[:n-1]
	}
	if o.bytes == 0 {
		o.moved = time.Now() // from here on something is waited for
	}
	o.items = append(o.items, piece{w, append(buf[:0], p...)})
	o.bytes += len(p)
	o.cond.Broadcast()
}

// run writes what was put until that is over.
func (o *outlet) run() {
	defer close(o.done)
	o.mu.Lock()
	defer o.mu.Unlock()
	for {
		for len(o.items) == 0 && !o.shut && !o.left {
			o.cond.Wait()
		}
		if o.left || len(o.items) == 0 {
			return
		}
		it := o.items[0]
		o.items = o.items[1:]
		for rest := it.p; len(rest) > 0; {
			n := min(len(rest), pieceSize)
			o.mu.Unlock()
			_, err := it.w.Write(rest[:n])
			o.mu.Lock()
			if o.left {
				return
			}
			if err != nil {
				o.err = err
				o.cond.Broadcast()
				o.broke()
				return
			}
			rest = rest[n:]
			o.bytes -= n
			o.moved = time.Now()
			o.cond.Broadcast()
		}
		if len(o.free) < 4 {
			o.free = append(o.free, it.p)
		}
	}
}

// watch makes room where nobody reads, so that the end of the program is seen
// although it comes after its output: when limit is over (0: there is none), and
// when the server cannot have waited that long.
func (o *outlet) watch(limit time.Duration) (stop func()) {
	var deaf, late *time.Timer
	deaf = time.AfterFunc(deafAfter, func() {
		switch idle := o.idle(); {
		case idle < deafAfter:
			deaf.Reset(deafAfter - idle)
		case idle < 2*deafAfter:
			o.raise(lateLimit, false)
			deaf.Reset(2*deafAfter - idle)
		default:
			o.raise(lateLimit, true)
		}
	})
	if limit > 0 {
		late = time.AfterFunc(limit+lateAfter, func() { o.raise(lateLimit, true) })
	}
	return func() {
		deaf.Stop()
		if late != nil {
			late.Stop()
		}
	}
}

// raise lets more wait, and with drop nothing waits for room any more.
func (o *outlet) raise(limit int, drop bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.limit, o.drop = max(o.limit, limit), o.drop || drop
	o.cond.Broadcast()
}

// failed says that a writer did.
func (o *outlet) failed() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err != nil
}

// idle is how long a writer has taken nothing, 0 if there is nothing to take.
func (o *outlet) idle() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.bytes == 0 {
		return 0
	}
	return time.Since(o.moved)
}

// drain waits until all that was put is written, or a writer failed, or took
// nothing for as long as patience says (0: for ever), or ctx is over. It returns
// what is lost, and whether a writer was left in the middle of a Write.
func (o *outlet) drain(ctx context.Context, patience time.Duration) (lost int64, left bool, err error) {
	o.mu.Lock()
	o.shut = true
	o.cond.Broadcast()
	o.mu.Unlock()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	began, gone := time.Now(), ctx.Done()
	var last <-chan time.Time
wait:
	for {
		select {
		case <-o.done:
			break wait
		case <-gone:
			gone, last = nil, time.After(leaveAfter)
		case <-last:
			left = true
			break wait
		case <-tick.C:
			if patience > 0 && min(o.idle(), time.Since(began)) > patience {
				left = true
				break wait
			}
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	select {
	case <-o.done: // in the last moment
		left = false
	default:
	}
	if left {
		o.left = true
		o.lost += int64(o.bytes)
		o.cond.Broadcast()
	}
	return o.lost, left, o.err
}
