package server

import (
	"math"
	"net/http"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/sandbox"
)

// An execEnd is the last event of a stream: PandaStack's names, and ours.
type execEnd struct {
	Error string `json:"error,omitempty"` // in an error event only
	api.ExecResult
	TimedOut   bool  `json:"timed_out"`
	DurationMS int64 `json:"duration_ms"`
}

// execStream runs a command and sends its output as it comes. The command
// outlives a broken stream for a while, so that its caller can come back to it:
// by execOutput, or by asking for the same with the same exec_id.
func (s *server) execStream(w http.ResponseWriter, r *http.Request) error {
	req, err := execRequest(w, r)
	if err != nil {
		return err
	}
	id := r.PathValue("id")
	if req.Detach {
		x, err := s.e.Spawn(r.Context(), id, req)
		if err != nil {
			return err
		}
		return s.follow(w, r, id, x.ExecID, 0, true)
	}
	if req.ExecID == "" {
		req.ExecID = api.NewID(api.KindExec)
	}
	if api.ValidID(req.ExecID) { // what is none is refused, and could break the answer
		w.Header().Set("X-Exec-Id", req.ExecID)
	}
	began := time.Now()
	ctx, cancel := s.untilStop(r.Context(), stopAfter)
	defer cancel(nil)
	var out *sse // from the start on
	text := newSpill(func(stream string, p outPiece) error { return out.event(-1, stream, p) })
	res, err := s.e.Exec(ctx, id, req, sandbox.Streams{
		Started: func() {
			out = s.sseOn(ctx, cancel, w)
			out.comment("exec_id=" + req.ExecID)
		},
		Output: text.write,
		Lost:   text.lost,
	})
	if out == nil {
		return err
	}
	defer out.end()
	text.end()
	if err != nil {
		out.fail(err)
		return nil
	}
	if res.NotStarted != "" {
		out.event(-1, "stderr", outPiece{Chunk: notStarted(res)})
	}
	end := execEnd{ExecResult: res, TimedOut: res.Ending == api.EndTimeout, DurationMS: time.Since(began).Milliseconds()}
	if end.TimedOut {
		end.Error = "command timeout" // the word that PandaStack's clients look for
		out.event(-1, "error", end)
	} else {
		out.event(-1, "exit", end)
	}
	return nil
}

// execOutput sends the kept output of a detached command from an offset.
func (s *server) execOutput(w http.ResponseWriter, r *http.Request) error {
	q, err := params(r, []string{"offset", "follow"}, nil)
	if err != nil {
		return err
	}
	if v := r.Header.Get("Last-Event-ID"); v != "" { // a browser's own way to come back
		q.Set("offset", v)
	}
	offset, err := number(q, "offset", 0, 0, math.MaxInt64)
	if err != nil {
		return err
	}
	follow, err := truth(q, "follow")
	if err != nil {
		return err
	}
	id, exec := r.PathValue("id"), r.PathValue("exec")
	if _, err := s.e.GetExec(r.Context(), id, exec); err != nil {
		return err
	}
	return s.follow(w, r, id, exec, int64(offset), follow)
}

func (s *server) follow(w http.ResponseWriter, r *http.Request, id, exec string, offset int64, follow bool) error {
	w.Header().Set("X-Exec-Id", exec)
	out, ctx := s.sse(w, r, stopAfter)
	defer out.end()
	x, err := s.e.Follow(ctx, id, exec, offset, follow, func(c api.Chunk) error {
		for first := true; first || len(c.Data) > 0; first = false {
			n := min(len(c.Data), maxPiece*3/4)
			p := c
			p.Data = c.Data[:n]
			if err := out.event(c.Offset+int64(n), "chunk", p); err != nil {
				return err
			}
			c.Data, c.Offset, c.Gap = c.Data[n:], c.Offset+int64(n), 0
		}
		return nil
	})
	if err != nil {
		out.fail(err)
	} else {
		out.event(-1, "exit", x) // its state says whether it has ended
	}
	return nil
}
