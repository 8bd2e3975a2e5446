package template

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/jail"
)

// Bounds on the calls of one Client that run at a time. Those that take what a
// stranger sends, or give him something, have a bound of their own: he may take
// his time, and nobody's sandbox waits for him.
const (
	maxCalls = 64
	maxLong  = 32
)

// begun is what a Client hears instead of a number when whoever served it has
// ended, and somebody else goes on.
const begun = 0

// Begin tells the Client on the other end of conn that a Serve on this end has
// ended before its time, and that the next one comes.
func Begin(conn *net.UnixConn) error {
	_, err := conn.Write([]byte{begun})
	return err
}

// Serve answers what Clients ask on the other end of conn, until it ends or ctx
// is over; then every call ends, and it returns when they have.
func Serve(ctx context.Context, conn *net.UnixConn, s Service) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	var calls sync.WaitGroup
	defer calls.Wait()
	defer cancel() // before the wait
	room := rooms{make(chan struct{}, maxCalls), make(chan struct{}, maxLong)}
	var b [16]byte
	for {
		n, f, err := hearFile(conn, b[:])
		if f != nil {
			f.Close()
		}
		if err != nil || n != 1 {
			if errors.Is(err, io.EOF) || ctx.Err() != nil {
				return nil
			}
			return err
		}
		ours, theirs, err := jail.Pair(unix.SOCK_SEQPACKET)
		if err != nil {
			return err
		}
		err = sendFile(conn, b[:1], theirs) // the number it was asked under
		theirs.Close()
		if err != nil {
			ours.Close()
			return err
		}
		c, err := jail.Conn(ours)
		if err != nil {
			return err
		}
		calls.Go(func() {
			defer c.Close()
			serveCall(ctx, c, s, room)
		})
	}
}

// rooms are the places of calls that run.
type rooms struct{ short, long chan struct{} }

// enter waits for a place for a call; false: there is nobody left to wait.
func (r rooms) enter(ctx context.Context, call string) (leave func(), ok bool) {
	room := r.short
	if call == "do" || call == "export" {
		room = r.long
	}
	select {
	case room <- struct{}{}:
		return func() { <-room }, true
	case <-ctx.Done():
		return nil, false
	}
}

// serveCall answers one call.
func serveCall(ctx context.Context, c *net.UnixConn, s Service, room rooms) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { c.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	b := make([]byte, maxRequest+1)
	n, f, err := hearFile(c, b)
	if f != nil {
		defer f.Close()
	}
	var r request
	if err != nil || json.Unmarshal(b[:n], &r) != nil {
		return
	}
	if r.Call == "scratch" {
		sendScratch(ctx, c, s)
		return
	}
	go func() { // the end of the socket is the end of the call
		c.Read(make([]byte, 1))
		cancel()
	}()
	leave, ok := room.enter(ctx, r.Call)
	if !ok {
		return
	}
	defer leave()
	if f != nil { // a pipe that nobody reads or writes any more must not hold us
		if f, err = pollable(f); err != nil {
			return
		}
		defer f.Close()
		stop := context.AfterFunc(ctx, func() { f.Close() })
		defer stop()
	}
	a := r.answer(ctx, s, f, func(p api.TemplateProgress) {
		if b, err := json.Marshal(p); err == nil && len(b) < maxPart {
			c.Write(append([]byte{msgProgress}, b...))
		}
	})
	sendAnswer(c, a)
}

// pollable is a file whose Close ends a Read or Write that waits.
func pollable(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), "received"), nil
}

func (r request) answer(ctx context.Context, s Service, f *os.File, progress func(api.TemplateProgress)) (a answer) {
	var err error
	switch r.Call {
	case "resolve":
		root, e := s.Resolve(ctx, r.Name)
		a.Root, err = &root, e
	case "list":
		a.Templates, err = s.List(ctx)
	case "get":
		t, e := s.Get(ctx, r.Name)
		a.Template, err = &t, e
	case "remove":
		err = s.Remove(ctx, r.Name)
	case "cached":
		root, ok := s.Cached(ctx, r.Name)
		a.Root, a.OK = &root, ok
	case "do":
		if r.Job == nil || r.In != (f != nil) {
			err = errors.New("half a request")
			break
		}
		var in io.Reader
		if f != nil {
			in = &parts{r: bufio.NewReaderSize(f, 1<<20)}
		}
		made, e := s.Do(ctx, *r.Job, in, progress)
		a.Made, err = &made, e
	case "export":
		if f == nil {
			err = errors.New("half a request")
			break
		}
		err = s.Export(ctx, r.Name, r.Format, f)
	default:
		err = errors.New("an unknown call")
	}
	if err == nil {
		return a
	}
	a = answer{}
	switch {
	case errors.As(err, &a.Error):
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		a.Cancelled = true
	default:
		a.Error = &api.Error{Code: api.CodeHostFailure, Message: err.Error()}
	}
	return a
}

// writePart writes bytes with their length before them; none is the end.
func writePart(w io.Writer, b []byte) error {
	_, err := w.Write(append(binary.LittleEndian.AppendUint32(nil, uint32(len(b))), b...))
	return err
}

// parts reads what writePart wrote.
type parts struct {
	r    io.Reader
	left uint32
	end  bool
}

func (p *parts) Read(b []byte) (int, error) {
	if p.end {
		return 0, io.EOF
	}
	if p.left == 0 {
		var head [4]byte
		if _, err := io.ReadFull(p.r, head[:]); err != nil {
			return 0, errors.New("it was cut off")
		}
		if p.left = binary.LittleEndian.Uint32(head[:]); p.left == 0 {
			p.end = true
			return 0, io.EOF
		}
	}
	n, err := p.r.Read(b[:min(len(b), int(min(p.left, 1<<20)))])
	p.left -= uint32(n)
	if err == io.EOF {
		err = errors.New("it was cut off")
	}
	return n, err
}
