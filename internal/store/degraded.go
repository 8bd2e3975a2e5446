package store

import (
	"encoding/json"
	"errors"
	"os"
	"time"

	"github.com/bermhq/berm/api"
)

// While the log cannot be written, or only into the reserve, every decision is
// refused. What was decided before (a sandbox ends, a command ends) is still
// recorded as long as the reserve lasts.

// follows says whether events of a type record what nobody can undo, or only
// take something away: they are still taken while the reserve lasts.
func follows(kind string) bool {
	switch kind {
	case api.EventSandboxEnded, api.EventExecEnded, api.EventFileRead, api.EventFileWritten, api.EventCapHit,
		api.EventTokenRevoked, api.EventDaemonStopped:
		return true
	}
	return false
}

// fail deals with a batch that could not be written.
func (l *log) fail(batch []*item, err error) {
	l.trouble(err)
	l.again(batch)
	if full(err) {
		l.retry()
	}
}

// again refuses all who wait, those of a batch too. Notes stay in the queue, in
// their place.
func (l *log) again(batch []*item) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := append(batch, l.queue...)
	l.queue, l.queued = nil, 0
	for _, it := range all {
		if it.done != nil {
			it.done <- l.unwritable()
			continue
		}
		l.queue = append(l.queue, it)
		l.queued += it.bytes
	}
}

// trouble makes Append refuse from now on, and gives the reserve away.
func (l *log) trouble(err error) {
	if full(err) {
		if e := l.g.d.remove(l.g.path(reserveName)); e != nil && !errors.Is(e, os.ErrNotExist) {
			l.say.Error("audit log: the reserve", "error", e)
		}
	}
	l.mu.Lock()
	first := l.why == ""
	l.why = "it cannot be written (" + reason(err) + ")"
	l.limping, l.full = false, full(err)
	why := l.why
	l.mu.Unlock()
	if first {
		l.say.Error("audit log: cannot be written; nothing new is started until it can", "error", err)
		l.own(api.EventHostDegraded, map[string]any{"part": "audit", "state": "degraded", "why": why, "since": stamp(l.g.now())})
	}
}

// reason is the innermost text of an error: paths are of no use to a client.
func reason(err error) string {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err.Error()
		}
		err = next
	}
}

const tellPeriod = 10 * time.Second

// degraded is the event of the state that cannot be written, or can again.
// On a full disk small writes may still work and others fail, in turns: this is
// told once in a while.
func (s *Store) degraded(why string) {
	now := time.Now()
	if why == "" && !s.told || why != "" && now.Sub(s.toldAt) < tellPeriod {
		s.told = false
		return
	}
	s.told = why != ""
	if s.told {
		s.toldAt = now
	}
	data := map[string]any{"part": "state", "state": "recovered"}
	if why != "" {
		data = map[string]any{"part": "state", "state": "degraded", "why": why, "since": stamp(now)}
	}
	raw, err := json.Marshal(data)
	if err == nil {
		err = s.log.note(api.Event{Type: api.EventHostDegraded, Tenant: api.DefaultTenant, Actor: "system", Data: raw})
	}
	if err != nil {
		s.log.say.Error("state: its trouble could not be recorded", "why", why, "error", err)
	}
}

// retry tries to write again. It is the writer's goroutine that calls it, at
// most once a second.
func (l *log) retry() {
	if err := l.commit(nil); err != nil {
		l.trouble(err)
		l.again(nil)
		return
	}
	l.mu.Lock()
	why, lost := l.why, l.lost
	l.limping = why != ""
	l.mu.Unlock()
	if why == "" {
		return
	}
	if err := l.reserve(); err != nil {
		l.mu.Lock()
		l.why, l.full = "there is no room for its reserve ("+reason(err)+")", true
		l.mu.Unlock()
		return
	}
	l.own(api.EventHostDegraded, map[string]any{"part": "audit", "state": "recovered", "events_lost": lost})
	if err := l.commit(nil); err != nil {
		l.trouble(err)
		l.again(nil)
		return
	}
	l.mu.Lock()
	l.why, l.lost, l.limping = "", 0, false
	l.mu.Unlock()
	l.say.Info("audit log: it can be written again", "events_lost", lost, "time", l.g.now().Format(time.RFC3339))
}

// reserve sets room aside, if that was not done already.
func (l *log) reserve() error {
	return l.g.d.reserve(l.g.path(reserveName), l.o.ReserveBytes)
}
