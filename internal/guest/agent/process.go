package agent

import (
	"context"
	"errors"
	"io"
	"sync"
	"syscall"

	"github.com/bermhq/berm/internal/guest"
)

// start runs a process to its end and returns how that was.
func (c *call) start(s guest.Start, pending chan struct{}) guest.Exit {
	p, err := c.s.srv.host.Start(s)
	c.s.srv.endStart(s.ID, pending)
	if err != nil {
		e := guest.Exit{NotStarted: err.Error(), Errno: int(syscall.EINVAL)}
		var no syscall.Errno
		if errors.As(err, &no) {
			e.Errno = int(no)
		}
		return e
	}
	c.began(p)
	unwatch := context.AfterFunc(c.ctx, func() {
		if c.s.ctx.Err() == nil { // the host gave up on this call alone
			c.s.srv.host.Kill(c.s.ctx, s.ID)
		}
	})
	var pumps sync.WaitGroup
	for _, st := range []guest.Stream{guest.Stdout, guest.Stderr} {
		if r := p.Output(st); r != nil {
			pumps.Add(1)
			go func() {
				defer pumps.Done()
				c.pump(st, r)
			}()
		}
	}
	go c.report(p.Seen())
	w := p.Stdin()
	if w != nil {
		go c.feed(w)
	}
	e := p.Wait()
	pumps.Wait()
	if w != nil {
		w.Close() // a descendant may hold the other end, and never read
	}
	unwatch()
	c.ended()
	return e
}

// report tells the host what is seen while the process runs. If all of this
// dies at once, it is what the host knows.
func (c *call) report(seen <-chan guest.Exit) {
	for e := range seen {
		c.send(guest.KindSeen, e.Append(make([]byte, guest.HeaderSize, 128)))
	}
}

// pump carries one output to the host until it ends. When nobody listens any
// more it reads on, so the process does not block.
func (c *call) pump(st guest.Stream, r io.ReadCloser) {
	defer r.Close()
	kind := byte(guest.KindData)
	if st == guest.Stderr {
		kind = guest.KindDataErr
	}
	buf := chunks.Get().(*[]byte)
	defer chunks.Put(buf)
	heard := true
	for {
		n, err := r.Read((*buf)[guest.HeaderSize:])
		if n > 0 && heard {
			heard = c.put(kind, *buf, n) == nil
		}
		if err != nil {
			return
		}
	}
}

// feed carries the host's input to the process until one of them has enough.
func (c *call) feed(w io.WriteCloser) {
	r := &dataReader{c: c}
	_, err := r.WriteTo(w)
	w.Close()
	if err != nil && c.ctx.Err() == nil {
		c.in.Drop()
		c.send(guest.KindStop, make([]byte, guest.HeaderSize))
	}
}

// began hands p the notes that came while it was being started.
func (c *call) began(p Proc) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.proc = p
	for _, n := range c.notes {
		tell(p, n)
	}
	c.notes = nil
}

func (c *call) ended() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.proc = nil
	c.stop()
}

func (c *call) note(n guest.Note) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.proc != nil {
		tell(c.proc, n)
	} else if len(c.notes) < 16 {
		c.notes = append(c.notes, n)
	}
}

func tell(p Proc, n guest.Note) {
	if n.Rows != 0 || n.Cols != 0 {
		p.Resize(n.Rows, n.Cols)
	}
	if n.Signal > 0 {
		p.Signal(n.Signal)
	}
}
