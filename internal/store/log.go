package store

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/bermhq/berm/api"
)

const (
	noteDelay   = 20 * time.Millisecond // how long a note may wait for company
	maxQueue    = 16 << 20              // bytes of notes that wait; more must wait their turn
	retryPeriod = time.Second           // of a log that cannot be written
	reserveName = "reserve"
)

// item is what one caller wants written, all of it or nothing.
type item struct {
	events []encoded
	bytes  int
	done   chan error // nil: nobody waits
}

// log is the audit log: many callers, one goroutine that writes.
type log struct {
	o    Options
	say  *slog.Logger
	g    segments
	asks chan struct{} // held by who reads all of the log for a report
	wake chan struct{}
	quit chan struct{}
	over chan struct{}

	mu      sync.Mutex
	queue   []*item
	queued  int
	timed   bool // a wake-up for notes is on its way
	closed  bool
	why     string // Append refuses decisions
	full    bool   // room is what is missing
	limping bool   // but what ends something is written, into the reserve
	lost    uint64 // notes that there was no room for
	head    api.Head
	recent  ring
	grown   chan struct{} // closed when there is more
	budget  budget
	denials denials

	swept   time.Time
	pending []encoded // events of the log's own that come before all others
}

// loadLog takes in what is there. known is how far the log was at least, nil if
// it never had an event. Nothing is written before start, but the first line of
// a file.
func loadLog(d disk, dir string, o Options, known *api.Head) (*log, error) {
	l := &log{o: o, say: o.Log, asks: make(chan struct{}, 1), wake: make(chan struct{}, 1), quit: make(chan struct{}), over: make(chan struct{}),
		grown: make(chan struct{}), budget: budget{max: o.Budget}}
	l.g = segments{d: d, dir: dir, now: time.Now, seed: maphash.MakeSeed(), known: known}
	if err := l.g.load(); err != nil {
		return nil, fmt.Errorf("audit log in %s: %w", dir, err)
	}
	if err := l.g.ready(); err != nil {
		if !full(err) || len(l.g.list) == 0 {
			return nil, fmt.Errorf("audit log in %s: %w", dir, err)
		}
		l.trouble(err)
	}
	l.publish(nil)
	return l, nil
}

// start begins to write.
func (l *log) start() {
	if r := l.g.repair; r != nil {
		l.say.Warn("the audit log ended in the middle of a record; cut back to the last whole one", "segment", r.Segment, "bytes", r.Bytes)
		l.own(api.EventAuditRepaired, r)
	}
	if l.why == "" {
		if err := l.reserve(); err != nil {
			l.trouble(err)
		}
	}
	if l.why != "" || len(l.pending) > 0 {
		l.retry()
	}
	go l.run()
}

// own queues an event of the log itself, before all others. It is about the
// node, so those who run it see it.
func (l *log) own(kind string, data any) {
	raw, err := json.Marshal(data)
	if err == nil {
		var e encoded
		if e, err = encode(api.Event{Type: kind, Tenant: api.DefaultTenant, Actor: "system", Data: raw}); err == nil {
			l.pending = append(l.pending, e)
		}
	}
	if err != nil {
		l.say.Error("audit log: an event of its own", "type", kind, "error", err)
	}
}

func (l *log) append(ctx context.Context, events []api.Event) error {
	it := &item{done: make(chan error, 1)}
	for _, e := range events {
		enc, err := encode(e)
		if err != nil {
			return err
		}
		it.events = append(it.events, enc)
		it.bytes += len(enc.rest) + room
	}
	switch {
	case len(it.events) == 0:
		return nil
	case it.bytes > maxBatch:
		return refuse(api.CodeTooLarge, "more events at once than the audit log takes", "send less at once")
	}
	if ctx.Err() != nil {
		return refuse(api.CodeInterrupted, "the caller left before the record was written", "")
	}
	l.mu.Lock()
	ends := !slices.ContainsFunc(events, func(e api.Event) bool { return !follows(e.Type) })
	if err := l.open(); err != nil && (l.closed || !l.limping || !ends) {
		l.mu.Unlock()
		return err
	}
	for i := range it.events {
		if err := l.budget.charge(&it.events[i].event, len(it.events[i].rest), l.g.now()); err != nil {
			l.mu.Unlock()
			return err
		}
	}
	l.push(it)
	l.mu.Unlock()
	return l.await(ctx, it)
}

// open says whether a decision can be recorded now. With mu.
func (l *log) open() error {
	if l.closed {
		return refuse(api.CodeShuttingDown, "the audit log is closed", "try again when the daemon is back")
	}
	if l.why != "" {
		return l.unwritable()
	}
	return nil
}

// unwritable is the refusal of what cannot be recorded. With mu.
func (l *log) unwritable() error {
	hint := "the daemon's log and docs/audit.md; it goes on by itself when that is repaired"
	if l.full {
		hint = makeRoom
	}
	return refuse(api.CodeAuditFailed, "audit log: "+l.why+"; what cannot be recorded is not done", hint)
}

const makeRoom = "make room on the disk of the daemon's host that holds its state directory; it goes on by itself"

func (l *log) await(ctx context.Context, it *item) error {
	select {
	case err := <-it.done:
		return err
	case <-ctx.Done():
		// It may still be written; nothing follows from it.
		return refuse(api.CodeInterrupted, "audit log: the caller left before the record was on disk", "")
	}
}

func (l *log) note(e api.Event) error {
	enc, err := encode(e)
	if err != nil {
		return err
	}
	it := &item{events: []encoded{enc}, bytes: len(enc.rest) + room}
	l.mu.Lock()
	if l.closed {
		defer l.mu.Unlock()
		return l.open()
	}
	now := l.g.now()
	charge := func() error { return l.budget.charge(&it.events[0].event, len(enc.rest), now) }
	var counted bool
	if denial(e.Type) {
		counted, err = l.denials.take(enc.event, now, charge)
	} else {
		err = charge()
	}
	if counted || err != nil {
		l.mu.Unlock()
		return err
	}
	if l.queued+it.bytes <= maxQueue {
		l.push(it)
		l.mu.Unlock()
		return nil
	}
	if l.why != "" {
		defer l.mu.Unlock()
		l.lost++
		return l.unwritable()
	}
	it.done = make(chan error, 1) // too much waits already: this one waits as well
	l.push(it)
	l.mu.Unlock()
	return l.await(context.Background(), it)
}

// push adds to the queue. With mu.
func (l *log) push(it *item) {
	for i := range it.events {
		if e := &it.events[i].event; e.Type == api.EventSandboxEnded && e.SandboxID != "" {
			l.sum(l.denials.ended(e.SandboxID)) // before it
		}
	}
	l.queue = append(l.queue, it)
	l.queued += it.bytes
	switch {
	case it.done != nil:
		l.nudge()
	case !l.timed:
		l.timed = true
		time.AfterFunc(noteDelay, l.nudge)
	}
}

func (l *log) nudge() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// close writes what waits. Waiting followers are woken; they are told.
func (l *log) close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	l.sum(l.denials.due(l.g.now(), true))
	l.mu.Unlock()
	close(l.quit)
	<-l.over
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.grown)
	l.grown = make(chan struct{})
	if n := len(l.queue); n > 0 {
		return fmt.Errorf("audit log: %d events could not be written: %s", n, l.why)
	}
	return nil
}
