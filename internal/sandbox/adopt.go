package sandbox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/backend"
	"github.com/bermhq/berm/internal/guest"
)

// adoptAtOnce is how many sandboxes are taken over at the same time.
const adoptAtOnce = 16

// abandoned is why something ended that an engine before this one had in hand.
const abandoned = "the daemon that saw to it went away"

// Adopt takes over what an engine before this one has left running, from the
// journal's records, its log and what the backends still hold: before anything
// else is asked of this engine. A sandbox that has ended meanwhile gets its end
// recorded, one that nobody was told of is stopped, and so is one without a
// record. No guest is waited for: who does not greet in time ends by that.
func (e *Engine) Adopt(ctx context.Context) error {
	if e.opt.Journal == nil {
		return nil
	}
	raw, err := e.opt.Journal.Load()
	if err != nil {
		return hostFailure("load the records of sandboxes", err)
	}
	held, err := e.held(ctx)
	if err != nil {
		return hostFailure("ask what runs", err)
	}
	live, known, err := e.restore(raw)
	if err != nil {
		return err
	}
	pasts, err := e.readLog(ctx, live)
	if err != nil {
		return hostFailure("read the log", err)
	}
	turn := make(chan struct{}, adoptAtOnce)
	var wg sync.WaitGroup
	for _, b := range live {
		turn <- struct{}{}
		wg.Go(func() {
			defer func() { <-turn }()
			e.takeOver(ctx, b, pasts[b.id], held[b.handle])
		})
	}
	for h, x := range held {
		if !known[h.ID] {
			turn <- struct{}{}
			wg.Go(func() {
				defer func() { <-turn }()
				e.stray(h, x)
			})
		}
	}
	wg.Wait()
	e.mu.Lock()
	slices.SortFunc(e.past, func(a, b *box) int { return a.endedAt.Compare(b.endedAt) })
	e.tend()
	e.mu.Unlock()
	e.sweepPast(time.Now())
	return nil
}

// held asks the backends what they know.
func (e *Engine) held(ctx context.Context) (map[backend.Handle]backend.Held, error) {
	all := map[backend.Handle]backend.Held{}
	for _, be := range e.backends {
		if h, ok := be.(backend.Holder); ok {
			ctx, cancel := context.WithTimeout(ctx, e.opt.StopFor)
			defer cancel()
			list, err := h.Held(ctx)
			if err != nil {
				return nil, err
			}
			for _, x := range list {
				all[x.Handle] = x
			}
		}
	}
	return all, nil
}

// restore makes boxes of records. Those that have ended are done with here.
func (e *Engine) restore(raw map[string]json.RawMessage) (live []*box, known map[string]bool, err error) {
	known = map[string]bool{}
	for id, text := range raw {
		var r record
		if err := json.Unmarshal(text, &r); err != nil || r.Handle.ID != id {
			e.opt.Log.Error("record of a sandbox cannot be read; it is stopped", "sandbox_id", id, "error", err)
			continue
		}
		if r.Version > recordVersion {
			return nil, nil, &api.Error{Code: api.CodeHostFailure, Message: fmt.Sprintf("sandbox %s was made by a newer version of Berm", id), Hint: "start that version, or end its sandboxes with it"}
		}
		b := r.restore(id)
		known[id] = true
		if r.State.final() {
			e.lay(b, r.State)
			continue
		}
		live = append(live, b)
	}
	return live, known, nil
}

// lay puts a sandbox that has ended among the past ones.
func (e *Engine) lay(b *box, as State) {
	b.state = as
	close(b.quiet)
	close(b.gone)
	close(b.settled)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.boxes[b.id] = b
	e.past = append(e.past, b)
}

// readLog reads what the log says of live sandboxes, in one pass.
func (e *Engine) readLog(ctx context.Context, live []*box) (map[string]*past, error) {
	pasts, byID := map[string]*past{}, map[string]*box{}
	if len(live) == 0 {
		return pasts, nil
	}
	from := live[0].seq
	for _, b := range live {
		from = min(from, b.seq)
		pasts[b.id], byID[b.id] = &past{}, b
	}
	return pasts, e.opt.Journal.Replay(ctx, from, func(ev api.Event) error {
		b := byID[ev.SandboxID]
		if b == nil {
			return nil
		}
		if err := b.replay(pasts[b.id], ev); err != nil {
			return fmt.Errorf("event %d: %w", ev.Seq, err)
		}
		return nil
	})
}

// takeOver makes one sandbox this engine's, or records its end.
func (e *Engine) takeOver(ctx context.Context, b *box, p *past, x backend.Held) {
	if p.ended != nil && p.ended.NeverStarted {
		e.opt.Journal.Drop(b.id)
		return
	}
	if p.ended != nil { // only its record is behind
		b.ending, b.endedAt, b.unsaved = p.ended.Ending, p.endedAt, true
		b.report = e.endReport(b)
		b.report.Ending, b.report.CapsHit, b.report.Usage = p.ended.Ending, p.ended.CapsHit, p.ended.Usage
		full(b.report)
		e.lay(b, Ended)
		e.lastWord(b)
		return
	}
	inst, err := e.reach(ctx, b.handle)
	switch {
	case err == nil && !p.started && !b.begun: // nobody was told its id
		e.halted(inst)
		e.neverStarted(b, system, errors.New(abandoned))
		e.forgotten(b.handle)
	case errors.Is(err, backend.ErrGone) && !p.started && !b.begun:
		e.neverStarted(b, system, errors.New(abandoned))
		e.forgotten(b.handle)
	case errors.Is(err, backend.ErrGone):
		if !x.Ended { // it may have ended since
			if again, err := e.held(ctx); err == nil {
				x = again[b.handle]
			}
		}
		e.mourn(b, x)
	case err != nil: // it may live: its record stays, and its deadline holds
		e.opt.Log.Error("sandbox cannot be reached; the next start tries again", "sandbox_id", b.id, "error", err)
	case b.bound: // the connection that held it went with the engine before; its host is slow, or of an older build
		e.halted(inst)
		if again, err := e.held(ctx); err == nil {
			x = again[b.handle]
		}
		e.mourn(b, x)
	default:
		b.idleAsHeld(x.Deadline)
		e.welcomeBack(ctx, b, p, inst)
	}
}

// reach attaches, or says that there is nothing left to attach to.
func (e *Engine) reach(ctx context.Context, h backend.Handle) (backend.Instance, error) {
	for _, be := range e.backends {
		if be.Info().Name == h.Backend {
			ctx, cancel := context.WithTimeout(ctx, e.opt.StopFor)
			defer cancel()
			return be.Attach(ctx, h)
		}
	}
	return nil, fmt.Errorf("isolation %q is not among this daemon's", h.Backend)
}

// halted stops an instance that is no sandbox of anybody's.
func (e *Engine) halted(inst backend.Instance) {
	ctx, cancel := context.WithTimeout(context.Background(), e.opt.StopFor)
	defer cancel()
	if err := inst.Stop(ctx); err != nil {
		e.opt.Log.Error("instance would not end", "sandbox_id", inst.Handle().ID, "error", err)
	}
}

// stray ends what runs without a record.
func (e *Engine) stray(h backend.Handle, x backend.Held) {
	if !x.Ended {
		inst, err := e.reach(context.Background(), h)
		if err == nil {
			e.opt.Log.Warn("an instance without a record is stopped", "sandbox_id", h.ID)
			e.halted(inst)
		} else if !errors.Is(err, backend.ErrGone) {
			e.opt.Log.Error("an instance without a record cannot be reached", "sandbox_id", h.ID, "error", err)
			return
		}
	}
	e.forgotten(h)
}

// mourn records the end of a sandbox that ended while nobody was here.
func (e *Engine) mourn(b *box, x backend.Held) {
	if x.Ended {
		b.exit = x.Exit
		u := x.Usage
		b.usage.last, b.usage.memory, b.usage.tasks, b.usage.disk = u, max(u.MemoryPeak, u.MemoryBytes), u.Tasks, u.DiskBytes
		b.usage.oomKills, b.usage.taskFails = u.OOMKills, u.TaskFails
		b.ending = trueEnding("", x.Exit, u.OOMKills > 0, u.TaskFails > 0)
		if b.bound && x.Exit.Cause == causeOwner {
			b.ending = api.EndKilled // as when its connection goes alone
		}
		if x.Exit.Cause == causeDeadline {
			b.ending = b.byDeadline(x.Exit)
		}
	} else {
		b.ending = api.EndHostFailure
	}
	b.caps.add(b.ending)
	b.endedAt, b.unsaved = time.Now(), true
	if at := x.Exit.At; at.After(b.created) && at.Before(b.endedAt) {
		b.endedAt = at
	}
	events := []api.Event{}
	for _, j := range b.open() {
		res := unseen(j.info.ExecID, b.ending)
		events = append(events, b.event(system, api.EventExecEnded, execEndedData{ExecResult: res}))
		b.settle(j, res, 0)
	}
	e.unwire(b)
	b.report = e.endReport(b)
	b.report.Ending = b.ending
	events = append(events, b.event(system, api.EventSandboxEnded, endedData{Ending: b.ending, CapsHit: b.report.CapsHit, Usage: b.report.Usage, Reason: abandoned}))
	e.mu.Lock()
	e.books.endings[b.ending]++
	e.mu.Unlock()
	e.lay(b, Ended)
	e.lastWord(b, events...)
}

// welcomeBack makes a running sandbox this engine's.
func (e *Engine) welcomeBack(ctx context.Context, b *box, p *past, inst backend.Instance) {
	actx, cancel := context.WithTimeout(ctx, e.opt.StopFor)
	defer cancel()
	b.taken = true
	open := b.open()
	e.rewire(b)
	err := e.connect(actx, b, inst)
	if err == nil {
		err = pauseAs(actx, inst, p.paused)
	}
	if err == nil {
		err = e.holdLast(actx, b)
	}
	if err == nil {
		as := Running
		if p.paused {
			as = Paused
		}
		e.mu.Lock()
		e.adopted(b)
		e.mu.Unlock()
		if err = e.admit(ctx, b, as); err != nil {
			e.release(b, "")
		}
	}
	if err != nil {
		if b.guest != nil {
			b.guest.Close()
		}
		e.opt.Log.Error("sandbox could not be taken over and ends", "sandbox_id", b.id, "error", err)
		e.halted(inst)
		e.mourn(b, backend.Held{})
		return
	}
	if e.save(b) != nil {
		e.opt.Log.Warn("record not renewed", "sandbox_id", b.id)
	}
	for _, j := range open {
		e.wg.Go(func() { e.pickUp(b, j) })
	}
}

// pauseAs has an instance be paused, or not.
func pauseAs(ctx context.Context, inst backend.Instance, paused bool) error {
	p, ok := inst.(backend.Pauser)
	switch {
	case !ok:
		return nil
	case paused:
		return p.Pause(ctx)
	}
	return p.Resume(ctx)
}

// pickUp sees to an exec that was running: one that does not need its caller
// goes on, any other has lost it and ends.
func (e *Engine) pickUp(b *box, j *job) {
	select {
	case <-b.ready:
	case <-b.gone:
		e.lostJob(b, j, b.endedBy())
		return
	}
	id := b.exec(j).ExecID
	if !j.kept {
		ctx, cancel := context.WithTimeout(context.Background(), e.opt.EndAll)
		defer cancel()
		err := b.guest.Kill(ctx, id)
		if err != nil && !guest.IsRefusal(err) && e.isGone(b) { // and it with its sandbox
			e.lostJob(b, j, b.endedBy())
			return
		}
		if err != nil && !guest.IsRefusal(err) {
			e.opt.Log.Warn("an exec that lost its caller would not end", "sandbox_id", b.id, "exec_id", id, "error", err)
			e.stop(b, api.EndKilled)
		}
		e.lostJob(b, j, api.EndKilled)
		return
	}
	info := b.exec(j)
	var pl plan
	pl.start.ID = id
	left := time.Duration(0)
	if info.TimeoutSeconds != api.Unlimited {
		pl.timeout = max(seconds(info.TimeoutSeconds), time.Millisecond)
		left = max(pl.timeout-time.Since(j.began), time.Millisecond)
	}
	x := e.execution(b, pl, Streams{})
	x.job, x.began = j, j.began
	x.kept = max(min(2*b.spec.Limits.OutputBytes, maxKeep), 1)
	b.mu.Lock()
	if !info.Detached {
		b.orphan(j, e.opt.Comeback)
	}
	b.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), e.opt.Listing)
	defer cancel()
	var err error
	if x.p, err = b.guest.Wait(ctx, id); err != nil {
		if guest.IsRefusal(err) { // it never began, or nothing is known of it any more
			e.lostJob(b, j, api.EndKilled)
			return
		}
		e.finished(b, j, x.finish(err, ""), 0)
		return
	}
	res := x.run(j.killed, left)
	e.finished(b, j, res, x.sent[Stdout])
}

// lostJob records the end of an exec that nobody saw.
func (e *Engine) lostJob(b *box, j *job, ending string) {
	e.finished(b, j, unseen(b.exec(j).ExecID, cmp.Or(ending, api.EndHostFailure)), 0)
}
