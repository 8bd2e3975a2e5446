package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

// slowly runs f and answers with the JSON that it returns. What takes long
// begins its answer before the end: the header, and a blank now and then, which
// JSON does not mind and which keeps clients waiting that bound the silence. An
// answer that has begun is completed or cut, so an error then is a cut.
//
// f's context ends when the client is gone. It says when it is certain that the
// answer is no refusal.
func (s *server) slowly(w http.ResponseWriter, r *http.Request, f func(ctx context.Context, certain func()) (*slowAnswer, error)) error {
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
	if !d.begun {
		w.Header().Set("Content-Type", "application/json")
	}
	// A client may be slow, but what waits for it is in memory.
	until := time.Now().Add(s.opt.WriteTimeout + time.Duration(v.size/slowest)*time.Second)
	if err := v.write(&brisk{w, until}); err != nil {
		panic(http.ErrAbortHandler)
	}
	return nil
}

// A slowAnswer is what slowly answers, and about how long it is.
type slowAnswer struct {
	size  int64
	write func(io.Writer) error
}

// slowest is how many bytes of an answer that is kept for it a client must take
// in a second.
const slowest = 64 << 10

// brisk writes as long as there is time.
type brisk struct {
	io.Writer
	until time.Time
}

var errTooSlow = errors.New("the client took its answer too slowly")

func (b *brisk) Write(p []byte) (int, error) {
	if time.Now().After(b.until) {
		return 0, errTooSlow
	}
	return b.Writer.Write(p)
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
