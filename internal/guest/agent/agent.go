// Package agent is the server end of the guest protocol: it runs as the first
// process of a sandbox and does what the host asks over one byte stream. It
// lives where untrusted code lives, so it imports nothing of Berm but the
// protocol, and nothing outside relies on its being honest.
package agent

import (
	"context"
	"io"
	"sync"
	"syscall"

	"github.com/bermhq/berm/internal/guest"
)

// Version is what the agent calls itself in its greeting.
const Version = "1"

// A Host is the machine that an agent serves: a Linux guest, or something in
// memory for tests.
type Host interface {
	Boot() guest.Boot
	Files() Files
	// Start runs a process. An error that is a syscall.Errno, or wraps one,
	// means that nothing was executed.
	Start(s guest.Start) (Proc, error)
	// Kill ends everything that the named Start began, for the reason given (an
	// Exit's EndedBy). It returns when nothing of it is left, or says how many
	// resisted.
	Kill(ctx context.Context, id, why string) guest.KillReply
	// Changes writes what changed below dir as a layer, see guest.Client.Changes.
	Changes(ctx context.Context, dir string, dst io.Writer) error
	Usage() guest.Usage
	Control(id guest.Identity) error
}

// A Proc is one process that was started.
type Proc interface {
	PID() int
	Stdin() io.WriteCloser // nil if it has none
	// Output is one of the two outputs, nil if there is none. It ends soon
	// after the process has, even if a descendant still holds it open.
	Output(s guest.Stream) io.ReadCloser
	Wait() guest.Exit // returns when the process itself has ended
	// Seen brings caps and peaks as they grow, the latest only, until the
	// process has ended. It never holds up whoever looks.
	Seen() <-chan guest.Exit
	Signal(sig int) error
	Resize(rows, cols uint16) error
}

// A refusal says why nothing was executed.
type refusal struct {
	text  string
	errno syscall.Errno
}

func (r refusal) Error() string { return r.text + ": " + r.errno.Error() }
func (r refusal) Unwrap() error { return r.errno }

// A server speaks to whoever is attached. Only the newest session may write.
type server struct {
	*Agent
	rw   io.ReadWriteCloser
	wmu  sync.Mutex
	cur  *session       // under wmu
	work sync.WaitGroup // calls but for those that wait for a process
}

// Serve is New(h).Serve(ctx, rw).
func Serve(ctx context.Context, rw io.ReadWriteCloser, h Host) error {
	return New(h).Serve(ctx, rw)
}

// Serve answers the host at the other end of rw until the stream ends or ctx
// does, and what was begun is given up. What processes are running then is left
// to the machine, and to the next Serve. Garbage on the stream is skipped up to
// the next attachment.
func (a *Agent) Serve(ctx context.Context, rw io.ReadWriteCloser) error {
	srv := &server{Agent: a, rw: rw}
	defer context.AfterFunc(ctx, func() { rw.Close() })()
	fr := guest.NewFrameReader(rw)
	var s *session
	defer func() {
		s.close()
		srv.work.Wait()
	}()
	for {
		f, err := fr.Next()
		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err == io.EOF {
				return nil
			}
			return err
		}
		if f.Kind == guest.KindAttach {
			s.close()
			if s, err = srv.attach(ctx, f); err != nil {
				return err
			}
			continue
		}
		s.frame(f)
	}
}

// attach begins an epoch: it echoes the marker and greets.
func (srv *server) attach(ctx context.Context, f guest.Frame) (*session, error) {
	s := &session{srv: srv, epoch: f.Epoch, calls: make(map[uint32]*call)}
	s.ctx, s.cancel = context.WithCancel(ctx)
	hello := guest.Hello{Version: guest.Version, Agent: Version, Boot: srv.host.Boot()}
	b := guest.AppendMarker(nil, f.Epoch, f.Nonce)
	b = guest.AppendFrame(b, f.Epoch, 0, guest.KindHello, hello.Append(nil))
	srv.wmu.Lock()
	defer srv.wmu.Unlock()
	srv.cur = s
	_, err := srv.rw.Write(b)
	return s, err
}

// A session is one epoch.
type session struct {
	srv    *server
	epoch  uint32
	ctx    context.Context
	cancel context.CancelFunc
	mu     sync.Mutex
	calls  map[uint32]*call
}

// maxCalls bounds what a confused host can open.
const maxCalls = 1024

// close drops what belongs to the epoch. Processes go on, their output unheard.
func (s *session) close() {
	if s != nil {
		s.cancel()
	}
}

// frame takes one frame of the host. It never waits. What fits no call is
// ignored: the call may just have ended.
func (s *session) frame(f guest.Frame) {
	s.mu.Lock()
	c := s.calls[f.Stream]
	s.mu.Unlock()
	if f.Kind == guest.KindOpen || f.Kind == guest.KindOpenPart {
		s.open(c, f)
		return
	}
	if c == nil || c.out == nil { // not, or not wholly, asked for
		return
	}
	switch f.Kind {
	case guest.KindData:
		if ch, ok := c.in.Reserve(f.Kind, len(f.Body)); ok {
			copy(ch.B, f.Body)
			c.in.Put(ch)
		} else {
			c.stop() // rather than lose data in silence
		}
	case guest.KindEnd:
		c.in.End()
	case guest.KindCredit:
		if n, ok := guest.ParseCredit(f.Body); ok {
			c.out.Grant(n)
		}
	case guest.KindCancel:
		c.stop()
	case guest.KindNote:
		var n guest.Note
		if n.Decode(f.Body) {
			c.note(n)
		}
	}
}

// open gathers the pieces of a request and sets it going.
func (s *session) open(c *call, f guest.Frame) {
	if c == nil {
		c = &call{s: s, id: f.Stream, in: guest.NewInbox(guest.HostWindow)}
		s.mu.Lock()
		full := len(s.calls) >= maxCalls
		if !full {
			s.calls[f.Stream] = c
		}
		s.mu.Unlock()
		if full {
			c.reply(guest.Reply{Errno: int(syscall.EAGAIN), Text: "too many calls"})
			return
		}
	}
	if c.out != nil { // opened before
		return
	}
	if c.req = append(c.req, f.Body...); len(c.req) > guest.MaxOpen {
		c.reply(guest.Reply{Errno: int(syscall.E2BIG), Text: "request too long"})
		return
	}
	if f.Kind == guest.KindOpenPart {
		return
	}
	var o guest.Open
	if !o.Decode(c.req) {
		c.reply(guest.Reply{Errno: int(syscall.EBADMSG), Text: "malformed request"})
		return
	}
	c.out = guest.NewWindow(o.Window)
	c.ctx, c.stop = context.WithCancel(s.ctx)
	if o.Method == guest.MethodAttach {
		c.join(o.Body)
	}
	if o.Method != guest.MethodStart {
		s.srv.work.Go(func() { c.run(o) })
		return
	}
	var st guest.Start
	if !st.Decode(o.Body) {
		c.reply(guest.Reply{Errno: int(syscall.EBADMSG), Text: "malformed request"})
		return
	}
	j := s.srv.begin(st)
	go func() {
		defer c.stop()
		c.reply(c.start(st, j))
	}()
}
