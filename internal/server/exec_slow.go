package server

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// slowly runs f and answers with what it returns as JSON. What takes long
// begins its answer before the end: the header, and a blank now and then, which
// JSON does not mind and which keeps clients waiting that bound the silence. An
// answer that has begun is completed or cut, so an error then is a cut.
//
// f's context ends when the client is gone. It says when it is certain that the
// answer is no refusal.
func (s *server) slowly(w http.ResponseWriter, r *http.Request, f func(ctx context.Context, certain func()) (any, error)) error {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	d := &drip{w: w, cancel: cancel, certain: make(chan struct{}), stop: make(chan struct{})}
	var wg sync.WaitGroup
	wg.Go(func() { d.run(s.opt.Heartbeat) })
	halt := sync.OnceFunc(func() { close(d.stop); wg.Wait() })
	defer halt()
	v, err := f(ctx, sync.OnceFunc(func() { close(d.certain) }))
	halt()
	if d.err != nil {
		panic(http.ErrAbortHandler)
	}
	if err != nil {
		return err // the edge cuts, if d has begun
	}
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // our own types
	}
	b = append(b, '\n')
	if !d.begun {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	}
	if _, err := w.Write(b); err != nil {
		panic(http.ErrAbortHandler)
	}
	return nil
}

// A drip sends blanks.
type drip struct {
	w       http.ResponseWriter
	cancel  context.CancelFunc
	certain chan struct{}
	stop    chan struct{}
	begun   bool // with err: run's own until it has ended
	err     error
}

func (d *drip) run(every time.Duration) {
	t := time.NewTimer(every * 5 / 8)
	defer t.Stop()
	for {
		select {
		case <-d.stop:
			return
		case <-t.C:
		}
		select {
		case <-d.stop:
			return
		case <-d.certain:
		}
		if !d.begun {
			d.begun = true
			d.w.Header().Set("Content-Type", "application/json")
			d.w.WriteHeader(http.StatusOK)
		}
		if _, d.err = d.w.Write([]byte(" ")); d.err == nil {
			d.err = http.NewResponseController(d.w).Flush()
		}
		if d.err != nil {
			d.cancel()
			return
		}
		t.Reset(every)
	}
}
