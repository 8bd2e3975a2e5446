package keeper

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// maxInFlight bounds the requests that are worked on at one time. The next one
// is not read before.
const maxInFlight = 64

// A link is the connection of one engine.
type link struct {
	conn     *net.UnixConn
	patience time.Duration // how long an engine may leave an answer unread; 0: for ever
	gateway  string        // runtime of the gateways that it serves; "": that of each sandbox
	perSec   int           // requests that it may make in a second; 0: any number

	sendMu sync.Mutex // one message at a time on conn
}

// post sends to the engine. That it is gone is noticed by serve.
func (l *link) post(v reply, files ...*os.File) error {
	l.sendMu.Lock()
	defer l.sendMu.Unlock()
	if l.patience > 0 {
		l.conn.SetWriteDeadline(time.Now().Add(l.patience))
	}
	err := send(l.conn, v, files...)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		l.conn.Close() // it reads nothing: whatever it was told since is lost
	}
	return err
}

// serve answers an engine until it goes away, or does what no engine does.
func (k *Keeper) serve(l *link) error {
	buf := make([]byte, maxMessage)
	slots := make(chan struct{}, maxInFlight)
	var second time.Time
	count := 0
	for {
		slots <- struct{}{}
		var q request
		files, err := receive(l.conn, buf, &q)
		if err != nil {
			if errors.Is(err, net.ErrClosed) || errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("engine: %w", err)
		}
		if now := time.Now(); now.Sub(second) > time.Second {
			second, count = now, 0
		}
		if count++; l.perSec > 0 && count > l.perSec {
			closeAll(files)
			return fmt.Errorf("engine: more than %d requests in a second", l.perSec)
		}
		// A launch is known before the next message is read, so that a stop
		// that comes right behind it finds it.
		var s *sandbox
		if q.Op == "launch" && q.Launch != nil {
			s, err = k.admit(*q.Launch, l)
		}
		go func() {
			defer func() { <-slots }()
			k.handle(l, q, s, err, files)
		}()
	}
}

func (k *Keeper) handle(l *link, q request, s *sandbox, err error, files []*os.File) {
	defer closeAll(files)
	var r reply
	var out []*os.File
	if err == nil {
		r, out, err = k.do(q, s, files)
	}
	if err != nil {
		r = reply{Err: refusal(err)}
	}
	r.Seq = q.Seq
	err = l.post(r, out...)
	if s != nil {
		s.told(err == nil && r.Err == nil)
	}
	if err != nil && r.Err == nil {
		l.post(reply{Seq: q.Seq, Err: &Refusal{Code: "host.failure", Message: "answer: " + err.Error(), Hint: "berm doctor"}})
	}
	closeAll(out)
	if q.Op == "shutdown" && k.mode == ModeLinger {
		k.mu.Lock()
		k.over = true // only now, so that it is answered
		k.stirred()
		k.mu.Unlock()
	}
}

// told says whether an engine knows that s is up. What none hears of must not
// stand.
func (s *sandbox) told(ok bool) {
	s.mu.Lock()
	s.up = ok
	if s.telling != nil {
		close(s.telling)
	}
	s.mu.Unlock()
	if !ok {
		s.end(CauseStopped)
	}
}

func refusal(err error) *Refusal {
	var r *Refusal
	if errors.As(err, &r) {
		return r
	}
	return &Refusal{Code: "host.failure", Message: err.Error(), Hint: "berm doctor"}
}
