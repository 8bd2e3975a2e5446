package server

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/keep"
	"github.com/bermhq/berm/internal/sandbox"
)

// maxKept bounds what a plain answer holds of one stream, whatever the limit of
// the sandbox is: it is in this process's memory.
const maxKept = 16 << 20

func (s *server) execRoutes() map[string]handler {
	return map[string]handler{
		"exec":        s.exec,
		"exec.stream": s.execStream,
		"exec.ws":     s.execMux,
		"exec.pty":    s.execPTY,
		"exec.list":   s.execList,
		"exec.get":    s.execGet,
		"exec.kill":   s.execKill,
		"exec.output": s.execOutput,
		"exec.signal": s.execSignal,
		"exec.stdin":  s.execStdin,
	}
}

// exec runs a command to its end and answers with its output; or starts one
// that goes on; or leaves HTTP, if the client asks for it.
func (s *server) exec(w http.ResponseWriter, r *http.Request) error {
	up := r.Header.Get("Upgrade")
	if up != "" && !strings.EqualFold(up, api.ExecProtocol) {
		return &api.Error{Code: api.CodeBadRequest, Message: "exec does not know this upgrade", Hint: "send Upgrade: " + api.ExecProtocol + ", or none"}
	}
	req, err := execRequest(w, r)
	if err != nil {
		return err
	}
	switch {
	case up != "":
		return s.execUpgrade(w, r, req)
	case req.Detach:
		x, err := s.spawn(r.Context(), r.PathValue("id"), req)
		if err != nil {
			return err
		}
		w.Header().Set("X-Exec-Id", x.ExecID)
		reply(w, http.StatusAccepted, x)
		return nil
	case req.Stdin || req.TTY:
		return &api.Error{Code: api.CodeBadRequest, Message: "a plain exec has no open standard input and no terminal",
			Hint: "put the input into \"input\", or use detach, exec/pty or exec/ws"}
	}
	return s.execPlain(w, r, req)
}

func execRequest(w http.ResponseWriter, r *http.Request) (req api.ExecRequest, err error) {
	if err := decode(w, r, &req); err != nil {
		return req, err
	}
	if (req.Cmd == "") == (len(req.Args) == 0) {
		return req, &api.Error{Code: api.CodeBadRequest, Message: "exactly one of cmd and args is needed"}
	}
	if req.Stdin && req.Input != "" {
		return req, &api.Error{Code: api.CodeBadRequest, Message: "stdin and input exclude each other"}
	}
	return req, nil
}

func (s *server) execPlain(w http.ResponseWriter, r *http.Request, req api.ExecRequest) error {
	id := r.PathValue("id")
	sb, err := s.find(r.Context(), id)
	if err != nil {
		return err
	}
	limit := sb.Limits.OutputBytes
	if limit <= 0 || limit > maxKept {
		limit = maxKept
	}
	out := newKept(limit)
	return s.slowly(w, r, func(ctx context.Context) (any, error) {
		began := time.Now()
		var res api.ExecResult
		var err error
		if req.ExecID != "" {
			res, err = s.execOnce(ctx, id, req, out)
		} else {
			res, err = s.execHere(ctx, id, req, out)
		}
		if err != nil {
			return nil, err
		}
		return execAnswer(res, out, time.Since(began)), nil
	})
}

// execHere runs a command for as long as its caller is there.
func (s *server) execHere(ctx context.Context, id string, req api.ExecRequest, out *kept) (api.ExecResult, error) {
	streams := sandbox.Streams{Output: func(s sandbox.Stream, p []byte) error {
		out.write(int(s), p, 0)
		return nil
	}}
	if req.Input != "" {
		ctx, over := context.WithCancel(ctx)
		defer over()
		in := newInlet()
		go func() {
			in.write(ctx, []byte(req.Input))
			in.close(ctx)
		}()
		req.Stdin, req.Input = true, ""
		streams.Input, streams.Took = in.c, in.took
	}
	return s.e.Exec(ctx, id, req, streams)
}

// execOnce runs a command whose id its caller chose, or finds the one that has
// it: what was asked for twice runs once, and both get the output.
func (s *server) execOnce(ctx context.Context, id string, req api.ExecRequest, out *kept) (api.ExecResult, error) {
	leave := s.held.enter(s, ctx, id, req.ExecID)
	defer leave()
	x, err := s.spawn(ctx, id, req)
	if err != nil {
		return api.ExecResult{}, err
	}
	x, err = s.e.Follow(ctx, id, x.ExecID, 0, true, func(c api.Chunk) error {
		out.write(streamOf(c), c.Data, c.Gap)
		return nil
	})
	if err != nil {
		return api.ExecResult{}, err
	}
	return result(x)
}

// result is how an exec ended.
func result(x api.Exec) (api.ExecResult, error) {
	if x.Result == nil {
		return api.ExecResult{}, &api.Error{Code: api.CodeHostFailure, Message: "the end of the command is not known", Hint: "ask for it again: GET execs/" + x.ExecID}
	}
	return *x.Result, nil
}

func execAnswer(res api.ExecResult, out *kept, took time.Duration) api.ExecAnswer {
	a := api.ExecAnswer{ExecResult: res, TimedOut: res.Ending == api.EndTimeout, DurationMS: took.Milliseconds()}
	out.mu.Lock()
	defer out.mu.Unlock()
	var drop [2]int64
	a.Stdout, a.StdoutBase64, drop[0] = out.k[0].Result()
	a.Stderr, a.StderrBase64, drop[1] = out.k[1].Result()
	a.Truncated = api.Truncated{Stdout: drop[0] > 0, Stderr: drop[1] > 0, DroppedBytes: drop[0] + drop[1]}
	return a
}

// kept is the output of a command for its answer. The engine may still be
// writing when it has given the result.
type kept struct {
	mu sync.Mutex
	k  [2]*keep.Keeper
}

func newKept(limit int64) *kept {
	return &kept{k: [2]*keep.Keeper{keep.New(limit), keep.New(limit)}}
}

func (o *kept) write(stream int, p []byte, gap int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.k[stream].Skip(gap)
	o.k[stream].Write(p)
}

func streamOf(c api.Chunk) int {
	if c.Stream == "stderr" {
		return 1
	}
	return 0
}

// spawn starts a command that does not need its caller.
func (s *server) spawn(ctx context.Context, id string, req api.ExecRequest) (api.Exec, error) {
	req.Detach = true
	return s.e.Spawn(ctx, id, req)
}
