package agent

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"sync"
	"syscall"

	"github.com/bermhq/berm/internal/guest"
)

// A call is one request of the host while it is worked on.
type call struct {
	s    *session
	id   uint32
	req  []byte
	in   *guest.Inbox
	out  *guest.Window
	ctx  context.Context
	stop context.CancelFunc

	over bool // replied; under the server's wmu

	// Of an attach, from when it was asked for.
	job      *job
	follower *follower

	mu    sync.Mutex
	proc  Proc         // once it runs
	notes []guest.Note // that came before it ran
}

// run does what was asked and replies, whatever happens.
func (c *call) run(o guest.Open) {
	defer c.stop()
	body, err := c.do(o)
	r := guest.Reply{Body: body}
	if err != nil {
		r = failure(err)
	}
	c.reply(r)
}

func (c *call) do(o guest.Open) ([]byte, error) {
	var f guest.FileRequest
	switch o.Method {
	case guest.MethodKill, guest.MethodAttach, guest.MethodWait, guest.MethodTell, guest.MethodStdin:
		var r guest.ProcessRequest
		if !r.Decode(o.Body) {
			return nil, syscall.EBADMSG
		}
		return c.doProcess(o.Method, r)
	case guest.MethodProcs:
		return nil, c.processes()
	case guest.MethodDial:
		var r guest.DialRequest
		if !r.Decode(o.Body) {
			return nil, syscall.EBADMSG
		}
		return nil, c.dial(r.Port)
	case guest.MethodPorts:
		ports, err := listening()
		r := guest.PortsReply{Ports: ports}
		return r.Append(nil), err
	case guest.MethodUsage:
		u := c.s.srv.host.Usage()
		return u.Append(nil), nil
	case guest.MethodControl:
		var id guest.Identity
		if !id.Decode(o.Body) {
			return nil, syscall.EBADMSG
		}
		return nil, c.s.srv.host.Control(id)
	}
	if !f.Decode(o.Body) {
		return nil, syscall.EBADMSG
	}
	if o.Method == guest.MethodChanges {
		return nil, c.s.srv.host.Changes(c.ctx, f.Path, &dataWriter{c: c})
	}
	files := c.s.srv.host.Files()
	switch o.Method {
	case guest.MethodStat:
		fi, err := files.stat(f.Path)
		if err != nil {
			return nil, err
		}
		return fi.Append(nil), nil
	case guest.MethodList:
		return nil, files.list(c.ctx, f, &entryWriter{c: c})
	case guest.MethodGlob:
		return nil, files.glob(c.ctx, f, &entryWriter{c: c})
	case guest.MethodWatch:
		return nil, files.watch(c, f)
	case guest.MethodRead:
		return nil, files.read(c, f)
	case guest.MethodWrite:
		return nil, files.write(f, c.reader())
	case guest.MethodMkdir:
		return nil, files.mkdir(f)
	case guest.MethodMove:
		return nil, files.move(f)
	case guest.MethodRemove:
		return nil, files.remove(f)
	case guest.MethodTarIn:
		return nil, files.tarIn(f, c.reader())
	case guest.MethodTarOut:
		return nil, files.tarOut(c.ctx, f, &dataWriter{c: c})
	}
	return nil, syscall.ENOSYS
}

// reply ends the call. Later frames for it are ignored.
func (c *call) reply(r guest.Reply) {
	c.s.mu.Lock()
	delete(c.s.calls, c.id)
	c.s.mu.Unlock()
	c.in.Drop()
	if len(r.Text) > 1024 {
		r.Text = r.Text[:1024]
	}
	c.send(guest.KindReply, r.Append(make([]byte, guest.HeaderSize, 64)))
}

// send writes one frame whose body is b[HeaderSize:]; the header is put in
// front of it. Nothing follows a reply, and nobody hears an older epoch: both
// are EPIPE.
func (c *call) send(kind byte, b []byte) error {
	srv := c.s.srv
	guest.PutHeader(b, c.s.epoch, c.id, kind, len(b)-guest.HeaderSize)
	srv.wmu.Lock()
	defer srv.wmu.Unlock()
	if srv.cur != c.s || c.over {
		return syscall.EPIPE
	}
	c.over = kind == guest.KindReply
	_, err := srv.rw.Write(b)
	return err
}

func (c *call) credit(n int) {
	if n > 0 {
		var b [guest.HeaderSize + 10]byte
		c.send(guest.KindCredit, guest.AppendCredit(b[:guest.HeaderSize], n))
	}
}

// failure puts an error into words for the host; the path is the host's own.
func failure(err error) guest.Reply {
	var no syscall.Errno
	r := guest.Reply{Text: err.Error()}
	switch {
	case errors.As(err, &no):
		r.Errno = int(no)
		var pe *fs.PathError
		var le *os.LinkError
		var se *os.SyscallError
		if err == error(no) || errors.As(err, &pe) || errors.As(err, &le) || errors.As(err, &se) {
			r.Text = no.Error()
		}
	case errors.Is(err, context.Canceled):
		r.Errno = int(syscall.ECANCELED)
	}
	if r.Text == "" {
		r.Text = "failed"
	}
	return r
}

// begun tells the host that a long call has begun, by a piece of nothing: the
// first thing that is charged to the window.
func (c *call) begun() error {
	c.out.Charge(guest.FrameCost)
	return c.send(guest.KindData, make([]byte, guest.HeaderSize))
}

// sendAll carries what f holds until its end: more than limit bytes are refused
// in the middle; 0 is no limit.
func (c *call) sendAll(f io.Reader, limit int64) error {
	buf := chunks.Get().(*[]byte)
	defer chunks.Put(buf)
	for total := int64(0); ; {
		n, err := f.Read((*buf)[guest.HeaderSize:])
		if total += int64(n); limit > 0 && total > limit {
			return syscall.EFBIG
		}
		if n > 0 {
			if err := c.put(guest.KindData, *buf, n); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// put sends the n bytes after the header room of buf as data, as the host takes
// them. It overwrites buf: each piece's header goes where the last one was.
func (c *call) put(kind byte, buf []byte, n int) error {
	for off := 0; off < n; {
		take, wait, _ := c.out.Use(n - off)
		if take == 0 {
			select {
			case <-wait:
			case <-c.ctx.Done():
				return c.ctx.Err()
			}
			continue
		}
		if err := c.send(kind, buf[off:off+guest.HeaderSize+take]); err != nil {
			return err
		}
		off += take
	}
	return nil
}

// chunks are the buffers of all copying: a header and a body.
var chunks = sync.Pool{New: func() any { b := make([]byte, guest.MaxChunk); return &b }}

// reader is the uploaded data. It fails if the host gives up.
func (c *call) reader() io.Reader { return &dataReader{c: c} }

type dataReader struct {
	c   *call
	cur guest.Piece
	b   []byte
}

func (r *dataReader) Read(p []byte) (int, error) {
	for len(r.b) == 0 {
		if err := r.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, r.b)
	r.b = r.b[n:]
	return n, nil
}

// WriteTo spares io.Copy its buffer.
func (r *dataReader) WriteTo(w io.Writer) (n int64, err error) {
	for {
		if len(r.b) > 0 {
			k, err := w.Write(r.b)
			n += int64(k)
			if r.b = r.b[k:]; err != nil {
				return n, err
			}
		}
		if err := r.next(); err != nil {
			if err == io.EOF {
				err = nil
			}
			return n, err
		}
	}
}

func (r *dataReader) next() error {
	r.c.credit(r.c.in.Done(r.cur))
	r.cur = guest.Piece{}
	for {
		ch, ok, ended := r.c.in.Take()
		if ok {
			r.cur, r.b = ch, ch.B
			return nil
		}
		if ended {
			return io.EOF
		}
		select {
		case <-r.c.in.Ready():
		case <-r.c.ctx.Done():
			return r.c.ctx.Err()
		}
	}
}

// A dataWriter sends what is written to it as data.
type dataWriter struct {
	c *call
}

func (w *dataWriter) Write(p []byte) (int, error) {
	buf := chunks.Get().(*[]byte)
	defer chunks.Put(buf)
	for n := 0; n < len(p); {
		k := copy((*buf)[guest.HeaderSize:], p[n:])
		if err := w.c.put(guest.KindData, *buf, k); err != nil {
			return n, err
		}
		n += k
	}
	return len(p), nil
}
