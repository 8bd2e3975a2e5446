package server

import (
	"context"
	"sync"

	"github.com/bermhq/berm/api"
)

// How many looks through the log on disk there are at once, altogether, and how
// many of one tenant wait for the one that the tenant may have.
const (
	looks       = 2
	maxWaiting  = 32
	anyWaiting  = 1 << 30 // for those whose number something else bounds
	retryLookIn = 2       // seconds
)

// turns gives out the right to read the log from disk: one tenant after the
// other, so that none that asks much keeps the processor and the disk for itself.
type turns struct {
	all chan struct{}

	mu     sync.Mutex
	tenant map[string]*turn
}

type turn struct {
	one   chan struct{}
	users int // who has it and who waits for it
}

func newTurns() *turns {
	return &turns{all: make(chan struct{}, looks), tenant: map[string]*turn{}}
}

// take waits for a turn, unless most wait for one already.
func (t *turns) take(ctx context.Context, tenant string, most int) (done func(), err error) {
	t.mu.Lock()
	own := t.tenant[tenant]
	if own == nil {
		own = &turn{one: make(chan struct{}, 1)}
		t.tenant[tenant] = own
	}
	if own.users > most {
		t.mu.Unlock()
		return nil, &api.Error{Code: api.CodeRate, Message: "too many questions about the past wait for an answer",
			Hint: "ask for what comes after the last answer's next, or follow", RetryAfter: retryLookIn}
	}
	own.users++
	t.mu.Unlock()
	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if own.users--; own.users == 0 {
			delete(t.tenant, tenant)
		}
	}
	select {
	case own.one <- struct{}{}:
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
	select {
	case t.all <- struct{}{}:
	case <-ctx.Done():
		<-own.one
		leave()
		return nil, ctx.Err()
	}
	return sync.OnceFunc(func() { <-t.all; <-own.one; leave() }), nil
}
