package server

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/sandbox"
)

const (
	maxInFlight = 16  // commands of one connection
	maxMuxID    = 128 // bytes of a client's name for one
)

// A muxRequest is what a client sends on exec/ws: a command under a name of its
// own, or the end of one.
type muxRequest struct {
	ID     string `json:"id"`
	Cancel bool   `json:"cancel,omitempty"`
	api.ExecRequest
}

// parseMux reads one message. It returns the id even of a request that it
// refuses, as far as there is one.
func parseMux(p []byte) (req muxRequest, err error) {
	if err := decodeBytes(p, &req); err != nil {
		if len(req.ID) > maxMuxID {
			req.ID = ""
		}
		return req, err
	}
	bad := func(text string) (muxRequest, error) {
		return req, &api.Error{Code: api.CodeBadRequest, Message: text}
	}
	switch {
	case req.ID == "" || len(req.ID) > maxMuxID:
		req.ID = ""
		return bad("id: a name of 1 to 128 bytes is needed")
	case req.Cancel:
		return req, nil
	case (req.Cmd == "") == (len(req.Args) == 0):
		return bad("exactly one of cmd and args is needed")
	case req.Stdin || req.TTY || req.Detach || req.ExecID != "":
		return bad("stdin, tty, detach and exec_id are not for this route")
	}
	return req, nil
}

// What the server sends.
type (
	muxOutput struct {
		ID     string `json:"id"`
		Stream string `json:"stream"`
		Data   string `json:"data"`
		Base64 string `json:"data_base64,omitempty"`
	}
	muxExit struct {
		ID   string `json:"id"`
		Exit int    `json:"exit"`
		api.ExecResult
		TimedOut   bool  `json:"timed_out"`
		DurationMS int64 `json:"duration_ms"`
	}
	muxError struct {
		ID    string `json:"id"`
		Error string `json:"error"`
		Code  string `json:"code"`
		Hint  string `json:"hint,omitempty"`
	}
)

// execMux runs many commands over one WebSocket. They end with it.
func (s *server) execMux(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	if _, err := s.find(r.Context(), id); err != nil {
		return err
	}
	ws, err := s.webSocket(w, r, nil)
	if ws == nil {
		return err
	}
	m := &mux{s: s, ws: ws, sandbox: id, running: map[string]context.CancelFunc{}}
	defer func() {
		ws.cancel(nil)
		m.wg.Wait()
		ws.end()
	}()
	for {
		_, p, err := ws.read()
		if err != nil {
			return nil
		}
		req, err := parseMux(p)
		if err == nil && req.Cancel {
			m.stop(req.ID)
			continue
		}
		if err == nil {
			err = m.start(req)
		}
		if err != nil && m.fail(req.ID, err) != nil {
			return nil
		}
	}
}

// A mux is one connection with its commands.
type mux struct {
	s       *server
	ws      *wsConn
	sandbox string
	wg      sync.WaitGroup

	mu      sync.Mutex
	running map[string]context.CancelFunc
}

func (m *mux) start(req muxRequest) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.running[req.ID] != nil {
		return &api.Error{Code: api.CodeExecConflict, Message: "a command of this id still runs", Hint: "use another id"}
	}
	if len(m.running) >= maxInFlight {
		return &api.Error{Code: api.CodeRate, Message: "too many commands run on this connection", Hint: "wait for one to end"}
	}
	ctx, cancel := context.WithCancel(m.ws.ctx)
	m.running[req.ID] = cancel
	m.wg.Go(func() { m.run(ctx, req) })
	return nil
}

// stop ends a command. One that is over, or was never there, needs no end.
func (m *mux) stop(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if cancel := m.running[id]; cancel != nil {
		cancel()
	}
}

func (m *mux) run(ctx context.Context, req muxRequest) {
	began := time.Now()
	out := newSpill(func(stream string, p outPiece) error {
		return m.ws.json(muxOutput{ID: req.ID, Stream: stream, Data: p.Chunk, Base64: p.Base64})
	})
	res, err := m.s.e.Exec(ctx, m.sandbox, req.ExecRequest, sandbox.Streams{Output: out.write})
	out.end()

	m.mu.Lock()
	m.running[req.ID]() // frees what ctx holds
	delete(m.running, req.ID)
	m.mu.Unlock()
	if err != nil {
		m.fail(req.ID, err)
		return
	}
	m.ws.json(muxExit{ID: req.ID, Exit: res.ExitCode, ExecResult: res,
		TimedOut: res.Ending == api.EndTimeout, DurationMS: time.Since(began).Milliseconds()})
}

func (m *mux) fail(id string, err error) error {
	e := public(err)
	return m.ws.json(muxError{ID: id, Error: calm(e.Message), Code: e.Code, Hint: e.Hint})
}

// A spill turns the output of an exec into pieces of text. The engine may still
// be in write when the exec is over.
type spill struct {
	mu   sync.Mutex
	t    texter
	at   int64 // of the next byte
	gap  int64 // not told yet
	over bool
}

func newSpill(emit func(string, outPiece) error) *spill { return &spill{t: texter{emit: emit}} }

var errOver = errors.New("the command is over")

func (o *spill) write(s sandbox.Stream, p []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.over {
		return errOver
	}
	c := api.Chunk{Stream: "stdout", Offset: o.at, Data: p}
	if s == sandbox.Stderr {
		c.Stream = "stderr"
	}
	o.at += int64(len(p))
	c.Gap, o.gap = o.gap, 0
	return o.t.chunk(c)
}

func (o *spill) lost(_ sandbox.Stream, n int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.at += n
	o.gap += n
}

func (o *spill) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.over = true
	o.t.end()
}
