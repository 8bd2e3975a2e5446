package server

import (
	"bufio"
	"encoding/json"
	"net"
	"net/http"
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
	taken   bool // the connection is somebody else's
}

func newAnswer(w http.ResponseWriter, timeout time.Duration) *answer {
	return &answer{ResponseWriter: w, rc: http.NewResponseController(w), timeout: timeout}
}

func (a *answer) begun() bool { return a.status != 0 || a.taken }

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
		a.taken = true
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
