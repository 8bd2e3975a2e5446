package server

import (
	"context"
	"sync"
	"time"
)

// comeBack is how long a command whose caller can find it again outlives the
// last connection that waited for it.
const comeBack = 10 * time.Second

// A heldSet knows the commands that live as long as somebody waits for them.
// The zero value is empty.
type heldSet struct {
	mu sync.Mutex
	m  map[heldKey]*holders
}

type heldKey struct{ sandbox, exec string }

type holders struct {
	n     int
	timer *time.Timer // ends the command; nil while somebody waits
}

// enter counts a caller who waits for an exec; leave, which it returns, ends
// the exec a while after the last one has gone. An exec that is over is not
// disturbed by that.
func (h *heldSet) enter(s *server, ctx context.Context, id, exec string) (leave func()) {
	k := heldKey{id, exec}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.m == nil {
		h.m = map[heldKey]*holders{}
	}
	x := h.m[k]
	if x == nil {
		x = &holders{}
		h.m[k] = x
	}
	h.hold(x)
	return func() { h.leave(s, context.WithoutCancel(ctx), k, x, ctx.Err() != nil) }
}

// join does the same for an exec that is held already, and nothing for others.
func (h *heldSet) join(s *server, ctx context.Context, id, exec string) (leave func()) {
	k := heldKey{id, exec}
	h.mu.Lock()
	defer h.mu.Unlock()
	x := h.m[k]
	if x == nil {
		return func() {}
	}
	h.hold(x)
	return func() { h.leave(s, context.WithoutCancel(ctx), k, x, ctx.Err() != nil) }
}

func (h *heldSet) hold(x *holders) {
	x.n++
	if x.timer != nil {
		x.timer.Stop()
		x.timer = nil
	}
}

func (h *heldSet) leave(s *server, ctx context.Context, k heldKey, x *holders, gone bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if x.n--; x.n > 0 {
		return
	}
	if !gone { // it was waited for to its end
		h.drop(k, x)
		return
	}
	x.timer = time.AfterFunc(comeBack, func() {
		h.mu.Lock()
		idle := x.n == 0
		if idle {
			h.drop(k, x)
		}
		h.mu.Unlock()
		if idle {
			s.e.KillExec(ctx, k.sandbox, k.exec)
		}
	})
}

func (h *heldSet) drop(k heldKey, x *holders) {
	if h.m[k] == x {
		delete(h.m, k)
	}
}
