package gateway

import (
	"bytes"
	"errors"
	"io"
	"os"
	"sync/atomic"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/waiter"
)

// errReset says that the guest cut the connection off, or that it is gone.
var errReset = errors.New("gateway: the guest's end is gone")

// A guestConn is the guest's end of a connection: one goroutine reads it, one
// writes it. It is not gVisor's own adapter because that one tells a reset from
// other errors by its text only, and cannot make one.
type guestConn struct {
	ep     tcpip.Endpoint
	wq     *waiter.Queue
	active *atomic.Int64 // when something went through last; nil: nobody asks
	marks  *marks
	slot   int // in marks; -1: none
}

func (c *guestConn) touch() {
	if c.active != nil {
		c.active.Store(time.Now().UnixNano())
	}
}

// Read reads what is there, and waits for it without end.
func (c *guestConn) Read(b []byte) (int, error) { return c.readUntil(b, nil) }

// readUntil reads what is there. It gives up with os.ErrDeadlineExceeded once
// late says so.
func (c *guestConn) readUntil(b []byte, late <-chan time.Time) (int, error) {
	w := tcpip.SliceWriter(b)
	res, err := c.ep.Read(&w, tcpip.ReadOptions{})
	if _, wait := err.(*tcpip.ErrWouldBlock); wait {
		entry, ready := waiter.NewChannelEntry(waiter.ReadableEvents | waiter.EventHUp | waiter.EventErr)
		c.wq.EventRegister(&entry)
		defer c.wq.EventUnregister(&entry)
		for {
			if res, err = c.ep.Read(&w, tcpip.ReadOptions{}); !wouldBlock(err) {
				break
			}
			select {
			case <-ready:
			case <-late:
				return 0, os.ErrDeadlineExceeded
			}
		}
	}
	switch err.(type) {
	case nil:
		c.touch()
		c.ep.ModerateRecvBuf(res.Count)
		return res.Count, nil
	case *tcpip.ErrClosedForReceive:
		return 0, io.EOF
	}
	return 0, errReset
}

func wouldBlock(err tcpip.Error) bool {
	_, is := err.(*tcpip.ErrWouldBlock)
	return is
}

// Write writes all of b, as fast as the guest takes it.
func (c *guestConn) Write(b []byte) (int, error) {
	var (
		r     bytes.Reader
		done  int
		entry waiter.Entry
		ready <-chan struct{}
	)
	for done < len(b) {
		r.Reset(b[done:])
		n, err := c.ep.Write(&r, tcpip.WriteOptions{})
		done += int(n)
		switch {
		case err == nil:
			c.touch()
		case !wouldBlock(err):
			return done, errReset
		case ready == nil:
			entry, ready = waiter.NewChannelEntry(waiter.WritableEvents | waiter.EventHUp | waiter.EventErr)
			c.wq.EventRegister(&entry)
			defer c.wq.EventUnregister(&entry)
		default:
			<-ready
		}
	}
	return done, nil
}

// CloseWrite ends what the guest reads.
func (c *guestConn) CloseWrite() { c.ep.Shutdown(tcpip.ShutdownWrite) }

// Close gives the connection up; what was written still arrives.
func (c *guestConn) Close() {
	c.ep.Close()
	c.marks.over(c.slot)
	c.slot = -1
}

// Abort cuts it off with a reset.
func (c *guestConn) Abort() { c.ep.Abort() }

// Bounds of finish.
const (
	lastWords = 2 * time.Second
	lastBytes = 1 << 20
)

// finish ends a connection to whose last answer the guest must have time to
// listen: what it still sends would otherwise turn the end into a reset.
func (c *guestConn) finish() {
	c.CloseWrite()
	late := time.After(lastWords)
	buf := make([]byte, 16<<10)
	for n := 0; n < lastBytes; {
		m, err := c.readUntil(buf, late)
		if err != nil {
			break
		}
		n += m
	}
	c.Close()
}
