package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"syscall"
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
	wake chan struct{}
	quit chan struct{}
	over chan struct{}

	mu      sync.Mutex
	queue   []*item
	queued  int
	timed   bool // a wake-up for notes is on its way
	closed  bool
	why     string // Append refuses everything
	lost    uint64 // notes that there was no room for
	head    api.Head
	recent  ring
	grown   chan struct{} // closed when there is more
	budget  budget
	denials denials

	swept   time.Time
	pending []encoded // events of the log's own that come before all others
}

func openLog(d disk, dir string, o Options) (*log, error) {
	l := &log{o: o, say: o.Log, wake: make(chan struct{}, 1), quit: make(chan struct{}), over: make(chan struct{}),
		grown: make(chan struct{}), budget: budget{max: o.Budget}}
	l.g = segments{d: d, dir: dir, now: time.Now}
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
	return l, nil
}

// own queues an event of the log itself, before all others.
func (l *log) own(kind string, data any) {
	raw, err := json.Marshal(data)
	if err == nil {
		var e encoded
		if e, err = encode(api.Event{Type: kind, Actor: "system", Data: raw}); err == nil {
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
	l.mu.Lock()
	if err := l.open(); err != nil {
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
		return unwritable(l.why)
	}
	return nil
}

func unwritable(why string) error {
	return refuse(api.CodeAuditFailed, "audit log: "+why+"; what cannot be recorded is not done",
		"make room on the disk of the state directory; it goes on by itself")
}

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
	if denial(e.Type) && l.denials.repeated(enc.event, now) {
		l.mu.Unlock()
		return nil
	}
	if err := l.budget.charge(&it.events[0].event, len(enc.rest), now); err != nil {
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
		return unwritable(l.why)
	}
	it.done = make(chan error, 1) // too much waits already: this one waits as well
	l.push(it)
	l.mu.Unlock()
	return l.await(context.Background(), it)
}

// push adds to the queue. With mu.
func (l *log) push(it *item) {
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

// run is the goroutine that writes.
func (l *log) run() {
	defer close(l.over)
	tick := time.NewTicker(retryPeriod)
	defer tick.Stop()
	for {
		select {
		case <-l.wake:
			l.flush()
		case <-tick.C:
			l.keep()
		case <-l.quit:
			l.flush()
			if err := l.g.close(); err != nil {
				l.say.Error("audit log: close", "error", err)
			}
			return
		}
	}
}

// keep does what time brings: sums of denials, retention, another try.
func (l *log) keep() {
	now := l.g.now()
	l.mu.Lock()
	l.sum(l.denials.due(now, false))
	troubled := l.why != ""
	l.mu.Unlock()
	if troubled {
		l.retry()
	}
	l.flush()
	if now.Sub(l.swept) > time.Minute {
		l.sweep()
	}
}

// sum queues the counts of denials. With mu.
func (l *log) sum(events []api.Event) {
	for _, e := range events {
		if enc, err := encode(e); err == nil {
			l.push(&item{events: []encoded{enc}, bytes: len(enc.rest) + room})
		}
	}
}

// flush writes all that waits, with one fsync for each batch.
func (l *log) flush() {
	for {
		l.mu.Lock()
		l.timed = false
		if l.why != "" && l.g.tail == nil { // tried again by the clock, not by every caller
			l.mu.Unlock()
			return
		}
		batch := l.take()
		l.mu.Unlock()
		if len(batch) == 0 && len(l.pending) == 0 {
			return
		}
		if err := l.commit(batch); err != nil {
			l.fail(batch, err)
			return
		}
	}
}

// take removes the next batch from the queue. With mu.
func (l *log) take() []*item {
	n, size := 0, 0
	for n < len(l.queue) && (n == 0 || size+l.queue[n].bytes <= maxBatch) {
		size += l.queue[n].bytes
		n++
	}
	batch := l.queue[:n:n]
	l.queue = l.queue[n:]
	if len(l.queue) == 0 {
		l.queue = nil
	}
	l.queued -= size
	return batch
}

// commit writes a batch behind what the log has to say itself, into one segment.
func (l *log) commit(batch []*item) error {
	if err := l.g.ready(); err != nil {
		return err
	}
	if err := l.rotate(); err != nil {
		return err
	}
	var (
		all   = l.pending
		lines []byte
		chain = l.g.chain
		now   = stamp(l.g.now())
	)
	for _, it := range batch {
		all = append(all, it.events...)
	}
	if len(all) == 0 {
		return nil
	}
	events := make([]api.Event, len(all))
	for i := range all {
		lines = chain.Add(lines, all[i].body(chain.NextSeq, now))
		events[i] = all[i].event
	}
	if err := l.g.write(lines, chain); err != nil {
		return err
	}
	l.pending = nil
	l.publish(events)
	for _, it := range batch {
		if it.done != nil {
			it.done <- nil
		}
	}
	return nil
}

// publish shows readers what is on disk now.
func (l *log) publish(events []api.Event) {
	c := &l.g.chain
	l.mu.Lock()
	defer l.mu.Unlock()
	l.head = api.Head{Seq: c.LastSeq, Key: l.g.pub, Time: stamp(l.g.now())}
	if c.LastSeq > 0 {
		l.head.Hash = c.LastHash.String()
	}
	l.recent.add(events)
	close(l.grown)
	l.grown = make(chan struct{})
}

// rotate seals a segment that is big or old enough, and begins the next.
func (l *log) rotate() error {
	last := &l.g.list[len(l.g.list)-1]
	records := last.last + 1 - last.first
	if l.g.off < l.o.SegmentBytes && (l.g.now().Sub(last.began) < l.o.SegmentAge || records < 2) || records == 0 {
		return nil
	}
	s, err := l.g.seal()
	if err != nil {
		return err
	}
	l.own(api.EventAuditSealed, map[string]any{"segment": s.N, "first_seq": s.FirstSeq, "last_seq": s.LastSeq,
		"records": s.Records, "hash": l.g.chain.LastHash.String(), "signature": s.Signature})
	l.swept = time.Time{}
	return l.g.ready()
}

// sweep applies the retention: recorded first, then done.
func (l *log) sweep() {
	l.swept = l.g.now()
	if l.g.tail == nil {
		return
	}
	n := l.g.surplus(l.swept, l.o.Retention, l.o.MaxBytes)
	if n == 0 {
		return
	}
	gone := l.g.list[n-1]
	l.own(api.EventAuditRemoved, map[string]any{"through_segment": gone.n, "last_seq": gone.last, "last_time": stamp(gone.ended)})
	err := l.commit(nil)
	if err == nil {
		if err = l.g.drop(n); err == nil {
			return
		}
	}
	l.say.Error("audit log: retention", "error", err)
	if l.g.tail == nil {
		l.fail(nil, err)
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

// full says whether room is what is missing.
func full(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
