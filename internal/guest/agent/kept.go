package agent

import (
	"context"
	"io"
	"slices"
	"syscall"

	"github.com/bermhq/berm/internal/guest"
)

// join makes the follower of an attach in the order of the wire: one that is
// asked for right behind its start is there before the process is.
func (c *call) join(body []byte) {
	var r guest.ProcessRequest
	if !r.Decode(body) || r.Offset < 0 {
		return
	}
	a := c.s.srv.Agent
	a.mu.Lock()
	c.job = a.jobs[r.ID]
	a.mu.Unlock()
	if c.job != nil && c.job.log != nil {
		c.follower = c.job.log.join(r.Offset, r.Follow)
	}
}

// doProcess does what is asked about one Start.
func (c *call) doProcess(method int, r guest.ProcessRequest) ([]byte, error) {
	if method == guest.MethodKill {
		k := c.s.srv.kill(c.ctx, r.ID)
		return k.Append(nil), nil
	}
	if method == guest.MethodAttach {
		return c.attach(r)
	}
	j, err := c.s.srv.find(c.ctx, r.ID)
	if err != nil {
		return nil, err
	}
	switch method {
	case guest.MethodWait:
		return c.await(j)
	case guest.MethodTell:
		return nil, c.tell(j, r)
	case guest.MethodStdin:
		return nil, c.stdin(j)
	}
	return nil, syscall.ENOSYS
}

// attach sends the log of the job that join found, as far as it is kept.
func (c *call) attach(r guest.ProcessRequest) ([]byte, error) {
	j, f := c.job, c.follower
	switch {
	case r.Offset < 0:
		return nil, syscall.EINVAL
	case j == nil:
		return nil, syscall.ENOENT
	case j.log == nil:
		return nil, refusal{"its output is not kept", syscall.EINVAL}
	case f == nil:
		return nil, refusal{"too many follow it", syscall.EAGAIN}
	}
	defer j.log.leave(f)
	select {
	case <-j.ready:
	case <-c.ctx.Done():
		return nil, c.ctx.Err()
	}
	if err := c.begun(); err != nil {
		return nil, err
	}
	buf := chunks.Get().(*[]byte)
	defer chunks.Put(buf)
	for upto := j.log.written(); r.Follow || f.pos < upto; {
		st, gap, n, wait := j.log.read(f, (*buf)[guest.HeaderSize:])
		if gap > 0 {
			var b [guest.HeaderSize + 10]byte
			k := len(guest.AppendCredit(b[guest.HeaderSize:guest.HeaderSize], int(gap))) // a varint too
			if err := c.put(guest.KindGap, b[:], k); err != nil {
				return nil, err
			}
		}
		if n > 0 {
			if err := c.put(kindOf(st), *buf, n); err != nil {
				return nil, err
			}
			continue
		}
		if wait == nil {
			break
		}
		select {
		case <-wait:
		case <-c.ctx.Done():
			return nil, c.ctx.Err()
		}
	}
	i := j.info()
	return i.Append(nil), nil
}

// await sends what is seen of j, and how it ended.
func (c *call) await(j *job) ([]byte, error) {
	if err := c.begun(); err != nil {
		return nil, err
	}
	var last []byte
	for {
		e, news := j.sighting()
		if b := e.Append(nil); string(b) != string(last) {
			last = b
			c.send(guest.KindSeen, append(make([]byte, guest.HeaderSize, 128), b...))
		}
		select {
		case <-news:
		case <-j.over:
			return j.exit.Append(nil), nil
		case <-c.ctx.Done():
			return nil, c.ctx.Err()
		}
	}
}

// processes sends what list returns, as entries.
func (c *call) processes() error {
	all := c.s.srv.list()
	slices.SortFunc(all, func(a, b guest.ProcessInfo) int {
		switch {
		case a.StartedNanos < b.StartedNanos:
			return -1
		case a.StartedNanos > b.StartedNanos:
			return 1
		}
		return 0
	})
	w := &entryWriter{c: c}
	for i := range all {
		if err := w.add(all[i].Append(nil)); err != nil {
			w.close()
			return err
		}
	}
	return w.close()
}

func (c *call) tell(j *job, r guest.ProcessRequest) error {
	if r.CloseStdin && j.typed != nil {
		return j.typed.send(c.ctx, nil)
	}
	p := j.running()
	if p == nil {
		return syscall.ESRCH
	}
	return tell(p, guest.Note{Signal: r.Signal, Rows: r.Rows, Cols: r.Cols})
}

// stdin carries what the host sends to j's standard input, and leaves it open.
func (c *call) stdin(j *job) error {
	if j.typed == nil {
		return refusal{"it has no standard input to come back to", syscall.EINVAL}
	}
	if err := c.begun(); err != nil {
		return err
	}
	for r := (dataReader{c: c}); ; {
		switch err := r.next(); err {
		case nil:
		case io.EOF:
			return nil
		default:
			return err
		}
		if err := j.typed.send(c.ctx, r.b); err != nil {
			if c.ctx.Err() != nil {
				return err
			}
			c.refuse()
			return syscall.EPIPE
		}
	}
}

// A typist writes to a standard input for whoever comes, one after the other.
// Who gives up does not wait for a process that does not read.
type typist struct {
	work chan typing
	over <-chan struct{} // when the process has ended
}

type typing struct {
	b    []byte // nil: close
	done chan error
}

func newTypist(w io.WriteCloser, over <-chan struct{}) *typist {
	t := &typist{work: make(chan typing), over: over}
	go t.run(w)
	return t
}

func (t *typist) run(w io.WriteCloser) {
	for {
		select {
		case k := <-t.work:
			if k.b == nil {
				k.done <- w.Close()
				continue
			}
			_, err := w.Write(k.b)
			k.done <- err
		case <-t.over:
			return
		}
	}
}

// send writes b, or closes. If ctx ends first b may still be written: it must
// not be used again.
func (t *typist) send(ctx context.Context, b []byte) error {
	k := typing{b: b, done: make(chan error, 1)}
	select {
	case t.work <- k:
	case <-t.over:
		return syscall.EPIPE
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-k.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
