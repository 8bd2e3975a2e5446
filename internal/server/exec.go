package server

import (
	"context"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/sandbox"
)

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
		x, err := s.e.Spawn(r.Context(), r.PathValue("id"), req)
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
		return req, &api.Error{Code: api.CodeBadRequest, Message: "exactly one of cmd and args is needed",
			Hint: `"cmd": "echo $HOME" for a shell, or "args": ["echo", "hi"] without one`}
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
	out, err := newKept(sb.Limits.OutputBytes, &s.pool, sandbox.CallerOf(r.Context()).Tenant)
	if err != nil {
		return err
	}
	defer out.free()
	return s.slowly(w, r, func(ctx context.Context, started func()) (*slowAnswer, error) {
		began := time.Now()
		res, err := s.e.Exec(ctx, id, req, sandbox.Streams{
			Started: started,
			Output:  out.write,
			Lost:    out.lost,
		})
		if err != nil {
			return nil, err
		}
		if res.NotStarted != "" {
			out.write(sandbox.Stderr, []byte(notStarted(res)))
		}
		took := time.Since(began)
		return &slowAnswer{out.size(), func(w io.Writer) error { return out.answer(w, res, took) }}, nil
	})
}

// notStarted is for people who see the streams only.
func notStarted(res api.ExecResult) string { return "berm: not started: " + res.NotStarted + "\n" }

func streamOf(c api.Chunk) int {
	if c.Stream == "stderr" {
		return 1
	}
	return 0
}
