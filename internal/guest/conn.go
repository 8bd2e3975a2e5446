package guest

import (
	"context"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Dial connects to a TCP port of the guest's loopback: 127.0.0.1, else ::1.
// The connection is a *Conn: its two directions can be closed one by one.
func (c *Client) Dial(ctx context.Context, port int) (net.Conn, error) {
	if port <= 0 || port > 65535 {
		return nil, &Error{Op: "dial", Path: strconv.Itoa(port), Errno: int(syscall.EINVAL), Text: "no such port"}
	}
	r := DialRequest{Port: port}
	ca, err := c.begin(ctx, MethodDial, "dial", strconv.Itoa(port), r.Append(nil))
	if err != nil {
		return nil, err
	}
	return &Conn{ca: ca, port: port, rd: newDeadline(), wd: newDeadline()}, nil
}

// Ports lists the TCP ports of the guest that Dial can reach, in order.
func (c *Client) Ports(ctx context.Context) ([]int, error) {
	ca, err := c.simple(ctx, MethodPorts, "list ports", "", nil)
	if err != nil {
		return nil, err
	}
	var r PortsReply
	if !r.Decode(ca.reply.Body) {
		return nil, c.lie("malformed list of ports")
	}
	return r.Ports, nil
}

// A Conn is a connection to a port of the guest. Reading and writing are
// independent; each waits for the guest only as long as its deadline says.
type Conn struct {
	ca     *call
	port   int
	rd, wd *deadline
	closed atomic.Bool

	rmu  sync.Mutex
	rest []byte // read, not yet taken

	wmu  sync.Mutex
	over bool // no more is written
}

// Read implements net.Conn. It returns io.EOF when the guest's end has closed
// its direction.
func (c *Conn) Read(p []byte) (int, error) {
	c.rmu.Lock()
	defer c.rmu.Unlock()
	if err := c.rd.Err(); err != nil {
		return 0, c.reason(err)
	}
	if len(p) == 0 {
		return 0, nil
	}
	for len(c.rest) == 0 {
		_, b, err := c.ca.next(c.rd)
		if err != nil {
			return 0, c.reason(err)
		}
		c.rest = b
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// reason is err as a connection says it.
func (c *Conn) reason(err error) error {
	if c.closed.Load() {
		return net.ErrClosed
	}
	if err == io.EOF {
		select {
		case <-c.ca.replied:
			if err := c.ca.err("read", c.RemoteAddr().String()); err != nil {
				return err
			}
		default:
		}
	}
	return err
}

// Write implements net.Conn. It waits while the guest's end does not read.
func (c *Conn) Write(b []byte) (int, error) {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	if err := c.wd.Err(); err != nil || c.over {
		if err == nil {
			err = syscall.EPIPE
		}
		return 0, c.reason(err)
	}
	n, err := c.ca.put(c.wd, b)
	if err == nil && n < len(b) {
		err = syscall.EPIPE
	}
	if err != nil {
		err = c.reason(err)
	}
	return n, err
}

// CloseWrite says that no more is written; what the guest's end still sends can
// be read.
func (c *Conn) CloseWrite() error {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	if c.over {
		return nil
	}
	c.over = true
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return c.ca.end(ctx)
}

// Close implements net.Conn. It does not wait: the guest gets what was written
// before, if its end takes it soon.
func (c *Conn) Close() error {
	if c.closed.Swap(true) {
		return net.ErrClosed
	}
	past := time.Unix(1, 0)
	c.rd.set(past)
	c.wd.set(past)
	c.ca.cancel()
	return nil
}

// SetDeadline implements net.Conn.
func (c *Conn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

// SetReadDeadline implements net.Conn.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.limit(c.rd, t) }

// SetWriteDeadline implements net.Conn.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.limit(c.wd, t) }

func (c *Conn) limit(d *deadline, t time.Time) error {
	d.set(t)
	if c.closed.Load() {
		d.set(time.Unix(1, 0))
		return net.ErrClosed
	}
	return nil
}

// LocalAddr implements net.Conn.
func (c *Conn) LocalAddr() net.Addr { return guestAddr("host") }

// RemoteAddr implements net.Conn.
func (c *Conn) RemoteAddr() net.Addr { return guestAddr("guest:" + strconv.Itoa(c.port)) }

type guestAddr string

func (guestAddr) Network() string  { return "guest" }
func (a guestAddr) String() string { return string(a) }

// A deadline is a context whose end can be moved.
type deadline struct {
	mu    sync.Mutex
	timer *time.Timer
	done  chan struct{}
}

func newDeadline() *deadline { return &deadline{done: make(chan struct{})} }

func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil && !d.timer.Stop() {
		<-d.done // the timer runs, and is about to close it
	}
	d.timer = nil
	over := d.over()
	left := time.Until(t)
	if !t.IsZero() && left <= 0 {
		if !over {
			close(d.done)
		}
		return
	}
	if over {
		d.done = make(chan struct{})
	}
	if !t.IsZero() {
		done := d.done
		d.timer = time.AfterFunc(left, func() { close(done) })
	}
}

// Done implements context.Context.
func (d *deadline) Done() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.done
}

// Err implements context.Context.
func (d *deadline) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.over() {
		return os.ErrDeadlineExceeded
	}
	return nil
}

func (d *deadline) over() bool {
	select {
	case <-d.done:
		return true
	default:
		return false
	}
}

// Deadline implements context.Context.
func (d *deadline) Deadline() (time.Time, bool) { return time.Time{}, false }

// Value implements context.Context.
func (d *deadline) Value(any) any { return nil }
