package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/audit"
)

const (
	recentEvents = 2048
	recentBytes  = 8 << 20
	maxScan      = 16 << 20 // bytes of log that one answer looks at
	maxAnswer    = 1 << 20  // bytes of events in one answer
	scanBreath   = 256 << 10
)

// ring holds the newest events, for those who follow.
type ring struct {
	events []api.Event
	bytes  int
}

func weight(e *api.Event) int {
	n := 256 + len(e.Data) + len(e.Session)
	for k, v := range e.Tags {
		n += len(k) + len(v)
	}
	return n
}

func (r *ring) add(events []api.Event) {
	for i := range events {
		r.bytes += weight(&events[i])
	}
	r.events = append(r.events, events...)
	drop := 0
	for drop < len(r.events) && (len(r.events)-drop > recentEvents || r.bytes > recentBytes) {
		r.bytes -= weight(&r.events[drop])
		drop++
	}
	if drop > 0 { // into a new array, so that the old events can go
		r.events = append(make([]api.Event, 0, recentEvents+len(events)), r.events[drop:]...)
	}
}

// after is the part of the ring behind a seq; ok if nothing between is missing.
func (r *ring) after(seq uint64) (part []api.Event, ok bool) {
	if len(r.events) == 0 || r.events[0].Seq > seq+1 {
		return nil, false
	}
	return r.events[min(uint64(len(r.events)), seq+1-r.events[0].Seq):], true
}

// filter is a query made ready: needles are bytes that a line must have before
// it is worth decoding.
type filter struct {
	q       Query
	needles [][]byte
}

func newFilter(q Query) filter {
	f := filter{q: q}
	need := func(field, value string) {
		if value == "" {
			return
		}
		if text, err := audit.Encode(value); err == nil {
			f.needles = append(f.needles, append([]byte(`"`+field+`":`), text...))
		}
	}
	need("sandbox_id", q.SandboxID)
	need("run_id", q.RunID)
	need("session", q.Session)
	need("tenant", q.Tenant)
	if len(q.Types) == 1 {
		need("type", q.Types[0])
	}
	return f
}

func (f *filter) may(body []byte) bool {
	for _, n := range f.needles {
		if !bytes.Contains(body, n) {
			return false
		}
	}
	return true
}

func (f *filter) match(e *api.Event) bool {
	q := &f.q
	return (q.Tenant == "" || e.Tenant == q.Tenant) &&
		(q.SandboxID == "" || e.SandboxID == q.SandboxID) &&
		(q.RunID == "" || e.RunID == q.RunID || e.Tags["run_id"] == q.RunID) &&
		(q.Session == "" || e.Session == q.Session || e.Tags["session"] == q.Session) &&
		(len(q.Types) == 0 || slices.Contains(q.Types, e.Type))
}

func (l *log) events(q Query) ([]api.Event, uint64, error) {
	if q.Limit <= 0 {
		q.Limit = 100
	}
	q.Limit = min(q.Limit, MaxEvents)
	f := newFilter(q)
	out := []api.Event{}
	next, size := q.After, 0
	take := func(e *api.Event) (more bool) {
		next = e.Seq
		if f.match(e) {
			out = append(out, *e)
			size += weight(e)
		}
		return len(out) < q.Limit && size < maxAnswer
	}
	l.mu.Lock()
	if q.After >= l.head.Seq {
		l.mu.Unlock()
		return out, next, nil
	}
	if part, ok := l.recent.after(q.After); ok {
		for i := range part {
			if !take(&part[i]) {
				break
			}
		}
		l.mu.Unlock()
		return out, next, nil
	}
	l.mu.Unlock()
	breathe := func(int) {}
	if q.Turn != nil {
		done, err := q.Turn()
		if err != nil {
			return nil, q.After, err
		}
		defer done()
		read := 0
		breathe = func(n int) {
			if read += n; read >= scanBreath {
				read = 0
				time.Sleep(time.Millisecond)
			}
		}
	}
	var asked []string
	for _, name := range []string{q.SandboxID, q.RunID, q.Session} {
		if name != "" {
			asked = append(asked, name)
		}
	}
	err := l.scan(q.After, maxScan, asked, func(last uint64) { next = last }, func(seq uint64, body []byte) (bool, error) {
		breathe(len(body))
		if !f.may(body) {
			next = seq
			return true, nil
		}
		var e api.Event
		if err := json.Unmarshal(body, &e); err != nil {
			return false, err
		}
		return take(&e), nil
	})
	return out, next, err
}

// scan calls f for the events behind a seq that are on disk, until it says no,
// or most bytes were looked at. Segments that surely have no event with all the
// names that are asked for are passed over.
func (l *log) scan(after uint64, most int64, asked []string, passed func(last uint64), f func(seq uint64, body []byte) (bool, error)) error {
	l.g.mu.RLock()
	list, off := slices.Clone(l.g.list), l.g.off
	pass := make([]bool, len(list))
	for i := range list {
		pass[i] = l.g.without(&list[i], asked)
	}
	l.g.mu.RUnlock()
	for i, s := range list {
		if s.last <= after || s.last < s.first {
			continue
		}
		if pass[i] {
			passed(s.last)
			continue
		}
		making := l.g.newMaker(&s, asked, after)
		size := s.size
		if !s.sealed {
			size = off
		}
		file, err := l.g.d.open(l.g.path(segmentName(s.n)))
		if errors.Is(err, os.ErrNotExist) {
			if !l.g.keeps(s.n) {
				continue // retention was faster
			}
			return refuse(api.CodeAuditFailed, "audit log: "+segmentName(s.n)+" is gone; an answer without it would not be whole",
				"berm audit verify; put the file back, or see docs/audit.md")
		}
		if err != nil {
			return err
		}
		from, err := locate(file, size, after)
		more := true
		lines := audit.NewReader(io.NewSectionReader(file, from, size-from))
		for err == nil && more {
			var line []byte
			if line, err = lines.Next(); err != nil {
				break
			}
			body := audit.EventBody(line)
			seq, ok := audit.EventSeq(body)
			if !ok || seq <= after {
				continue
			}
			making.take(body)
			more, err = f(seq, body)
			most -= int64(len(line))
			more = more && most > 0
		}
		file.Close()
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if !more {
			return nil
		}
		making.done()
	}
	return nil
}

// locate finds where to begin reading for the events behind a seq: at a line at
// or before the first of them. It searches in the file, so no index has to be
// kept however long the log gets.
func locate(f io.ReaderAt, size int64, after uint64) (int64, error) {
	lo, hi := int64(0), size
	for hi-lo > 64<<10 {
		mid := lo + (hi-lo)/2
		at, seq, ok, err := lineAfter(f, mid, hi)
		if err != nil {
			return 0, err
		}
		if ok && seq <= after {
			lo = at
		} else {
			hi = mid
		}
	}
	return lo, nil
}

// lineAfter finds the first event that begins behind from and before to.
func lineAfter(f io.ReaderAt, from, to int64) (at int64, seq uint64, ok bool, err error) {
	buf := make([]byte, 16<<10)
	for from < to {
		n, err := f.ReadAt(buf[:min(int64(len(buf)), to-from)], from)
		if n == 0 && err != nil {
			return 0, 0, false, err
		}
		i := bytes.IndexByte(buf[:n], '\n')
		if i < 0 {
			from += int64(n)
			continue
		}
		at = from + int64(i) + 1
		if at >= to {
			return 0, 0, false, nil
		}
		n, err = f.ReadAt(buf[:256], at)
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, 0, false, err
		}
		seq, ok = audit.SeqAt(buf[:n])
		return at, seq, ok, nil
	}
	return 0, 0, false, nil
}

func (l *log) wait(ctx context.Context, after uint64) error {
	for {
		l.mu.Lock()
		head, grown, closed := l.head.Seq, l.grown, l.closed
		l.mu.Unlock()
		if head > after {
			return nil
		}
		if closed {
			return refuse(api.CodeShuttingDown, "the audit log is closed", "try again when the daemon is back")
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// whole opens the log as it is now, from the anchor to the last line on disk.
func (l *log) whole(ctx context.Context) (r io.Reader, end audit.Chain, closeAll func(), err error) {
	l.g.mu.RLock()
	defer l.g.mu.RUnlock()
	var open []file
	closeAll = func() {
		for _, f := range open {
			f.Close()
		}
	}
	parts := []io.Reader{bytes.NewReader(l.g.anchor)}
	for _, s := range l.g.list {
		f, err := l.g.d.open(l.g.path(segmentName(s.n)))
		if err != nil {
			closeAll()
			return nil, end, nil, err
		}
		open = append(open, f)
		size := l.g.off
		if s.sealed {
			// All that is there, so that what somebody put behind the seal shows.
			if size, err = f.Size(); err != nil {
				closeAll()
				return nil, end, nil, err
			}
		}
		parts = append(parts, io.NewSectionReader(f, 0, size))
	}
	return &patient{ctx, io.MultiReader(parts...)}, l.g.chain, closeAll, nil
}

// patient reads until its context ends.
type patient struct {
	ctx context.Context
	r   io.Reader
}

func (p *patient) Read(b []byte) (int, error) {
	if err := p.ctx.Err(); err != nil {
		return 0, err
	}
	return p.r.Read(b)
}

func (l *log) verify(ctx context.Context, head *api.Head) (api.Verification, error) {
	r, end, done, err := l.whole(ctx)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return api.Verification{Problem: "a segment is missing: " + reason(err), TailUnproven: true}, nil
		}
		return api.Verification{}, err
	}
	defer done()
	v, last, err := audit.Check(r, head)
	if err == nil && v.OK && (v.LastSeq != end.LastSeq || last != end.LastHash) {
		v.OK, v.TailUnproven = false, true
		v.Problem, v.AtSeq = "the files are not what this daemon wrote into them", v.LastSeq
	}
	return v, err
}
