package server

import (
	"bufio"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// An answer is a response that remembers what was sent, and that does not wait
// for ever for a client that takes nothing.
type answer struct {
	http.ResponseWriter
	rc      *http.ResponseController
	timeout time.Duration // of one write
	status  int           // 0: nothing was sent
	written int64
	taken   atomic.Bool // the connection is somebody else's

	life context.Context // of the token; nil: none
	late int             // bytes written after its end
}

// lastWords is how much may be written when the token is no longer valid: an
// error, or the answer to what ended it.
const lastWords = 64 << 10

// hang makes the answer end when life does, wherever its handler stands.
func (a *answer) hang(life context.Context) (stop func() bool) {
	a.life = life
	return context.AfterFunc(life, func() {
		if a.taken.Load() {
			return // whoever has the connection sees to it
		}
		now := time.Now()
		a.rc.SetReadDeadline(now)
		a.rc.SetWriteDeadline(now)
	})
}

func newAnswer(w http.ResponseWriter, timeout time.Duration) *answer {
	return &answer{ResponseWriter: w, rc: http.NewResponseController(w), timeout: timeout}
}

func (a *answer) begun() bool { return a.status != 0 || a.taken.Load() }

func (a *answer) WriteHeader(status int) {
	if a.status == 0 && status >= 200 {
		a.status = status
	}
	a.ResponseWriter.WriteHeader(status)
}

func (a *answer) Write(p []byte) (int, error) {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	if a.life != nil && a.life.Err() != nil {
		if a.late += len(p); a.late > lastWords {
			return 0, context.Cause(a.life)
		}
	}
	a.rc.SetWriteDeadline(time.Now().Add(a.timeout))
	n, err := a.ResponseWriter.Write(p)
	a.written += int64(n)
	return n, err
}

// FlushError is what http.ResponseController's Flush calls.
func (a *answer) FlushError() error {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	a.rc.SetWriteDeadline(time.Now().Add(a.timeout))
	return a.rc.Flush()
}

func (a *answer) Flush() { a.FlushError() }

// Hijack gives the connection away, without deadlines.
func (a *answer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	nc, rw, err := a.rc.Hijack()
	if err == nil {
		a.taken.Store(true)
		if a.status == 0 {
			a.status = http.StatusSwitchingProtocols
		}
	}
	return nc, rw, err
}

// Unwrap lets http.ResponseController reach the rest.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// reply answers with JSON.
func reply(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // our own types
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(append(b, '\n'))
}
