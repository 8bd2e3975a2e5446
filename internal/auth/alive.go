package auth

import (
	"context"
	"time"

	"github.com/bermhq/berm/api"
)

// Alive returns a context that ends with ctx, and also when the token stops to
// work: as it is revoked, or at its expiry. What was let in on a token hangs on
// it. The token's end is then the cause. cancel must be called.
func (t *Tokens) Alive(ctx context.Context, tokenID string) (_ context.Context, cancel context.CancelFunc) {
	ctx, end := context.WithCancelCause(ctx)
	gone := func() {
		end(refuse(api.CodeTokenInvalid, "the token that this was begun with is no longer valid", "berm token create makes a new one"))
	}
	t.mu.RLock()
	e := t.byID[tokenID]
	var revoked <-chan struct{}
	if e != nil {
		revoked = e.gone
	}
	t.mu.RUnlock()
	now := t.now()
	if e == nil || !e.dead(now).IsZero() {
		gone()
		return ctx, func() {}
	}
	var expiry <-chan time.Time
	var timer *time.Timer
	if !e.expires.IsZero() {
		timer = time.NewTimer(e.expires.Sub(now))
		expiry = timer.C
	}
	go func() {
		select {
		case <-revoked:
			gone()
		case <-expiry:
			gone()
		case <-ctx.Done():
		}
		if timer != nil {
			timer.Stop()
		}
	}()
	return ctx, func() { end(nil) }
}
