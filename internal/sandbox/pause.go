package sandbox

import (
	"context"
	"fmt"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/backend"
)

// Pause stops everything in a sandbox. It keeps its memory, uses no processor,
// and its times go on: pausing is no activity. Pausing twice is fine.
func (e *Engine) Pause(ctx context.Context, id string) error { return e.halt(ctx, id, true) }

// Resume lets it go on. Execs whose time was over meanwhile end at once.
func (e *Engine) Resume(ctx context.Context, id string) error { return e.halt(ctx, id, false) }

func (e *Engine) halt(ctx context.Context, id string, pause bool) error {
	b, err := e.find(ctx, id)
	if err != nil {
		return err
	}
	b.life.Lock()
	defer b.life.Unlock()
	to, typ, back := Running, api.EventSandboxResumed, Paused
	if pause {
		to, typ, back = Paused, api.EventSandboxPaused, Running
		if err := b.up(ctx); err != nil {
			return err
		}
	}
	if err := b.alive(); err != nil {
		return err
	}
	if b.now() == to {
		return nil
	}
	p, ok := b.inst.(backend.Pauser)
	if !ok {
		return &api.Error{Code: api.CodeUnavailable, Message: fmt.Sprintf("isolation %s cannot pause a sandbox", b.public.Isolation), Hint: "berm doctor"}
	}
	if err := e.decided(ctx, b, b.event(CallerOf(ctx).Actor, typ, struct{}{})); err != nil {
		return err
	}
	if pause { // from here on nothing new is asked of the guest
		if err := b.move(Paused); err != nil {
			return b.alive()
		}
	}
	if pause { // resumed is saved when it is true; until then the log decides
		err = e.save(b)
	}
	if err == nil {
		hctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.opt.StopFor)
		defer cancel()
		if pause {
			err = p.Pause(hctx)
		} else {
			err = p.Resume(hctx)
		}
	}
	if err == nil && !pause {
		err = b.move(Running)
		b.woken()
		e.greets(b)
		e.save(b)
	}
	if err == nil {
		return nil
	}
	// It is as it was, as far as anybody can tell, and the log says so.
	if pause && b.move(back) == nil {
		hctx, cancel := e.short()
		defer cancel()
		p.Resume(hctx)
	}
	e.save(b)
	undone := map[string]string{"failed": clip(err.Error(), 512)}
	reverse := api.EventSandboxResumed
	if !pause {
		reverse = api.EventSandboxPaused
	}
	if b.alive() == nil {
		e.happened(b, b.event(system, reverse, undone))
	}
	return hostFailure(string(to), err)
}

// woken lets those go on who waited for b to be resumed.
func (b *box) woken() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.wake != nil {
		close(b.wake)
		b.wake = nil
	}
}

// asleep is a channel that closes when b is resumed; nil if it is not paused.
func (b *box) asleep() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state != Paused {
		return nil
	}
	if b.wake == nil {
		b.wake = make(chan struct{})
	}
	return b.wake
}

// up waits for the guest's first word, as long as that may take.
func (b *box) up(ctx context.Context) error {
	select {
	case <-b.ready:
		return nil
	default:
	}
	if b.now() == Paused {
		return nil
	}
	select {
	case <-b.ready:
		return nil
	case <-b.gone:
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.over()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// listing is a context for a small word with the guest.
func (e *Engine) listing() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), e.opt.Listing)
}

// short is a context for a word with the host.
func (e *Engine) short() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), max(hostFor, time.Second))
}
