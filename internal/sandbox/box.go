package sandbox

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/backend"
	"github.com/bermhq/berm/internal/guest"
)

// A box is one sandbox with its private state.
type box struct {
	id     string
	tenant string // whose it is
	actor  string // who made it
	spec   backend.Spec
	began  time.Time
	inst   backend.Instance // set before the box is running, then constant
	guest  *guest.Client    // likewise
	meter  backend.Meter    // nil if the backend has none
	ready  chan struct{}    // closed when the guest said hello
	gone   chan struct{}    // closed when the instance has ended and left no trace
	clock  hostClock
	lag    lag

	mu     sync.Mutex
	public api.Sandbox
	state  State
	execs  int
	ending string // set by whoever ends it first
	exit   backend.Exit
	caps   capSet
	usage  usage
	report *api.EndReport
}

// view is a copy of the public side.
func (b *box) view() api.Sandbox {
	b.mu.Lock()
	defer b.mu.Unlock()
	v := b.public
	v.State = string(b.state)
	v.Tags, v.TimingsMS = maps.Clone(v.Tags), maps.Clone(v.TimingsMS)
	return v
}

// move changes the state and says whether that was legal.
func (b *box) move(to State) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	s, err := b.state.next(to)
	b.state = s
	return err
}

// end marks why the sandbox ends. The first reason stays.
func (b *box) end(ending string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ending == "" {
		b.ending = ending
	}
	if s, err := b.state.next(Ending); err == nil {
		b.state = s
	}
}

// timing notes how long a part took.
func (b *box) timing(part string, d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.public.TimingsMS[part] = ms(d)
}

// greet waits for the guest's first word. A guest that does not speak in time
// is stopped: nothing it was asked to do would ever end.
func (e *Engine) greet(b *box) {
	defer e.wg.Done()
	ctx, cancel := context.WithTimeout(context.Background(), e.opt.Boot)
	defer cancel()
	if _, err := b.guest.Hello(ctx); err != nil {
		select {
		case <-b.gone:
		default:
			e.opt.Log.Warn("guest did not answer", "sandbox_id", b.id, "error", err)
			e.stop(b, api.EndHostFailure)
		}
		return
	}
	b.timing("boot", time.Since(b.began))
	close(b.ready)
}

// watch waits for the end of the instance, however it comes, and settles what
// remains: why, what it used, and that nothing is left.
func (e *Engine) watch(b *box) {
	defer e.wg.Done()
	exit, werr := b.inst.Wait(context.Background())
	ctx, cancel := context.WithTimeout(context.Background(), e.opt.StopFor)
	defer cancel()
	serr := b.inst.Stop(ctx)
	b.guest.Close()
	b.sample()

	b.mu.Lock()
	b.exit = exit
	b.ending = trueEnding(b.ending, exit, b.usage.oomKills > 0, b.usage.taskFails > 0)
	to := Ended
	if serr != nil || werr != nil {
		to = Failed
		e.opt.Log.Error("sandbox did not end cleanly", "sandbox_id", b.id, "wait", werr, "stop", serr)
	}
	if s, err := b.state.next(to); err == nil {
		b.state = s
	}
	b.mu.Unlock()
	close(b.gone)
	e.forget(b.id)
}

// trueEnding is why a sandbox ended: what the host saw of it, where that is a
// wall; else what it was marked with by whoever stopped it, "" for nobody.
func trueEnding(marked string, x backend.Exit, oom, tasks bool) string {
	switch {
	case x.Cause == api.CapMemory || x.Cause == "" && oom:
		return api.EndMemory
	case x.Cause == api.CapProcesses || x.Cause == "" && tasks:
		return api.EndProcesses
	case marked != "":
		return marked
	case x.Cause == "deadline":
		return api.EndTimeout
	case x.Cause == "stopped":
		return api.EndKilled
	}
	return api.EndHostFailure
}

// stop ends the instance for a reason and returns when it is gone, or when
// stopping took too long.
func (e *Engine) stop(b *box, ending string) error {
	b.end(ending)
	ctx, cancel := context.WithTimeout(context.Background(), e.opt.StopFor)
	defer cancel()
	err := b.inst.Stop(ctx)
	select {
	case <-b.gone:
		return err
	case <-ctx.Done():
		if err == nil {
			err = ctx.Err()
		}
		return hostFailure("stop sandbox", err)
	}
}
