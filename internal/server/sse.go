package server

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/bermhq/berm/api"
)

// An sse is one answer of server-sent events. A comment goes out whenever
// nothing else did for a while, and a client that takes nothing ends it.
//
// What it writes is ASCII: clients split the decoded text at line ends of
// Unicode that the format does not know.
type sse struct {
	w      http.ResponseWriter
	rc     *http.ResponseController
	ctx    context.Context // the handler's
	cancel context.CancelCauseFunc

	mu   sync.Mutex
	buf  []byte
	news bool // something was sent since the last beat
	err  error

	stop chan struct{}
	over chan struct{}
}

// stopAfter is how long what has an end of its own may go on when the daemon
// is about to stop.
const stopAfter = 8 * time.Second

var errStopping = &api.Error{Code: api.CodeShuttingDown, Message: "the daemon is about to stop", Hint: "connect again"}

// sse starts an answer of events. The context ends when the client is gone, and
// a while after the daemon was told to stop; end must be called.
func (s *server) sse(w http.ResponseWriter, r *http.Request, while time.Duration) (*sse, context.Context) {
	ctx, cancel := s.untilStop(r.Context(), while)
	return s.sseOn(ctx, cancel, w), ctx
}

// sseOn does the same with a context of untilStop.
func (s *server) sseOn(ctx context.Context, cancel context.CancelCauseFunc, w http.ResponseWriter) *sse {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // proxies in between pass it on at once
	x := &sse{w: w, rc: http.NewResponseController(w), ctx: ctx, cancel: cancel, stop: make(chan struct{}), over: make(chan struct{})}
	w.WriteHeader(http.StatusOK)
	if x.err = x.rc.Flush(); x.err != nil {
		cancel(x.err)
	}
	go x.beat(s.opt.Heartbeat)
	return x
}

// untilStop returns a context that ends with ctx, or a while after the daemon
// was told to stop.
func (s *server) untilStop(ctx context.Context, while time.Duration) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	unhook := context.AfterFunc(s.stopping, func() {
		t := time.NewTimer(while)
		defer t.Stop()
		select {
		case <-ctx.Done():
		case <-t.C:
			cancel(errStopping)
		}
	})
	context.AfterFunc(ctx, func() { unhook() })
	return ctx, cancel
}

// end stops the heartbeat. The writer is the caller's again.
func (x *sse) end() {
	close(x.stop)
	<-x.over
	x.cancel(nil)
}

func (x *sse) beat(every time.Duration) {
	defer close(x.over)
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-x.stop:
			return
		case <-t.C:
			x.mu.Lock()
			if !x.news {
				x.put([]byte(":\n\n"))
			}
			x.news = false
			x.mu.Unlock()
		}
	}
}

// put writes and flushes; x.mu is held.
func (x *sse) put(p []byte) error {
	if x.err != nil {
		return x.err
	}
	x.news = true
	if _, x.err = x.w.Write(p); x.err == nil {
		x.err = x.rc.Flush()
	}
	if x.err != nil {
		x.cancel(x.err)
	}
	return x.err
}

// comment sends a line that clients skip.
func (x *sse) comment(text string) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.put([]byte(": " + text + "\n\n"))
}

// line sends a line of text as data, without a name.
func (x *sse) line(text string) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.put([]byte("data: " + text + "\n\n"))
}

// bare sends an event that has no data.
func (x *sse) bare(name string) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.put([]byte("event: " + name + "\n\n"))
}

// event sends an event with v as JSON; id below 0 is none.
func (x *sse) event(id int64, name string, v any) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	b := append(x.buf[:0], "event: "...)
	b = append(b, name...)
	if id >= 0 {
		b = strconv.AppendInt(append(b, "\nid: "...), id, 10)
	}
	b = append(b, "\ndata: "...)
	b = appendASCII(b, v)
	x.buf = append(b, "\n\n"...)
	return x.put(x.buf)
}

// fail sends the last event of a stream that went wrong.
func (x *sse) fail(err error) error {
	if x.ctx.Err() != nil {
		err = context.Cause(x.ctx)
	}
	e := *public(err)
	e.Message = calm(e.Message)
	return x.event(-1, "error", e)
}
