package sandbox

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/guest"
)

// Dial connects to a port on the sandbox's loopback, through its agent. Nothing
// listens on the host. While it is open the sandbox is not idle.
func (e *Engine) Dial(ctx context.Context, id string, port int) (net.Conn, error) {
	b, err := e.find(ctx, id)
	if err != nil {
		return nil, err
	}
	if port < 1 || port > 65535 {
		return nil, badRequest("port %d is none", port)
	}
	if err := b.usable(); err != nil {
		return nil, err
	}
	give, err := b.slots.take("connections", maxDials)
	if err != nil {
		return nil, err
	}
	w := e.patience(ctx, b, e.opt.Listing)
	c, err := b.guest.Dial(w.ctx, port)
	w.stop()
	if err != nil {
		give()
		if guest.IsRefusal(err) {
			return nil, portClosed(port, err.Error())
		}
		return nil, w.explain(fmt.Sprintf("port %d", port), err)
	}
	idle, actor := b.busy(), CallerOf(ctx).Actor
	e.note(b, b.event(actor, api.EventPortOpened, portData{Port: port}))
	d := &dialed{Conn: c}
	d.close = sync.OnceFunc(func() {
		give()
		idle()
		e.note(b, b.event(actor, api.EventPortClosed, portData{Port: port, In: d.in.Load(), Out: d.out.Load()}))
	})
	return d, nil
}

// dialed is a connection that counts and gives its slot back.
type dialed struct {
	net.Conn
	in, out atomic.Int64 // bytes into the sandbox, and out of it
	close   func()
}

// Read implements net.Conn.
func (d *dialed) Read(p []byte) (int, error) {
	n, err := d.Conn.Read(p)
	d.out.Add(int64(n))
	return n, err
}

// Write implements net.Conn.
func (d *dialed) Write(p []byte) (int, error) {
	n, err := d.Conn.Write(p)
	d.in.Add(int64(n))
	return n, err
}

// Close implements net.Conn.
func (d *dialed) Close() error {
	defer d.close()
	return d.Conn.Close()
}

// CloseWrite ends one direction.
func (d *dialed) CloseWrite() error {
	if c, ok := d.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return d.Conn.Close()
}

// Ports lists the TCP ports that somebody listens on inside.
func (e *Engine) Ports(ctx context.Context, id string) ([]int, error) {
	b, err := e.find(ctx, id)
	if err != nil {
		return nil, err
	}
	if err := b.usable(); err != nil {
		return nil, err
	}
	w := e.patience(ctx, b, e.opt.Listing)
	defer w.stop()
	ports, err := b.guest.Ports(w.ctx)
	if err != nil {
		return nil, w.explain("list ports", err)
	}
	return append(make([]int, 0, len(ports)), ports...), nil
}
