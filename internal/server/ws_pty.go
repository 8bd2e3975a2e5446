package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/sandbox"
)

// login is what a terminal runs if its client names nothing.
const login = "command -v bash >/dev/null 2>&1 && exec bash -l; exec sh -l"

// A ptyRequest is a text message of the client; binary ones are what was typed.
type ptyRequest struct {
	Resize *struct {
		Rows uint16 `json:"rows"`
		Cols uint16 `json:"cols"`
	} `json:"resize,omitempty"`
	Stdin string `json:"stdin,omitempty"`
}

type ptyEnd struct {
	Exit int `json:"exit"`
	api.ExecResult
	TimedOut   bool  `json:"timed_out"`
	DurationMS int64 `json:"duration_ms"`
}

// execPTY runs a command on a terminal over a WebSocket. It ends with it.
func (s *server) execPTY(w http.ResponseWriter, r *http.Request) error {
	req, err := ptyExec(r)
	if err != nil {
		return err
	}
	id := r.PathValue("id")
	if _, err := s.find(r.Context(), id); err != nil {
		return err
	}
	in := newInlet()
	ws, err := s.webSocket(w, r, in.full)
	if ws == nil {
		return err
	}
	began := time.Now()
	left := make(chan struct{})
	go func() {
		defer close(left)
		defer ws.cancel(nil)
		ws.typed(in)
	}()
	res, err := s.e.Exec(ws.ctx, id, req, sandbox.Streams{
		Output: func(_ sandbox.Stream, p []byte) error { return ws.binary(p) },
		Input:  in.c,
		Took:   in.took,
	})
	if err != nil {
		e := public(err)
		ws.json(muxError{Error: calm(e.Message), Code: e.Code, Hint: e.Hint})
	} else {
		ws.json(ptyEnd{Exit: res.ExitCode, ExecResult: res, TimedOut: res.Ending == api.EndTimeout, DurationMS: time.Since(began).Milliseconds()})
	}
	ws.end()
	<-left
	return nil
}

// typed passes on what the client types, until it leaves or breaks the rules.
func (x *wsConn) typed(in *inlet) {
	for {
		binary, p, err := x.read()
		if err != nil {
			return
		}
		if binary {
			if in.write(x.ctx, p) != nil {
				return
			}
			continue
		}
		q, ok := parsePTY(p)
		if !ok {
			return
		}
		if q.Resize != nil {
			err = in.send(x.ctx, sandbox.Input{Rows: q.Resize.Rows, Cols: q.Resize.Cols})
		}
		if err == nil && q.Stdin != "" {
			err = in.write(x.ctx, []byte(q.Stdin))
		}
		if err != nil {
			return
		}
	}
}

func parsePTY(p []byte) (q ptyRequest, ok bool) {
	if err := json.Unmarshal(p, &q); err != nil {
		return q, false
	}
	return q, q.Resize == nil || q.Resize.Rows > 0 && q.Resize.Cols > 0
}

// ptyExec is the command that a client asks for in the address.
func ptyExec(r *http.Request) (req api.ExecRequest, err error) {
	cmd, err := query(r, "cmd", "rows", "cols", "cwd", "user", "session", "timeout_seconds")
	if err != nil {
		return req, err
	}
	if cmd == "" {
		cmd = login
	}
	q := r.URL.Query()
	req = api.ExecRequest{Cmd: cmd, Dir: q.Get("cwd"), User: q.Get("user"), Session: q.Get("session"), TTY: true, Rows: 24, Cols: 80}
	for name, to := range map[string]*uint16{"rows": &req.Rows, "cols": &req.Cols} {
		if v := q.Get(name); v != "" {
			n, err := strconv.ParseUint(v, 10, 16)
			if err != nil || n == 0 {
				return req, &api.Error{Code: api.CodeBadRequest, Message: fmt.Sprintf("%s: %.20q is no size of a terminal", name, v)}
			}
			*to = uint16(n)
		}
	}
	if v := q.Get("timeout_seconds"); v != "" {
		if req.TimeoutSeconds, err = strconv.ParseFloat(v, 64); err != nil {
			return req, &api.Error{Code: api.CodeBadRequest, Message: fmt.Sprintf("timeout_seconds: %.20q is no time", v)}
		}
	}
	return req, nil
}
