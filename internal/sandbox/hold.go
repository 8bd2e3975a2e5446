package sandbox

import (
	"context"
	"errors"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/backend"
)

// The host ends a sandbox by its ttl and by its idle timeout, should this
// process not be there: a little later than this process would.
const (
	ttlSlack  = time.Second
	idleSlack = time.Second
	holdAfter = 250 * time.Millisecond // the host hears this much later that a sandbox was used, or is idle
	holdAgain = 5 * time.Second        // after a move that failed
)

// stir notes that b was used, or is idle again. It never waits.
func (b *box) stir() {
	select {
	case b.stirred <- struct{}{}:
	default:
	}
}

// ttlEnd is when the host ends b by its ttl.
func (b *box) ttlEnd() time.Time { return b.created.Add(b.ttl + ttlSlack) }

// heldUntil is the deadline that the host is to have: that of the ttl while b is
// in use, else whichever is first. The zero time is none; b.mu is held.
func (b *box) heldUntil() (at time.Time) {
	if b.ttl > 0 {
		at = b.ttlEnd()
	}
	if b.idle > 0 && !b.persistent && b.execs == 0 && b.calls == 0 {
		if t := b.touched.Add(b.idle + idleSlack); at.IsZero() || t.Before(at) {
			at = t
		}
	}
	return at
}

// isIdleEnd says whether a deadline that the host had was that of the idle
// timeout. The host counts in milliseconds. b.mu is held.
func (b *box) isIdleEnd(at time.Time) bool {
	if at.IsZero() || b.idle <= 0 || b.persistent {
		return false
	}
	return b.ttl <= 0 || at.Add(time.Millisecond).Before(b.ttlEnd())
}

// byDeadline is the ending of a sandbox that the host ended at its deadline;
// b.mu is held.
func (b *box) byDeadline(x backend.Exit) string {
	if b.isIdleEnd(x.Deadline) {
		return api.EndIdle
	}
	return api.EndTTL
}

// idleAsHeld takes over the idle clock from the host: what it holds is the truth
// of when b was last used. One that was in use until its engine died is used
// now.
func (b *box) idleAsHeld(deadline time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.isIdleEnd(deadline) {
		return
	}
	if t := deadline.Add(-b.idle - idleSlack); t.Before(b.touched) {
		b.touched = later(t, b.created)
	}
}

// holdLast has the host hold what ends b by time.
func (e *Engine) holdLast(ctx context.Context, b *box) error {
	if b.last == nil {
		return nil
	}
	b.holding.Lock() // moves keep their order
	defer b.holding.Unlock()
	return e.holdNow(ctx, b)
}

// holdNow is holdLast with b.holding held.
func (e *Engine) holdNow(ctx context.Context, b *box) error {
	b.mu.Lock()
	at := b.heldUntil()
	b.mu.Unlock()
	if at.IsZero() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), hostFor)
	defer cancel()
	if err := b.last.SetDeadline(ctx, at); err != nil {
		return hostFailure("set the deadline", err)
	}
	b.mu.Lock()
	b.idleHeld = b.ttl <= 0 || at.Before(b.ttlEnd())
	b.mu.Unlock()
	return nil
}

// holdBusy takes the idle deadline from the host before a command begins: that
// goes on should this process die now. A host that fails is asked again later.
func (e *Engine) holdBusy(ctx context.Context, b *box) {
	if b.last == nil {
		return
	}
	b.holding.Lock()
	defer b.holding.Unlock()
	if b.idleHeld && e.holdNow(ctx, b) != nil {
		b.stir()
	}
}

// heldAnew moves the host's deadline after b was used, and says how long to wait
// with the next move at least.
func (e *Engine) heldAnew(b *box) time.Duration {
	err := e.holdLast(context.Background(), b)
	select {
	case <-b.gone:
		err = nil
	default:
	}
	if err == nil || errors.Is(err, backend.ErrGone) || b.now() != Running && b.now() != Paused {
		return 0
	}
	e.opt.Log.Warn("the host's deadline was not moved", "sandbox_id", b.id, "error", err)
	b.stir()
	return holdAgain
}
