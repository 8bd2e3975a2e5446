package sandbox

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/policy"
)

// touch notes that somebody asked for something: it is not idle.
func (b *box) touch() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.touched = time.Now()
	b.stir()
}

// busy counts a request that takes its time; what it returns ends it.
func (b *box) busy() func() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls++
	b.stir()
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.calls--
		b.touched = time.Now()
		b.stir()
	}
}

// idleSince is since when nothing was asked of b and no exec ran.
func (b *box) idleSince(now time.Time) time.Time {
	if b.execs > 0 || b.calls > 0 {
		return now
	}
	return b.touched
}

// due is when b ends by time, and why. The zero time is never.
func (b *box) due(now time.Time) (at time.Time, ending string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ttl > 0 {
		at, ending = b.created.Add(b.ttl), api.EndTTL
	}
	if b.idle > 0 && !b.persistent {
		if t := b.idleSince(now).Add(b.idle); at.IsZero() || t.Before(at) {
			at, ending = t, api.EndIdle
		}
	}
	return at, ending
}

// mind ends b when its time is over, however often that moves meanwhile, and has
// the host hold the same.
func (e *Engine) mind(b *box) {
	var move, next time.Time // when to move the host's deadline, if that is to be done, and not before
	for {
		now := time.Now()
		at, ending := b.due(now)
		wait := at.Sub(now)
		if !at.IsZero() && wait <= 0 {
			if err := e.stop(b, ending); err != nil {
				e.opt.Log.Error("sandbox is over its time and would not end", "sandbox_id", b.id, "ending", ending, "error", err)
			}
			wait = time.Second // once more, should it be needed
		}
		if at.IsZero() {
			wait = time.Hour
		}
		stirred := b.stirred
		if b.last == nil {
			stirred = nil
		} else if !move.IsZero() {
			stirred, wait = nil, min(wait, move.Sub(now))
		}
		t := time.NewTimer(wait)
		select {
		case <-b.gone:
			t.Stop()
			return
		case <-b.kick:
			t.Stop()
		case <-stirred:
			t.Stop()
			move = later(time.Now().Add(holdAfter), next)
		case now := <-t.C:
			if !move.IsZero() && !now.Before(move) {
				move = time.Time{}
				next = time.Now().Add(e.heldAnew(b))
			}
		}
	}
}

// Lifecycle says what ends a sandbox by time.
func (e *Engine) Lifecycle(ctx context.Context, id string) (api.Lifecycle, error) {
	b, err := e.look(ctx, id)
	if err != nil {
		return api.Lifecycle{}, err
	}
	defer b.touch() // asking is a request too
	return b.lifecycle(), nil
}

func (b *box) lifecycle() api.Lifecycle {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := api.Lifecycle{TTLSeconds: b.ttl.Seconds(), Persistent: b.persistent, IdleSeconds: time.Since(b.idleSince(time.Now())).Seconds()}
	if !b.persistent {
		l.IdleTimeoutSeconds = b.idle.Seconds()
	}
	if b.ttl > 0 {
		l.ExpiresAt = stamp(b.created.Add(b.ttl))
	}
	return l
}

// SetLifecycle changes it: within what the caller's token may have, and never
// to a time that has passed.
func (e *Engine) SetLifecycle(ctx context.Context, id string, c api.LifecycleChange) (api.Lifecycle, error) {
	b, err := e.find(ctx, id)
	if err != nil {
		return api.Lifecycle{}, err
	}
	caller := CallerOf(ctx)
	for name, v := range map[string]*float64{"ttl_seconds": c.TTLSeconds, "idle_timeout_seconds": c.IdleTimeoutSeconds} {
		if v != nil {
			if err := timeOf(name, *v); err != nil {
				return api.Lifecycle{}, err
			}
		}
	}
	if err := policy.Change(c, caller.Ceiling).Err(); err != nil {
		return api.Lifecycle{}, err
	}
	b.life.Lock()
	defer b.life.Unlock()
	if err := b.alive(); err != nil {
		return api.Lifecycle{}, err
	}
	b.mu.Lock()
	was := times{b.ttl, b.idle, b.persistent}
	b.mu.Unlock()
	to, err := was.with(c, caller, b.created)
	if err != nil || to == was {
		return b.lifecycle(), err
	}
	ev := b.event(caller.Actor, api.EventSandboxChanged, to.data())
	if err := e.decided(ctx, b, ev); err != nil {
		return api.Lifecycle{}, err
	}
	if err := e.setTimes(ctx, b, was, to); err != nil {
		back := was.data()
		back.Failed = clip(err.Error(), 512)
		e.happened(b, b.event(system, api.EventSandboxChanged, back))
		return api.Lifecycle{}, err
	}
	return b.lifecycle(), nil
}

// times are what ends a sandbox by time.
type times struct {
	ttl, idle  time.Duration
	persistent bool
}

func (t times) data() changedData {
	ttl, idle, p := t.ttl.Seconds(), t.idle.Seconds(), t.persistent
	return changedData{TTLSeconds: &ttl, IdleTimeoutSeconds: &idle, Persistent: &p}
}

// with is t after a change; a 0 is the default again, as at create.
func (t times) with(c api.LifecycleChange, caller Caller, created time.Time) (times, error) {
	if c.Persistent != nil {
		t.persistent = *c.Persistent
	}
	if c.IdleTimeoutSeconds != nil {
		t.idle = seconds(*c.IdleTimeoutSeconds)
		if t.idle == 0 {
			t.idle = within(api.DefaultIdleSeconds, caller, func(p api.Policy) float64 { return p.IdleTimeoutSeconds })
		}
	}
	if c.TTLSeconds == nil {
		return t, nil
	}
	if t.ttl = seconds(*c.TTLSeconds); t.ttl == 0 {
		def := float64(api.DefaultTTLSeconds)
		if t.persistent {
			def = api.PersistentTTL
		}
		t.ttl = within(def, caller, func(p api.Policy) float64 { return p.TTLSeconds })
	}
	if age := time.Since(created); t.ttl <= age {
		err := badRequest("ttl_seconds: counted from creation, and the sandbox is %.0f seconds old", age.Seconds())
		err.Hint = "ask for more, or delete it"
		return t, err
	}
	return t, nil
}

// within is a default as far as the caller's ceiling goes.
func within(def float64, c Caller, of func(api.Policy) float64) time.Duration {
	if c.Ceiling != nil {
		if most := of(*c.Ceiling); most > 0 {
			def = min(def, most)
		}
	}
	return seconds(def)
}

// setTimes puts times into force, the host's deadline among them; b.life is held.
// After an error the old ones hold.
func (e *Engine) setTimes(ctx context.Context, b *box, was, to times) error {
	set := func(t times) {
		b.mu.Lock()
		b.ttl, b.idle, b.persistent = t.ttl, t.idle, t.persistent
		b.mu.Unlock()
	}
	set(to)
	err := e.save(b)
	if err == nil {
		if err = e.holdLast(ctx, b); err != nil {
			set(was)
			e.save(b)
			e.holdLast(context.WithoutCancel(ctx), b)
		}
	} else {
		set(was)
	}
	select {
	case b.kick <- struct{}{}:
	default:
	}
	return err
}

// alive refuses what is asked of a sandbox that has ended or is about to.
func (b *box) alive() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state == Running || b.state == Paused {
		return nil
	}
	return b.over()
}

// over says that b has ended, or is about to; b.mu is held.
func (b *box) over() *api.Error {
	e := &api.Error{Code: api.CodeSandboxEnded, Message: fmt.Sprintf("sandbox %s is %s", b.id, b.state), Hint: "create another"}
	if b.ending != "" {
		e.Message += " (" + b.ending + ")"
	}
	return e
}

// usable refuses what needs a running guest.
func (b *box) usable() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch b.state {
	case Running:
		return nil
	case Paused:
		return &api.Error{Code: api.CodeSandboxPaused, Message: fmt.Sprintf("sandbox %s is paused", b.id), Hint: "resume it: berm resume " + b.id}
	}
	return b.over()
}

// SetTags changes tags. The session is no tag like others: it never changes.
func (e *Engine) SetTags(ctx context.Context, id string, c api.MetadataChange) (api.Sandbox, error) {
	b, err := e.find(ctx, id)
	if err != nil {
		return api.Sandbox{}, err
	}
	b.life.Lock()
	defer b.life.Unlock()
	if err := b.alive(); err != nil {
		return api.Sandbox{}, err
	}
	b.mu.Lock()
	was := b.public.Tags
	b.mu.Unlock()
	tags := maps.Clone(was)
	for k, v := range c.Tags {
		if v == nil {
			delete(tags, k)
		} else {
			tags[k] = *v
		}
	}
	if tags[tagSession] != was[tagSession] {
		return api.Sandbox{}, &api.Error{Code: api.CodeSessionConflict, Message: fmt.Sprintf("sandbox %s: its session never changes", b.id), Hint: "create another sandbox for another session"}
	}
	if err := policy.Tags(tags).Err(); err != nil {
		return api.Sandbox{}, err
	}
	if maps.Equal(tags, was) {
		return b.view(), nil
	}
	ev := b.event(CallerOf(ctx).Actor, api.EventSandboxChanged, changedData{Tags: c.Tags})
	if err := e.decided(ctx, b, ev); err != nil {
		return api.Sandbox{}, err
	}
	set := func(t map[string]string) { b.mu.Lock(); b.public.Tags = t; b.mu.Unlock() }
	set(tags)
	if err := e.save(b); err != nil {
		set(was)
		back := changedData{Tags: map[string]*string{}, Failed: clip(err.Error(), 512)}
		for k := range c.Tags {
			back.Tags[k] = nil
			if v, ok := was[k]; ok {
				back.Tags[k] = &v
			}
		}
		e.happened(b, b.event(system, api.EventSandboxChanged, back))
		return api.Sandbox{}, err
	}
	return b.view(), nil
}
