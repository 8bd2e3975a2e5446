package testkit

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"github.com/bermhq/berm/internal/backend"
)

// ErrFault is what a broken part answers.
var ErrFault = errors.New("fault of the test")

// A Flaky is a backend with something broken. The zero faults change nothing.
type Flaky struct {
	backend.Backend
	CheckErr error
	StartErr error
	AgentErr error
	PauseErr error
	Conn     func(net.Conn) net.Conn       // wraps the agent stream
	Usage    func() (backend.Usage, error) // replaces the meter
	Deadline func(time.Time) error         // sees each move of a deadline before the backend does
}

// Check implements backend.Backend.
func (f *Flaky) Check(ctx context.Context) error {
	if f.CheckErr != nil {
		return f.CheckErr
	}
	return f.Backend.Check(ctx)
}

// Start implements backend.Backend.
func (f *Flaky) Start(ctx context.Context, s backend.Spec) (backend.Instance, error) {
	if f.StartErr != nil {
		return nil, f.StartErr
	}
	i, err := f.Backend.Start(ctx, s)
	if err != nil {
		return nil, err
	}
	return &flakyInstance{i, f}, nil
}

// Attach implements backend.Backend.
func (f *Flaky) Attach(ctx context.Context, h backend.Handle) (backend.Instance, error) {
	i, err := f.Backend.Attach(ctx, h)
	if err != nil {
		return nil, err
	}
	return &flakyInstance{i, f}, nil
}

// Held implements backend.Holder.
func (f *Flaky) Held(ctx context.Context) ([]backend.Held, error) {
	if h, ok := f.Backend.(backend.Holder); ok {
		return h.Held(ctx)
	}
	return nil, nil
}

// Forget implements backend.Holder.
func (f *Flaky) Forget(ctx context.Context, id string) error {
	if h, ok := f.Backend.(backend.Holder); ok {
		return h.Forget(ctx, id)
	}
	return nil
}

type flakyInstance struct {
	backend.Instance
	f *Flaky
}

func (i *flakyInstance) Agent(ctx context.Context) (net.Conn, error) {
	if i.f.AgentErr != nil {
		return nil, i.f.AgentErr
	}
	c, err := i.Instance.Agent(ctx)
	if err == nil && i.f.Conn != nil {
		c = i.f.Conn(c)
	}
	return c, err
}

func (i *flakyInstance) Usage() (backend.Usage, error) {
	if i.f.Usage != nil {
		return i.f.Usage()
	}
	if m, ok := i.Instance.(backend.Meter); ok {
		return m.Usage()
	}
	return backend.Usage{}, ErrFault
}

func (i *flakyInstance) Pause(ctx context.Context) error {
	if i.f.PauseErr != nil {
		return i.f.PauseErr
	}
	if p, ok := i.Instance.(backend.Pauser); ok {
		return p.Pause(ctx)
	}
	return ErrFault
}

func (i *flakyInstance) Resume(ctx context.Context) error {
	if p, ok := i.Instance.(backend.Pauser); ok {
		return p.Resume(ctx)
	}
	return ErrFault
}

func (i *flakyInstance) SetDeadline(ctx context.Context, t time.Time) error {
	if i.f.Deadline != nil {
		if err := i.f.Deadline(t); err != nil {
			return err
		}
	}
	if d, ok := i.Instance.(backend.Deadliner); ok {
		return d.SetDeadline(ctx, t)
	}
	return ErrFault
}

// CutAfter closes a stream after n bytes came from the guest.
func CutAfter(n int) func(net.Conn) net.Conn {
	return func(c net.Conn) net.Conn { return &cutConn{Conn: c, left: n} }
}

type cutConn struct {
	net.Conn
	mu   sync.Mutex
	left int
}

func (c *cutConn) Read(p []byte) (int, error) {
	c.mu.Lock()
	left := c.left
	c.mu.Unlock()
	if left <= 0 {
		c.Conn.Close()
		return 0, net.ErrClosed
	}
	n, err := c.Conn.Read(p[:min(len(p), left)])
	c.mu.Lock()
	c.left -= n
	c.mu.Unlock()
	return n, err
}

// SilentAfter lets n bytes come from the guest and then nothing, for ever: the
// stream stays open and takes what is written.
func SilentAfter(n int) func(net.Conn) net.Conn {
	return func(c net.Conn) net.Conn {
		return &silentConn{cutConn: cutConn{Conn: c, left: n}, closed: make(chan struct{})}
	}
}

type silentConn struct {
	cutConn
	once     sync.Once
	closed   chan struct{}
	deadline deadline
}

func (c *silentConn) Read(p []byte) (int, error) {
	c.mu.Lock()
	left := c.left
	c.mu.Unlock()
	if left > 0 {
		return c.cutConn.Read(p)
	}
	select {
	case <-c.closed:
		return 0, net.ErrClosed
	case <-c.deadline.wait():
		return 0, os.ErrDeadlineExceeded
	}
}

func (c *silentConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	left := c.left
	c.mu.Unlock()
	if left > 0 {
		return c.cutConn.Write(p)
	}
	select {
	case <-c.closed:
		return 0, net.ErrClosed
	default:
		return len(p), nil
	}
}

func (c *silentConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

func (c *silentConn) SetReadDeadline(t time.Time) error {
	c.deadline.set(t)
	return c.Conn.SetReadDeadline(t)
}

func (c *silentConn) SetDeadline(t time.Time) error {
	c.deadline.set(t)
	return c.Conn.SetDeadline(t)
}

// A deadline is a channel that closes at a time which may still move.
type deadline struct {
	mu sync.Mutex
	ch chan struct{}
	t  *time.Timer
}

func (d *deadline) wait() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ch == nil {
		d.ch = make(chan struct{})
	}
	return d.ch
}

func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.t != nil {
		d.t.Stop()
	}
	if d.ch == nil {
		d.ch = make(chan struct{})
	}
	if t.IsZero() {
		return
	}
	ch := d.ch
	d.t = time.AfterFunc(time.Until(t), func() { close(ch) })
	d.ch = ch
}
