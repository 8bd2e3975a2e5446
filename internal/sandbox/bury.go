package sandbox

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/backend"
)

// Bounds of what is remembered of ended sandboxes.
const (
	maxPast        = 1024  // without a journal
	maxPastDurable = 10000 // with one
	lastJobs       = 8     // execs of each
)

// bury keeps what remains of a sandbox that is gone: its report, on disk where
// there is a journal, and its last execs.
func (e *Engine) bury(b *box) {
	e.unwire(b) // its last words come before the end
	late := time.NewTimer(e.opt.Settle)
	defer late.Stop()
	select { // the ends of its execs come before its own
	case <-b.quiet:
	case <-late.C:
	}
	b.mu.Lock()
	b.caps.add(b.ending) // some of them are caps as well
	b.mu.Unlock()
	report := e.endReport(b)
	b.mu.Lock()
	report.Ending = b.ending
	b.report = report
	r, actor := b.report, cmp.Or(b.ender, system)
	b.unsaved = e.opt.Journal != nil
	b.env = nil
	b.mu.Unlock()
	e.release(b, r.Ending)
	e.lastWord(b, b.event(actor, api.EventSandboxEnded, endedData{Ending: r.Ending, CapsHit: r.CapsHit, Usage: r.Usage}))
	b.mu.Lock()
	for len(b.order) > lastJobs {
		delete(b.jobs, b.order[0].info.ExecID)
		b.order = slices.Delete(b.order, 0, 1)
	}
	b.mu.Unlock()
	close(b.settled)
	e.forget(b)
}

// lastWord records the end of b: the event, the record, and then the backend
// may forget it. What fails is tried again by the janitor.
func (e *Engine) lastWord(b *box, events ...api.Event) {
	b.mu.Lock()
	unsaved := b.unsaved
	b.mu.Unlock()
	if !unsaved || e.happened(b, events...) != nil || e.save(b) != nil {
		return
	}
	e.forgotten(b.handle)
	b.mu.Lock()
	b.unsaved = false
	b.mu.Unlock()
}

// forgotten tells the backend that the end of an instance is on disk.
func (e *Engine) forgotten(h backend.Handle) {
	for _, be := range e.backends {
		if hold, ok := be.(backend.Holder); ok && be.Info().Name == h.Backend {
			ctx, cancel := e.short()
			defer cancel()
			if err := hold.Forget(ctx, h.ID); err != nil {
				e.opt.Log.Warn("end of an instance not forgotten", "sandbox_id", h.ID, "error", err)
			}
		}
	}
}

// forget keeps the number of remembered sandboxes bounded.
func (e *Engine) forget(b *box) {
	most := maxPast
	if e.opt.Journal != nil {
		most = maxPastDurable
	}
	e.mu.Lock()
	e.past = append(e.past, b)
	var drop []*box
	for len(e.past) > most {
		drop = append(drop, e.past[0])
		delete(e.boxes, e.past[0].id)
		e.past = e.past[1:]
	}
	e.mu.Unlock()
	e.erase(drop)
}

// erase drops records that nobody asks for any more.
func (e *Engine) erase(drop []*box) {
	if e.opt.Journal == nil {
		return
	}
	for _, b := range drop {
		if err := e.opt.Journal.Drop(b.id); err != nil {
			e.opt.Log.Warn("record not dropped", "sandbox_id", b.id, "error", err)
		}
	}
}

// sweepPast is one round of the janitor: ended sandboxes whose day is over are
// forgotten, and what could not be recorded is tried again.
func (e *Engine) sweepPast(now time.Time) {
	var drop, owing []*box
	e.mu.Lock()
	keep := e.past[:0:0]
	for _, b := range e.past {
		b.mu.Lock()
		old, unsaved := now.Sub(b.endedAt) > e.opt.Retain, b.unsaved
		b.mu.Unlock()
		switch {
		case old && !unsaved:
			drop = append(drop, b)
			delete(e.boxes, b.id)
			continue
		case unsaved:
			owing = append(owing, b)
		}
		keep = append(keep, b)
	}
	e.past = keep
	all := slices.Collect(maps.Values(e.boxes))
	e.mu.Unlock()
	for _, b := range all {
		b.rec.Lock()
		n := len(b.owed)
		b.rec.Unlock()
		if n > 0 && !slices.Contains(owing, b) {
			owing = append(owing, b)
		}
	}
	e.erase(drop)
	for _, b := range owing {
		if e.happened(b) == nil {
			e.lastWord(b)
		}
	}
}

// janitor sweeps until the engine closes.
func (e *Engine) janitor() {
	tick := time.NewTicker(min(e.opt.Retain/4, 20*time.Second))
	defer tick.Stop()
	for {
		select {
		case <-e.quit:
			return
		case now := <-tick.C:
			e.sweepPast(now)
		}
	}
}
