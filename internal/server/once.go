package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"sync"
	"time"

	"github.com/bermhq/berm/api"
)

// Bounds of what is remembered of creates with an Idempotency-Key.
const (
	onceFor  = 24 * time.Hour
	onceMost = 4096 // keys, the oldest are forgotten first
)

var errKey = &api.Error{Code: api.CodeKeyConflict, Message: "this Idempotency-Key was used for another request", Hint: "use a new key for a new request"}

// digestOf names bytes without repeating them.
func digestOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// A once makes what was asked for under one key happen once.
type once struct {
	now func() time.Time

	mu    sync.Mutex
	done  map[string]*attempt
	order []string // those that are over, oldest first; may hold keys that are gone
}

// An attempt is one request under a key.
type attempt struct {
	sum    [sha256.Size]byte
	since  time.Time
	over   chan struct{} // closed when the outcome is there
	ok     bool
	answer json.RawMessage
}

// do runs f, or answers what f answered for the same key and request before.
// One that is on its way is waited for; one that failed is forgotten.
func (o *once) do(ctx context.Context, key string, request []byte, f func() (json.RawMessage, error)) (answer json.RawMessage, again bool, err error) {
	sum := sha256.Sum256(request)
	for {
		o.mu.Lock()
		a := o.done[key]
		if a != nil && o.now().Sub(a.since) > onceFor {
			delete(o.done, key)
			a = nil
		}
		if a == nil {
			a = &attempt{sum: sum, since: o.now(), over: make(chan struct{})}
			o.done[key] = a
			o.mu.Unlock()
			return o.run(key, a, f)
		}
		o.mu.Unlock()
		if a.sum != sum {
			return nil, false, errKey
		}
		select {
		case <-a.over:
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
		if a.ok {
			return a.answer, true, nil
		}
	}
}

// run is the first attempt of a key. The others are let go however it ends.
func (o *once) run(key string, a *attempt, f func() (json.RawMessage, error)) (answer json.RawMessage, again bool, err error) {
	defer func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if a.ok {
			o.remember(key)
		} else {
			delete(o.done, key)
		}
		close(a.over)
	}()
	if answer, err = f(); err != nil {
		return nil, false, err
	}
	a.ok, a.answer = true, answer
	return answer, false, nil
}

// remember keeps the number of answers bounded; o.mu is held. What is on its
// way is not among them: that is bounded by who may have it on its way.
func (o *once) remember(key string) {
	o.order = append(o.order, key)
	for len(o.order) > onceMost {
		if old := o.done[o.order[0]]; old != nil && old.ok {
			delete(o.done, o.order[0])
		}
		o.order = o.order[1:]
	}
}
