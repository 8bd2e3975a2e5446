package server

import (
	"bytes"
	"context"
	"errors"
	"math"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/bermhq/berm/api"
)

// A sandbox's log is the output of the commands whose output is kept: those
// that went on without their callers, and those whose callers can come back.
const (
	maxLog      = 4 << 20 // of one answer
	maxLogExecs = 64
	maxLogLine  = 8 << 10
	logPoll     = 500 * time.Millisecond // how soon the log of a new command joins
)

func (s *server) logsRoutes() map[string]handler {
	return map[string]handler{"sandbox.logs": s.logs}
}

func (s *server) logs(w http.ResponseWriter, r *http.Request) error {
	q, err := params(r, []string{"stream", "follow", "tail"}, nil)
	if err != nil {
		return err
	}
	only := q.Get("stream")
	switch only {
	case "", "both":
		only = ""
	case "stdout", "stderr":
	default:
		return &api.Error{Code: api.CodeBadRequest, Message: "stream: it is stdout, stderr or both"}
	}
	follow, err := truth(q, "follow")
	if err != nil {
		return err
	}
	tail, err := number(q, "tail", maxLog, 0, math.MaxInt64)
	if err != nil {
		return err
	}
	id := r.PathValue("id")
	execs, err := s.logged(r.Context(), id)
	if err != nil {
		return err
	}
	if follow {
		return s.logFollow(w, r, id, only)
	}
	var text last
	for _, x := range execs {
		var c cutter
		_, err := s.e.Follow(r.Context(), id, x.ExecID, 0, false, func(ch api.Chunk) error {
			if only == "" || ch.Stream == only {
				c.add(ch.Stream, ch.Data, func(_ string, l []byte) error { text.write(l); return nil })
			}
			return nil
		})
		if err != nil && !gone(err) {
			return err
		}
		c.end(func(_ string, l []byte) error { text.write(append(l, '\n')); return nil })
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Write(bytes.ToValidUTF8(text.tail(tail), []byte("\uFFFD")))
	return nil
}

// logged are the commands whose output makes the log, the oldest first.
func (s *server) logged(ctx context.Context, id string) ([]api.Exec, error) {
	l, err := s.e.Execs(ctx, id)
	if err != nil {
		return nil, err
	}
	l = slices.DeleteFunc(slices.Clone(l), func(x api.Exec) bool { return !x.Kept })
	l = l[:min(len(l), maxLogExecs)]
	slices.Reverse(l)
	return l, nil
}

// gone says that a command's output was dropped for newer ones meanwhile.
func gone(err error) bool {
	var ae *api.Error
	return errors.As(err, &ae) && ae.Code == api.CodeExecNotFound
}

// logFollow sends the log line by line, and goes on with what comes.
func (s *server) logFollow(w http.ResponseWriter, r *http.Request, id, only string) error {
	out, ctx := s.sse(w, r, 0)
	defer out.end()
	out.bare("open") // clients that know only lines must find no data in it
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	seen := map[string]bool{}
	slots := make(chan struct{}, maxLogExecs)
	t := time.NewTicker(logPoll)
	defer t.Stop()
	for {
		sb, err := s.find(ctx, id)
		var execs []api.Exec
		if err == nil {
			execs, err = s.logged(ctx, id)
		}
		if err != nil {
			cancel()
			wg.Wait()
			out.fail(err)
			return nil
		}
		next := map[string]bool{}
		for _, x := range execs {
			if next[x.ExecID] = true; seen[x.ExecID] {
				continue
			}
			if x.State == api.ExecEnded { // in their order, as far as there is one
				s.logOf(ctx, out, id, x.ExecID, only)
				continue
			}
			select {
			case slots <- struct{}{}:
			default:
				next[x.ExecID] = false // later
				continue
			}
			wg.Go(func() {
				defer func() { <-slots }()
				s.logOf(ctx, out, id, x.ExecID, only)
			})
		}
		seen = next
		if sb.State == "ended" || sb.State == "failed" {
			wg.Wait()
			return nil
		}
		select {
		case <-ctx.Done():
			wg.Wait()
			out.fail(context.Cause(ctx))
			return nil
		case <-t.C:
		}
	}
}

func (s *server) logOf(ctx context.Context, out *sse, id, exec, only string) {
	var c cutter
	line := func(stream string, l []byte) error {
		text, _ := text(l)
		return out.event(-1, "line", api.LogLine{Line: text, Stream: stream, ExecID: exec})
	}
	s.e.Follow(ctx, id, exec, 0, true, func(ch api.Chunk) error {
		if only != "" && ch.Stream != only {
			return nil
		}
		return c.add(ch.Stream, ch.Data, line)
	})
	c.end(line)
}

// A cutter cuts two streams into lines; a long line is cut where it gets long.
type cutter struct{ part [2][]byte }

func (c *cutter) add(stream string, p []byte, f func(stream string, line []byte) error) error {
	part := &c.part[streamOf(api.Chunk{Stream: stream})]
	for len(p) > 0 {
		n := bytes.IndexByte(p, '\n') + 1
		whole := n > 0
		if !whole {
			n = len(p)
		}
		if room := maxLogLine - len(*part); n > room {
			n, whole = room, true
		}
		*part = append(*part, p[:n]...)
		p = p[n:]
		if whole {
			if err := f(stream, *part); err != nil {
				return err
			}
			*part = (*part)[:0]
		}
	}
	return nil
}

// end gives out the lines that have no end.
func (c *cutter) end(f func(stream string, line []byte) error) {
	for i, stream := range []string{"stdout", "stderr"} {
		if len(c.part[i]) > 0 && f(stream, c.part[i]) != nil {
			return
		}
	}
}

// last keeps the end of what is written to it.
type last struct{ b []byte }

func (l *last) write(p []byte) {
	l.b = append(l.b, p...)
	if len(l.b) > 2*maxLog {
		l.b = append(l.b[:0], l.b[len(l.b)-maxLog:]...)
	}
}

// tail is the last n lines. A line that was cut at the bound is left out.
func (l *last) tail(n uint64) []byte {
	b := l.b
	if over := len(b) - maxLog; over > 0 {
		b = b[over:]
		b = b[bytes.IndexByte(b, '\n')+1:]
	}
	at := len(b)
	for ; n > 0 && at > 0; n-- {
		at = bytes.LastIndexByte(b[:at-1], '\n') + 1
	}
	return b[at:]
}
