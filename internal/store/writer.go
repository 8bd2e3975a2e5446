package store

import (
	"errors"
	"syscall"
	"time"

	"github.com/bermhq/berm/api"
)

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
	if !troubled {
		if err := l.g.inPlace(); err != nil {
			l.fail(nil, err)
			troubled = true
		}
	}
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
	l.g.mark(all)
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

// full says whether room is what is missing.
func full(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
