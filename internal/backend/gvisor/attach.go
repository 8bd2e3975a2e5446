package gvisor

import (
	"context"
	"errors"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/backend"
	"github.com/bermhq/berm/internal/keeper"
)

// Attach finds a sandbox that this process started, or one before it.
func (b *Backend) Attach(ctx context.Context, h backend.Handle) (backend.Instance, error) {
	if h.Backend != api.IsolationGVisor {
		return nil, backend.ErrGone
	}
	if i := b.known(h.ID); i != nil {
		return i, nil
	}
	r, err := b.keeper.Attach(ctx, h.ID)
	if err != nil {
		return nil, ended(err)
	}
	closeFiles(r.Control) // calls take fresh ones
	i := &instance{b: b, id: h.ID, run: r, agent: r.Agent}
	b.mu.Lock()
	other := b.live[h.ID]
	if other == nil {
		b.live[h.ID] = i
	}
	b.mu.Unlock()
	if other != nil {
		i.release()
		return other, nil
	}
	b.keep(i)
	return i, nil
}

func (b *Backend) known(id string) *instance {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.live[id]
}

// Held lists the keeper's sandboxes.
func (b *Backend) Held(ctx context.Context) ([]backend.Held, error) {
	held, past, err := b.keeper.List(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]backend.Held, 0, len(held)+len(past))
	for _, h := range held {
		x := backend.Held{Handle: backend.Handle{Backend: api.IsolationGVisor, ID: h.ID}, Paused: h.Paused}
		if h.DeadlineMS > 0 {
			x.Deadline = time.UnixMilli(h.DeadlineMS)
		}
		out = append(out, x)
	}
	for _, e := range past {
		out = append(out, backend.Held{Handle: backend.Handle{Backend: api.IsolationGVisor, ID: e.ID}, Ended: true,
			Exit: exit(e), Usage: usage(e.Stat, e.Upper)})
	}
	return out, nil
}

// Forget tells the keeper that an end has been noted.
func (b *Backend) Forget(ctx context.Context, id string) error { return b.keeper.Forget(ctx, id) }

// ended gives the keeper's errors the backend's shape.
func ended(err error) error {
	if errors.Is(err, keeper.ErrGone) || errors.Is(err, keeper.ErrClosed) {
		return backend.ErrGone
	}
	return translate(err)
}
