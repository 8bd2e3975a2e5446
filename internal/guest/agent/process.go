package agent

import (
	"context"
	"errors"
	"io"
	"sync"
	"syscall"
	"time"

	"github.com/bermhq/berm/internal/guest"
)

// start runs a process to its end and says how that was. One that is kept goes
// on when the call does not.
func (c *call) start(s guest.Start, j *job) guest.Reply {
	exit := func(e guest.Exit) guest.Reply { return guest.Reply{Body: e.Append(nil)} }
	if j == nil {
		return exit(guest.Exit{NotStarted: "there is one of that id already", Errno: int(syscall.EEXIST)})
	}
	a := c.s.srv.Agent
	j.asked = time.Now()
	p, err := a.host.Start(s)
	j.began = time.Now()
	if err != nil {
		e := guest.Exit{NotStarted: err.Error(), Errno: int(syscall.EINVAL)}
		var no syscall.Errno
		if errors.As(err, &no) {
			e.Errno = int(no)
		}
		close(j.ready)
		a.finish(j, e)
		return exit(e)
	}
	j.mu.Lock()
	j.proc, j.pid = p, p.PID()
	j.mu.Unlock()
	w := p.Stdin()
	if w != nil && j.log != nil {
		j.typed = newTypist(w, j.over)
	}
	close(j.ready)
	c.began(p)
	defer c.ended()
	go func() { // if all of this dies at once, it is what the host knows
		for e := range p.Seen() {
			j.saw(e)
			c.send(guest.KindSeen, e.Append(make([]byte, guest.HeaderSize, 128)))
		}
	}()
	if j.log != nil {
		go a.run(s, j, p, w, nil)
		select {
		case <-j.over:
			return exit(j.exit)
		case <-c.ctx.Done():
			return failure(c.ctx.Err())
		}
	}
	unwatch := context.AfterFunc(c.ctx, func() {
		if c.s.ctx.Err() == nil { // the host gave up on this call alone
			a.host.Kill(c.s.ctx, s.ID, guest.EndedKilled)
		}
	})
	if w != nil {
		go c.feed(w)
	}
	a.run(s, j, p, w, c)
	unwatch()
	return exit(j.exit)
}

// run carries the output of j to c, or into its log, until it has ended.
func (a *Agent) run(s guest.Start, j *job, p Proc, w io.WriteCloser, c *call) {
	var late *time.Timer
	if s.TimeoutMS > 0 {
		late = time.AfterFunc(time.Duration(s.TimeoutMS)*time.Millisecond, func() {
			a.host.Kill(context.Background(), j.id, guest.EndedTimeout)
		})
	}
	var pumps sync.WaitGroup
	for _, st := range []guest.Stream{guest.Stdout, guest.Stderr} {
		if r := p.Output(st); r != nil {
			pumps.Go(func() {
				if c != nil {
					c.pump(st, r)
				} else {
					a.keep(s, j, st, r)
				}
			})
		}
	}
	e := p.Wait()
	if late != nil {
		late.Stop()
	}
	if j.log != nil {
		j.log.ending()
	}
	pumps.Wait()
	if w != nil {
		w.Close() // a descendant may hold the other end, and never read
	}
	a.finish(j, e)
}

// keep carries one output into j's log until it ends, and ends what floods it.
func (a *Agent) keep(s guest.Start, j *job, st guest.Stream, r io.ReadCloser) {
	defer r.Close()
	buf := chunks.Get().(*[]byte)
	defer chunks.Put(buf)
	for {
		n, err := r.Read(*buf)
		if n > 0 && j.log.write(st, (*buf)[:n]) > s.Flood && s.Flood > 0 {
			s.Flood = 0 // once
			go a.host.Kill(context.Background(), j.id, guest.EndedOutput)
		}
		if err != nil {
			return
		}
	}
}

// pump carries one output to the host until it ends. When nobody listens any
// more it reads on, so the process does not block.
func (c *call) pump(st guest.Stream, r io.ReadCloser) {
	defer r.Close()
	kind := kindOf(st)
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

func kindOf(st guest.Stream) byte {
	if st == guest.Stderr {
		return guest.KindDataErr
	}
	return guest.KindData
}

// feed carries the host's input to the process until one of them has enough.
func (c *call) feed(w io.WriteCloser) {
	r := &dataReader{c: c}
	_, err := r.WriteTo(w)
	w.Close()
	if err != nil && c.ctx.Err() == nil {
		c.refuse()
	}
}

// refuse says that no more data is wanted.
func (c *call) refuse() {
	c.in.Drop()
	c.send(guest.KindStop, make([]byte, guest.HeaderSize))
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

func tell(p Proc, n guest.Note) error {
	if n.Rows != 0 || n.Cols != 0 {
		if err := p.Resize(n.Rows, n.Cols); err != nil {
			return err
		}
	}
	if n.Signal > 0 {
		return p.Signal(n.Signal)
	}
	return nil
}
