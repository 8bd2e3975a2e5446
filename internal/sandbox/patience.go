package sandbox

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"sync"
	"syscall"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/guest"
)

// The guest may be slow, but not for ever: it is given Stall for every step,
// and for a whole transfer Stall and a second more for each slowest bytes. What
// it takes beyond that rate is added up over all transfers of a sandbox, so
// that many of them do not hold a run either.
const (
	slowest = 64 << 10               // bytes a second
	perCall = 100 * time.Millisecond // what a call may take beside its bytes
	maxLags = 3                      // times Stall, over all calls
)

// lag is how far a guest has fallen behind in all. Calls that are quick make it
// good, and a tenth of the time that passes does.
type lag struct {
	mu sync.Mutex
	d  time.Duration
	at time.Time // d is as of then
}

// add adds d and returns the sum.
func (l *lag) add(d time.Duration) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.d, l.at = max(0, max(0, l.d-now.Sub(l.at)/10)+d), now
	return l.d
}

// A patience is a context that ends when the guest takes too long. Its clock
// runs from the start, and only while the guest is waited for: pause stops it,
// resume starts it again.
type patience struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
	stall  time.Duration
	b      *box

	mu     sync.Mutex
	budget time.Duration // what the guest has left in all
	excess time.Duration // spent beyond what the bytes explain
	since  time.Time     // the clock runs from here; zero: it stands
}

var errStalled = errors.New("the guest did not answer in time")

// patience is for a transfer, or with once for an answer that comes within it.
func (e *Engine) patience(ctx context.Context, b *box, once time.Duration) *patience {
	w := &patience{stall: e.opt.Stall, budget: e.opt.Stall, b: b, excess: -perCall}
	if once > 0 {
		w.stall, w.budget = once, once
	}
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	if b.lag.add(0) >= maxLags*e.opt.Stall {
		w.budget = 0
	}
	step := w.stall
	select {
	case <-b.ready:
	default:
		step += e.opt.Boot
		w.budget += e.opt.Boot
		w.excess -= e.opt.Boot
	}
	w.since = time.Now()
	w.timer = time.AfterFunc(min(step, w.budget), func() { w.cancel(errStalled) })
	return w
}

// pause stops the clock. n bytes have moved meanwhile.
func (w *patience) pause(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer.Stop()
	w.book(n)
}

func (w *patience) book(n int) {
	earned := time.Duration(n) * time.Second / slowest
	w.budget += earned
	w.excess -= earned
	if !w.since.IsZero() {
		spent := time.Since(w.since)
		w.budget -= spent
		w.excess += spent
		w.since = time.Time{}
	}
}

// resume starts the clock for the next step. n bytes were brought.
func (w *patience) resume(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.book(n)
	w.since = time.Now()
	w.timer.Reset(min(w.stall, max(w.budget, 0)))
}

// stop ends it; what follows changes nothing.
func (w *patience) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer.Stop()
	w.book(0)
	if w.b.now() != Paused { // it could not have been quicker
		w.b.lag.add(w.excess)
	}
	w.excess = 0
	w.cancel(nil)
}

// explain turns an error of the guest into one for the caller.
func (w *patience) explain(step string, err error) error {
	var ge *guest.Error
	var ae *api.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &ae):
		return err
	case errors.Is(context.Cause(w.ctx), errStalled) && w.b.now() == Paused:
		return w.b.usable()
	case errors.Is(context.Cause(w.ctx), errStalled):
		return &api.Error{Code: api.CodeGuestSilent, Message: step + ": " + errStalled.Error()}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, fs.ErrNotExist):
		return &api.Error{Code: api.CodeFileNotFound, Message: step + ": does not exist"}
	case errors.Is(err, syscall.EEXIST), errors.Is(err, syscall.ENOTEMPTY):
		return &api.Error{Code: api.CodeFileExists, Message: step + ": something of that name is there already"}
	case errors.Is(err, guest.ErrBusy):
		return &api.Error{Code: api.CodeRate, Message: step + ": " + err.Error(), Hint: "wait", RetryAfter: retryRather}
	case errors.Is(err, guest.ErrClosed), errors.Is(err, guest.ErrGone):
		select {
		case <-w.b.gone:
			w.b.mu.Lock()
			defer w.b.mu.Unlock()
			return w.b.over()
		case <-time.After(50 * time.Millisecond): // it may just be going
		}
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.ELOOP), errors.Is(err, syscall.EROFS),
		errors.Is(err, syscall.EISDIR), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EINVAL), errors.Is(err, syscall.ENXIO):
		return &api.Error{Code: api.CodeFileRefused, Message: step + ": " + clip(err.Error(), 512)}
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EFBIG):
		return &api.Error{Code: api.CodeFileTooLarge, Message: step + ": " + clip(err.Error(), 512), Hint: "give the sandbox more room with --disk"}
	case errors.As(err, &ge):
		return &api.Error{Code: api.CodeFileRefused, Message: step + ": " + clip(err.Error(), 512)}
	}
	return &api.Error{Code: api.CodeGuestProtocol, Message: step + ": " + clip(err.Error(), 512)}
}

// watched is a reader whose every read shows that something moves. On a reader
// from the guest (c is set) the time inside Read counts against the guest; on
// the caller's own stream everything but that does.
type watched struct {
	r    io.Reader
	c    io.Closer
	w    *patience
	name string
}

func (r *watched) Read(p []byte) (int, error) {
	if r.c == nil {
		r.w.pause(0)
		n, err := r.r.Read(p)
		r.w.resume(n)
		return n, err
	}
	r.w.resume(0)
	n, err := r.r.Read(p)
	r.w.pause(n)
	if err != nil && err != io.EOF {
		err = r.w.explain("read "+r.name, err)
	}
	return n, err
}

func (r *watched) Close() error {
	r.w.stop()
	return r.c.Close()
}
