package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/audit"
)

func testLog(t *testing.T, d disk, o Options) *log {
	t.Helper()
	return testLogAt(t, d, o, time.Now)
}

// testLogAt is testLog with a clock of the test's own, there before the writer runs.
func testLogAt(t *testing.T, d disk, o Options, now func() time.Time) *log {
	t.Helper()
	l, err := loadLog(d, "/s/audit", o.withDefaults(), &api.Head{})
	if err != nil {
		t.Fatal(err)
	}
	l.g.now = now
	l.start()
	t.Cleanup(func() { _ = l.close() })
	return l
}

// A handClock stands still until it is moved; any goroutine may read it.
type handClock struct{ at atomic.Int64 }

func newHandClock() *handClock {
	c := &handClock{}
	c.at.Store(time.Now().UnixNano())
	return c
}

func (c *handClock) now() time.Time       { return time.Unix(0, c.at.Load()) }
func (c *handClock) move(d time.Duration) { c.at.Add(int64(d)) }

// openLog opens what was at least at known; nil: whatever is there.
func openLog(d disk, o Options, known *api.Head) (*log, error) {
	if known == nil {
		known = &api.Head{}
	}
	l, err := loadLog(d, "/s/audit", o.withDefaults(), known)
	if err == nil {
		l.start()
	}
	return l, err
}

func event(kind, sandbox, data string) api.Event {
	return api.Event{Type: kind, Tenant: "default", Actor: "t1", SandboxID: sandbox, RunID: "r1", Tags: map[string]string{"k": "<v>"}, Data: json.RawMessage(data)}
}

func mustAppend(t *testing.T, l *log, events ...api.Event) {
	t.Helper()
	if err := l.append(context.Background(), events); err != nil {
		t.Fatal(err)
	}
}

func all(t *testing.T, l *log, q Query) []api.Event {
	t.Helper()
	var out []api.Event
	for {
		part, next, err := l.events(q)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, part...)
		l.mu.Lock()
		head := l.head.Seq
		l.mu.Unlock()
		if next == q.After || next >= head {
			return out
		}
		q.After = next
	}
}

func mustVerify(t *testing.T, l *log, head *api.Head) api.Verification {
	t.Helper()
	v, err := l.verify(context.Background(), head)
	if err != nil || !v.OK {
		t.Fatalf("verify: %+v, %v", v, err)
	}
	return v
}

// TestEncoding: an event that is put together from parts is what json says.
func TestEncoding(t *testing.T) {
	e := event("exec.started", "s1", `{"args":["a<b","\u2028"],"n":1}`)
	enc, err := encode(e)
	if err != nil {
		t.Fatal(err)
	}
	got := enc.body(7, "2026-01-02T03:04:05Z")
	want, err := audit.Encode(enc.event)
	if err != nil || string(got) != string(want) {
		t.Fatalf("%s\n%s\n%v", got, want, err)
	}
	if seq, ok := audit.EventSeq(got); !ok || seq != 7 {
		t.Fatal("no seq", seq, ok)
	}
	for _, bad := range []api.Event{{}, event("x.y", "", `[]`), event("x.y", "", `{`), {Type: "x.y", ID: `"`},
		event("x.y", "", `{"a":"`+strings.Repeat("x", audit.MaxLine)+`"}`)} {
		if _, err := encode(bad); err == nil {
			t.Errorf("%.80v is taken", bad)
		}
	}
	for depth := 9_990; depth < 10_010; depth++ { // what is taken can be read back
		enc, err := encode(event("x.y", "s", `{"a":`+strings.Repeat("[", depth)+strings.Repeat("]", depth)+"}"))
		if err != nil {
			continue
		}
		line, _ := audit.Append(nil, audit.Hash{}, audit.KindEvent, enc.body(1, "t"))
		if _, err := audit.Parse(line); err != nil {
			t.Errorf("depth %d: %v", depth, err)
		}
	}
	odd := event("x.y", "s", "{\"a\":\"\xff\"}")
	odd.Session = "\xff\x00"
	enc, err = encode(odd)
	if err != nil {
		t.Fatal(err)
	}
	var back api.Event
	if err := json.Unmarshal(enc.body(1, "t"), &back); err != nil || !json.Valid(enc.rest) {
		t.Fatal(err)
	}
}

// TestGroupCommit: many appends at once share their fsyncs.
func TestGroupCommit(t *testing.T) {
	d := newMemDisk(1)
	l := testLog(t, d, Options{})
	mustAppend(t, l, event("a.b", "", ""))
	var wg sync.WaitGroup
	one := func(i int) {
		wg.Go(func() { mustAppend(t, l, event("a.b", "s", fmt.Sprintf(`{"i":%d}`, i))) })
	}
	synced := func() int {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.syncs
	}
	before := synced()
	gate := make(chan struct{})
	d.mu.Lock()
	d.gate = gate
	d.mu.Unlock()
	one(0)
	eventually(t, func() bool { return synced() > before })
	for i := 1; i < 100; i++ {
		one(i)
	}
	eventually(t, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.queue) == 99
	})
	d.mu.Lock()
	d.gate = nil
	d.mu.Unlock()
	close(gate)
	wg.Wait()
	if syncs := synced() - before; syncs != 2 {
		t.Errorf("%d fsyncs for 100 appends at once", syncs)
	}
	if n := len(all(t, l, Query{Types: []string{"a.b"}, SandboxID: "s", Limit: 7})); n != 100 {
		t.Errorf("%d events of 100", n)
	}
}

func TestNotes(t *testing.T) {
	d := newMemDisk(1)
	l := testLog(t, d, Options{})
	start := time.Now()
	if err := l.note(event("exec.ended", "s1", `{"exit_code":1}`)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := l.wait(ctx, l.headSeq()); err != nil && l.headSeq() == 0 {
		t.Fatal(err)
	}
	if took := time.Since(start); took > time.Second {
		t.Errorf("a note took %v", took)
	}
	mustAppend(t, l, event("exec.started", "s1", ""))
	got := all(t, l, Query{SandboxID: "s1"})
	if len(got) != 2 || got[0].Type != "exec.ended" || got[0].Seq+1 != got[1].Seq {
		t.Errorf("%+v", got)
	}
}

func (l *log) headSeq() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.head.Seq
}

func TestDenials(t *testing.T) {
	clock := newHandClock()
	l := testLogAt(t, newMemDisk(1), Options{}, clock.now)
	for range 1000 {
		if err := l.note(event(api.EventDenied, "s1", `{"target":"GET /v1/tokens","reason":"role"}`)); err != nil {
			t.Fatal(err)
		}
	}
	for _, count := range []int{0, 30, 7} { // the last two are told as one, with all that they count
		if err := l.note(event(api.EventDenied, "s1", fmt.Sprintf(`{"target":"other","reason":"role","count":%d}`, count))); err != nil {
			t.Fatal(err)
		}
	}
	clock.move(denialWindow)
	l.mu.Lock()
	l.sum(l.denials.due(clock.now(), false))
	l.mu.Unlock()
	mustAppend(t, l, event("a.b", "", ""))
	got := all(t, l, Query{Types: []string{api.EventDenied}})
	if len(got) != 4 {
		t.Fatalf("%d events: %+v", len(got), got)
	}
	var data struct {
		Count  int    `json:"count"`
		Target string `json:"target"`
	}
	counts := map[string]int{}
	for _, e := range got[2:] {
		if err := json.Unmarshal(e.Data, &data); err != nil {
			t.Fatal(err)
		}
		counts[data.Target] = data.Count
	}
	if counts["GET /v1/tokens"] != 999 || counts["other"] != 37 {
		t.Errorf("%v", counts)
	}
	for i := range 3 * maxDenials { // no target makes it grow without end
		if err := l.note(event(api.EventDenied, "", fmt.Sprintf(`{"target":"t%d"}`, i))); err != nil {
			t.Fatal(err)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.denials.open); n > maxDenials+1 {
		t.Errorf("%d windows", n)
	}
}

// TestDenialsEnd: what was counted of a sandbox is told before its end, however
// that is written, and that of others is not hurried.
func TestDenialsEnd(t *testing.T) {
	for _, noted := range []bool{false, true} {
		clock := newHandClock()
		l := testLogAt(t, newMemDisk(1), Options{}, clock.now)
		for range 5 {
			for _, sandbox := range []string{"s1", "s2"} {
				if err := l.note(event(api.EventEgressDenied, sandbox, `{"target":"192.0.2.1:22"}`)); err != nil {
					t.Fatal(err)
				}
			}
		}
		if end := event(api.EventSandboxEnded, "s1", ""); noted {
			if err := l.note(end); err != nil {
				t.Fatal(err)
			}
		} else {
			mustAppend(t, l, end)
		}
		mustAppend(t, l, event("a.b", "", ""))
		got := all(t, l, Query{SandboxID: "s1"})
		if len(got) != 3 || got[1].Type != api.EventEgressDenied || !strings.Contains(string(got[1].Data), `"count":4`) || got[2].Type != api.EventSandboxEnded {
			t.Errorf("noted %v: %+v", noted, got)
		}
		if got := all(t, l, Query{SandboxID: "s2"}); len(got) != 1 {
			t.Errorf("noted %v: the other sandbox: %+v", noted, got)
		}
	}
}

// TestDenialsBudget: a sandbox over its budget has nothing more written, not
// even at the end of a window.
func TestDenialsBudget(t *testing.T) {
	clock := newHandClock()
	l := testLogAt(t, newMemDisk(1), Options{Budget: Budget{Events: 10, Bytes: 1 << 20}}, clock.now)
	refused := 0
	for i := range 100 {
		for range 3 {
			if err := l.note(event(api.EventEgressDenied, "s1", fmt.Sprintf(`{"target":"192.0.2.%d:22"}`, i))); errors.Is(err, ErrBudget) {
				refused++
			} else if err != nil {
				t.Fatal(err)
			}
		}
	}
	mustAppend(t, l, event(api.EventSandboxEnded, "s1", ""))
	if got := all(t, l, Query{SandboxID: "s1", Types: []string{api.EventEgressDenied}}); len(got) != 10 || refused != 3*95 {
		t.Errorf("%d events of at most 10, %d refused", len(got), refused)
	}
}

func TestBudget(t *testing.T) {
	clock := newHandClock()
	l := testLogAt(t, newMemDisk(1), Options{Budget: Budget{Events: 100, Bytes: 1 << 20}}, clock.now)
	flood := func(kind, sandbox string) (n int) {
		for n < 5000 {
			if err := l.note(event(kind, sandbox, "")); err != nil {
				if !errors.Is(err, ErrBudget) {
					t.Fatal(err)
				}
				return n
			}
			n++
		}
		return n
	}
	if n := flood("cap.hit", "s1"); n != 100 {
		t.Errorf("%d events before the budget", n)
	}
	if n := flood("file.read", "s2"); n != 1000 {
		t.Errorf("%d file events before the budget", n)
	}
	if err := l.append(context.Background(), []api.Event{event("exec.started", "s1", "")}); !errors.Is(err, ErrBudget) {
		t.Errorf("append: %v", err)
	}
	for _, kind := range []string{"sandbox.ended", "exec.ended"} {
		if err := l.note(event(kind, "s1", "")); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
	if n := flood("cap.hit", "s3"); n != 100 {
		t.Errorf("another sandbox had %d", n)
	}
	clock.move(time.Minute)
	if n := flood("cap.hit", "s1"); n != 100 {
		t.Errorf("%d in the next minute", n)
	}
}

// TestRotation: small segments, all kinds of query over them, retention.
func TestRotation(t *testing.T) {
	d := newMemDisk(1)
	o := Options{SegmentBytes: 4 << 10, MaxBytes: 256 << 10}
	l := testLog(t, d, o)
	for i := range 400 {
		mustAppend(t, l, event("a.b", fmt.Sprintf("s%d", i%7), fmt.Sprintf(`{"i":%d}`, i)))
	}
	l.mu.Lock()
	l.recent = ring{} // so that all comes from disk
	l.mu.Unlock()
	got := all(t, l, Query{Types: []string{"a.b"}, Limit: 13})
	if len(got) != 400 {
		t.Fatalf("%d of 400", len(got))
	}
	if got := all(t, l, Query{SandboxID: "s3", Tenant: "default"}); len(got) != 57 {
		t.Errorf("%d of 57", len(got))
	}
	if got := all(t, l, Query{SandboxID: "s3", Tenant: "other"}); len(got) != 0 {
		t.Errorf("%d of another tenant", len(got))
	}
	for _, e := range got {
		part, next, err := l.events(Query{After: e.Seq - 1, Limit: 1})
		if err != nil || len(part) != 1 || part[0].ID != e.ID || next != e.Seq {
			t.Fatalf("after %d: %+v, %d, %v", e.Seq-1, part, next, err)
		}
	}
	head := l.headCopy()
	v := mustVerify(t, l, &head)
	if v.TailUnproven || v.Sealed < 10 || v.Sealed != v.Segments-1 {
		t.Errorf("%+v", v)
	}
	if sealed := all(t, l, Query{Types: []string{api.EventAuditSealed}}); len(sealed) != v.Sealed {
		t.Errorf("%d seals recorded of %d", len(sealed), v.Sealed)
	}
	if err := l.close(); err != nil {
		t.Fatal(err)
	}

	o.MaxBytes = 40 << 10
	l = testLog(t, d, o)
	l.sweepNow(t)
	if n := d.has(".log"); n > 11 {
		t.Errorf("%d segments are left", n)
	}
	head = l.headCopy()
	if v = mustVerify(t, l, &head); v.FirstSeq == 1 || v.TailUnproven {
		t.Errorf("%+v", v)
	}
	if got := all(t, l, Query{Types: []string{api.EventAuditRemoved}}); len(got) != 1 {
		t.Errorf("%d removals recorded", len(got))
	}
	if err := l.close(); err != nil {
		t.Fatal(err)
	}
	l = testLog(t, d, o)
	mustAppend(t, l, event("a.b", "", ""))
	mustVerify(t, l, &head)
}

// TestSieve: a question about one sandbox reads the segments that have it, those
// of an earlier process after the first time too.
func TestSieve(t *testing.T) {
	d := newMemDisk(1)
	o := Options{SegmentBytes: 4 << 10, MaxBytes: 512 << 10}
	l := testLog(t, d, o)
	for i := range 300 {
		e := event("a.b", fmt.Sprintf("s%d", i/30), "")
		e.RunID, e.Session = "", ""
		e.Tags = map[string]string{"run_id": fmt.Sprintf("r%d", i/30), "session": "all"}
		mustAppend(t, l, e)
	}
	ask := func(l *log) (read int) {
		t.Helper()
		l.mu.Lock()
		l.recent = ring{}
		l.mu.Unlock()
		for _, q := range []Query{{SandboxID: "s4"}, {RunID: "r4"}, {RunID: "r4", SandboxID: "s4"}} {
			if got := all(t, l, q); len(got) != 30 {
				t.Errorf("%+v: %d of 30", q, len(got))
			}
		}
		if got := all(t, l, Query{Session: "all"}); len(got) != 300 {
			t.Errorf("%d of 300", len(got))
		}
		if got := all(t, l, Query{SandboxID: "none"}); len(got) != 0 {
			t.Errorf("%d of none", len(got))
		}
		if r, err := l.report(context.Background(), "default", "r4"); err != nil || r.Events != 30 {
			t.Errorf("%d, %v", r.Events, err)
		}
		l.g.mu.RLock()
		defer l.g.mu.RUnlock()
		for i := range l.g.list {
			if !l.g.without(&l.g.list[i], []string{"s4"}) {
				read++
			}
		}
		return read
	}
	segments := d.has(".log")
	if n := ask(l); n > segments/4 {
		t.Errorf("%d of %d segments are read for one sandbox", n, segments)
	}
	if err := l.close(); err != nil {
		t.Fatal(err)
	}
	if n := ask(testLog(t, d, o)); n > segments/4+2 {
		t.Errorf("%d of %d segments are read for one sandbox, after a start", n, segments)
	}
}

// sweepNow has the writer sweep.
func (l *log) sweepNow(t *testing.T) {
	t.Helper()
	if err := l.close(); err != nil {
		t.Fatal(err)
	}
	if err := l.g.ready(); err != nil {
		t.Fatal(err)
	}
	l.sweep()
}

func (l *log) headCopy() api.Head {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.head
}

// TestFull: a full disk refuses decisions before they are made, records what
// was decided before in its reserve, and goes on when there is room.
func TestFull(t *testing.T) {
	d := newMemDisk(1)
	l := testLog(t, d, Options{ReserveBytes: 64 << 10})
	mustAppend(t, l, event("a.b", "s", ""))
	d.mu.Lock()
	d.room = d.used + 10_000
	d.mu.Unlock()
	acked := 1
	var err error
	for err == nil {
		if err = l.append(context.Background(), []api.Event{event("a.b", "s", "")}); err == nil {
			acked++
		}
	}
	var e *api.Error
	if !errors.As(err, &e) || e.Code != api.CodeAuditFailed || e.Hint == "" {
		t.Fatalf("%v", err)
	}
	if err := l.append(context.Background(), []api.Event{event("a.b", "s", "")}); err == nil {
		t.Error("an append while the disk is full")
	}
	if err := l.note(event("sandbox.ended", "s", "")); err != nil {
		t.Error(err)
	}
	eventually(t, func() bool {
		return len(all(t, l, Query{Types: []string{api.EventHostDegraded}})) == 1 && len(all(t, l, Query{Types: []string{"sandbox.ended"}})) == 1
	})
	mustAppend(t, l, event("exec.ended", "s", ""), event("sandbox.ended", "s", ""))
	if err := l.append(context.Background(), []api.Event{event("exec.ended", "s", ""), event("a.b", "s", "")}); err == nil {
		t.Error("a decision beside an end while the disk is full")
	}
	for err = nil; err == nil; { // until the reserve is used up as well
		err = l.append(context.Background(), []api.Event{event("exec.ended", "s", "")})
	}
	if !errors.As(err, &e) || e.Code != api.CodeAuditFailed {
		t.Fatalf("%v", err)
	}
	if err := l.note(event("exec.ended", "late", "")); err != nil {
		t.Error(err)
	}
	d.mu.Lock()
	d.room = -1
	d.mu.Unlock()
	eventually(t, func() bool {
		err = l.append(context.Background(), []api.Event{event("a.b", "s", "")})
		return err == nil
	})
	acked++
	if got := all(t, l, Query{Types: []string{"a.b"}, Limit: MaxEvents}); len(got) != acked {
		t.Errorf("%d events, %d were acknowledged", len(got), acked)
	}
	if got := all(t, l, Query{SandboxID: "late"}); len(got) != 1 {
		t.Errorf("%d of what had to wait in memory", len(got))
	}
	if got := all(t, l, Query{Types: []string{api.EventHostDegraded}}); len(got) != 2 || !strings.Contains(string(got[1].Data), "recovered") {
		t.Errorf("%+v", got)
	}
	head := l.headCopy()
	mustVerify(t, l, &head)
}

func eventually(t *testing.T, f func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it never happened")
		}
	}
}

// ack is an event that Append took, and the least seq that it can have.
type ack struct {
	id  string
	seq uint64
}

// script is what the crash tests do.
func script(d *memDisk) (acked []ack, head api.Head) {
	l, err := openLog(d, Options{SegmentBytes: 3 << 10, MaxBytes: 9 << 10, ReserveBytes: 4 << 10}, nil)
	if err != nil {
		return nil, head
	}
	l.o.SegmentBytes = 3 << 10
	for i := range 24 {
		id := fmt.Sprintf("e%032d", i)
		e := event("a.b", "s", fmt.Sprintf(`{"i":%d}`, i))
		e.ID = id
		least := l.headSeq() + 1
		if l.append(context.Background(), []api.Event{e}) == nil {
			acked = append(acked, ack{id, least})
			head = l.headCopy()
		}
		_ = l.note(event("exec.ended", "s", ""))
	}
	l.sweepQuiet()
	return acked, head
}

func (l *log) sweepQuiet() {
	_ = l.close()
	if l.g.ready() == nil {
		l.sweep()
	}
}

// TestCrash stops the machine at every operation that changes the disk: what
// was acknowledged is there, the chain holds, and the log goes on.
func TestCrash(t *testing.T) {
	whole := newMemDisk(1)
	_, _ = script(whole)
	ops := whole.ops
	if ops < 100 {
		t.Fatalf("only %d operations", ops)
	}
	for at := 1; at <= ops; at++ {
		for seed := range uint64(3) {
			d := newMemDisk(seed)
			d.killAt = at
			acked, head := script(d)
			after := d.crash()
			l, err := openLog(after, Options{ReserveBytes: 4 << 10}, &head)
			if err != nil {
				t.Fatalf("killed at %d: %v", at, err)
			}
			checkAcked(t, fmt.Sprintf("killed at %d, seed %d", at, seed), l, acked, head)
		}
	}
	t.Logf("%d places to stop, 3 ways each", ops)
}

// TestFault fails every operation once, and the log goes on by itself.
func TestFault(t *testing.T) {
	whole := newMemDisk(1)
	_, _ = script(whole)
	for _, fault := range []error{syscall.EIO, syscall.ENOSPC} {
		for at := 1; at <= whole.ops; at++ {
			d := newMemDisk(uint64(at))
			d.failAt, d.err = at, fault
			acked, head := script(d)
			l, err := openLog(d.crash(), Options{ReserveBytes: 4 << 10}, &head)
			if err != nil {
				t.Fatalf("%v at %d: %v", fault, at, err)
			}
			checkAcked(t, fmt.Sprintf("%v at %d", fault, at), l, acked, head)
		}
	}
}

func checkAcked(t *testing.T, what string, l *log, acked []ack, head api.Head) {
	t.Helper()
	defer l.close()
	v, err := l.verify(context.Background(), nil)
	if err != nil || !v.OK {
		t.Fatalf("%s: %+v, %v", what, v, err)
	}
	if head.Seq >= v.FirstSeq && head.Seq > 0 {
		if v, err = l.verify(context.Background(), &head); err != nil || !v.OK {
			t.Fatalf("%s: against the last acknowledged head: %+v, %v", what, v, err)
		}
	}
	got := all(t, l, Query{Types: []string{"a.b"}, Limit: MaxEvents})
	var ids []string
	for _, e := range got {
		ids = append(ids, e.ID)
	}
	for _, a := range acked { // retention may have taken the oldest, only those
		if a.seq >= v.FirstSeq && !slices.Contains(ids, a.id) {
			t.Fatalf("%s: %s was acknowledged and is lost (%d of %d are there)", what, a.id, len(ids), len(acked))
		}
	}
	if err := l.append(context.Background(), []api.Event{event("a.b", "s", "")}); err != nil {
		t.Fatalf("%s: it does not go on: %v", what, err)
	}
	if v, err := l.verify(context.Background(), nil); err != nil || !v.OK {
		t.Fatalf("%s: afterwards: %+v, %v", what, v, err)
	}
}

// One answer is bounded in bytes, and who reads from disk waits for a turn.
func TestAnswerBytes(t *testing.T) {
	l := testLog(t, newMemDisk(1), Options{})
	big := `{"x":"` + strings.Repeat("x", 30<<10) + `"}`
	for range 100 {
		mustAppend(t, l, event("a.b", "s", big))
	}
	turns, over := 0, 0
	turn := func() (func(), error) { turns++; return func() { over++ }, nil }
	for range 2 {
		got, next, err := l.events(Query{Limit: 1000, Turn: turn})
		if err != nil || len(got) < 20 || len(got) > 40 || next != got[len(got)-1].Seq {
			t.Errorf("%d events, next %d, %v", len(got), next, err)
		}
		l.mu.Lock()
		l.recent = ring{}
		l.mu.Unlock()
	}
	if turns != 1 || over != 1 {
		t.Errorf("%d turns, %d over", turns, over)
	}
	if _, _, err := l.events(Query{Turn: func() (func(), error) { return nil, io.ErrUnexpectedEOF }}); err != io.ErrUnexpectedEOF {
		t.Error(err)
	}
}
