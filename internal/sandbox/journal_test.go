package sandbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/backend"
	"github.com/bermhq/berm/internal/sandbox"
	"github.com/bermhq/berm/internal/testkit"
)

// paper is a journal that outlives engines and can be broken.
type paper struct {
	mu      sync.Mutex
	events  []api.Event
	records map[string]json.RawMessage
	fail    func(what string) error // asked before anything is taken
}

func newPaper() *paper { return &paper{records: map[string]json.RawMessage{}} }

func (p *paper) broken(what string) error {
	p.mu.Lock()
	f := p.fail
	p.mu.Unlock()
	if f == nil {
		return nil
	}
	return f(what)
}

func (p *paper) breaks(f func(what string) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fail = f
}

func (p *paper) Append(ctx context.Context, events ...api.Event) error {
	for _, ev := range events {
		if err := p.broken(ev.Type); err != nil {
			return err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, ev := range events {
		ev.Seq, ev.Time = uint64(len(p.events)+1), time.Now().UTC().Format(time.RFC3339Nano)
		p.events = append(p.events, ev)
	}
	return nil
}

func (p *paper) Note(ev api.Event) error { return p.Append(context.Background(), ev) }

func (p *paper) Save(id string, record json.RawMessage) error {
	if err := p.broken("save"); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.records[id] = slices.Clone(record)
	return nil
}

func (p *paper) Load() (map[string]json.RawMessage, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.records), nil
}

func (p *paper) Drop(id string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.records, id)
	return nil
}

func (p *paper) Head() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return uint64(len(p.events))
}

func (p *paper) Replay(_ context.Context, after uint64, f func(api.Event) error) error {
	p.mu.Lock()
	events := slices.Clone(p.events[after:])
	p.mu.Unlock()
	for _, ev := range events {
		if err := f(ev); err != nil {
			return err
		}
	}
	return nil
}

// A pen is one engine's hold on a paper: after its death it writes nothing.
type pen struct {
	*paper
	dead atomic.Bool
}

var errDead = errors.New("this process is dead")

func (p *pen) Append(ctx context.Context, events ...api.Event) error {
	if p.dead.Load() {
		return errDead
	}
	return p.paper.Append(ctx, events...)
}

func (p *pen) Note(ev api.Event) error { return p.Append(context.Background(), ev) }

func (p *pen) Save(id string, record json.RawMessage) error {
	if p.dead.Load() {
		return errDead
	}
	return p.paper.Save(id, record)
}

func (p *pen) Drop(id string) error {
	if p.dead.Load() {
		return errDead
	}
	return p.paper.Drop(id)
}

// types are the events of a sandbox so far, by type.
func (p *paper) types(id string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []string
	for _, ev := range p.events {
		if ev.SandboxID == id || id == "" {
			out = append(out, ev.Type)
		}
	}
	return out
}

// last is the data of the latest event of a type.
func (p *paper) last(t *testing.T, typ string, to any) api.Event {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, ev := range slices.Backward(p.events) {
		if ev.Type == typ {
			if err := json.Unmarshal(ev.Data, to); err != nil {
				t.Fatal(err)
			}
			return ev
		}
	}
	t.Fatalf("no %s", typ)
	return api.Event{}
}

// newDurable is a rig with a journal.
func newDurable(t *testing.T, opt sandbox.Options) (*rig, *paper) {
	testkit.NoLeak(t)
	return newMortal(t, opt)
}

// newMortal is newDurable for tests in which the process dies: what waits in it
// waits for ever.
func newMortal(t *testing.T, opt sandbox.Options) (*rig, *paper) {
	p := newPaper()
	w := &pen{paper: p}
	opt.Journal = w
	r := newRigBeside(t, opt)
	r.pen = w
	return r, p
}

// successor is the engine after r's process died.
func (r *rig) successor(t *testing.T, opt sandbox.Options, p *paper) *rig {
	t.Helper()
	p.breaks(nil)
	r.pen.dead.Store(true)
	next := r.mem.Restart()
	f := &testkit.Flaky{Backend: next}
	w := &pen{paper: p}
	opt.Journal = w
	r.broker.Store(opt.Egress)
	n := &rig{Engine: sandbox.New([]backend.Backend{f}, opt), mem: next, flaky: f, t: t, pen: w, broker: r.broker}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if !w.dead.Load() {
			n.Close(ctx)
		}
	})
	return n
}

func code(err error) string {
	var ae *api.Error
	if errors.As(err, &ae) {
		return ae.Code
	}
	return fmt.Sprint(err)
}

// Every decision is on paper before its effect: where the paper fails, or does
// not answer, nothing happens.
func TestNothingWithoutARecord(t *testing.T) {

	for _, tt := range []struct {
		at   string
		do   func(r *rig, ctx context.Context, id string) error
		seen func(r *rig, id string) string // "" if nothing happened
	}{
		{"save", func(r *rig, ctx context.Context, id string) error {
			_, err := r.Create(ctx, api.CreateRequest{})
			return err
		}, func(r *rig, id string) string { return onlyOne(r) }},
		{api.EventSandboxCreated, func(r *rig, ctx context.Context, id string) error {
			_, err := r.Create(ctx, api.CreateRequest{})
			return err
		}, func(r *rig, id string) string { return onlyOne(r) }},
		{api.EventSandboxStarted, func(r *rig, ctx context.Context, id string) error {
			_, err := r.Create(ctx, api.CreateRequest{})
			return err
		}, func(r *rig, id string) string { return onlyOne(r) }},
		{api.EventExecStarted, func(r *rig, ctx context.Context, id string) error {
			_, err := r.Exec(ctx, id, api.ExecRequest{Args: []string{"put", "made", "x"}}, sandbox.Streams{})
			return err
		}, made},
		{api.EventExecStarted, func(r *rig, ctx context.Context, id string) error {
			_, err := r.Spawn(ctx, id, api.ExecRequest{Args: []string{"put", "made", "x"}})
			return err
		}, made},
		{api.EventSandboxPaused, func(r *rig, ctx context.Context, id string) error { return r.Pause(ctx, id) }, func(r *rig, id string) string {
			if sb, err := r.Get(t.Context(), id); err != nil || sb.State != "running" {
				return fmt.Sprint(sb.State, err)
			}
			return ""
		}},
		{api.EventSandboxChanged, func(r *rig, ctx context.Context, id string) error {
			ttl := 100.0
			_, err := r.SetLifecycle(ctx, id, api.LifecycleChange{TTLSeconds: &ttl})
			return err
		}, func(r *rig, id string) string {
			if l, err := r.Lifecycle(t.Context(), id); err != nil || l.TTLSeconds != api.DefaultTTLSeconds {
				return fmt.Sprint(l, err)
			}
			return ""
		}},
		{api.EventSandboxChanged, func(r *rig, ctx context.Context, id string) error {
			v := "y"
			_, err := r.SetTags(ctx, id, api.MetadataChange{Tags: map[string]*string{"x": &v}})
			return err
		}, func(r *rig, id string) string {
			if sb, err := r.Get(t.Context(), id); err != nil || len(sb.Tags) != 0 {
				return fmt.Sprint(sb.Tags, err)
			}
			return ""
		}},
	} {
		for _, how := range []string{"fails", "blocks"} {
			t.Run(tt.at+" "+how, func(t *testing.T) {
				opt := quick
				opt.Record = 100 * time.Millisecond
				r, p := newDurable(t, opt)
				id := r.create(t, api.Limits{})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				p.breaks(func(what string) error {
					if what != tt.at {
						return nil
					}
					if how == "blocks" && what != "save" {
						cancel() // its caller leaves
						return ctx.Err()
					}
					return errors.New("disk full")
				})
				err := tt.do(r, ctx, id)
				p.breaks(nil)
				if want := api.CodeAuditFailed; err == nil || how == "fails" && code(err) != want {
					t.Errorf("error = %v", err)
				}
				if s := tt.seen(r, id); s != "" {
					t.Errorf("it happened all the same: %s", s)
				}
				if l, _ := p.Load(); len(l) != 1 && tt.at != api.EventSandboxStarted { // that one began, and keeps its end
					t.Errorf("%d records", len(l))
				}
				if res, out := r.exec(t, id, "echo", "alive"); out != "alive\n" {
					t.Errorf("afterwards: %+v", res)
				}
			})
		}
	}

}

func onlyOne(r *rig) string {
	if n := r.mem.Live(); n != 1 {
		return fmt.Sprint(n, " instances")
	}
	return ""
}

func made(r *rig, id string) string {
	if _, err := r.Stat(context.Background(), id, "/workspace/made"); code(err) != api.CodeFileNotFound {
		return fmt.Sprint("the file: ", err)
	}
	return ""
}

// The log of a life, in order, and whose doing each part was.
func TestLog(t *testing.T) {
	r, p := newDurable(t, quick)
	ctx := sandbox.As(t.Context(), sandbox.Caller{Tenant: "acme", Actor: "t1", Role: api.RoleAgent})
	sb, err := r.Create(ctx, api.CreateRequest{Tags: map[string]string{"run_id": "r1", "session": "s1"}, Env: map[string]string{"SECRET": "x"}})
	if err != nil || sb.Session != "s1" || sb.TimingsMS["boot"] == 0 {
		t.Fatalf("%+v, %v", sb, err)
	}
	id := sb.SandboxID
	if _, err := r.Exec(ctx, id, api.ExecRequest{Cmd: "x"}, sandbox.Streams{}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.WriteFile(ctx, id, "/workspace/f", 0, strings.NewReader("hello")); err != nil {
		t.Fatal(err)
	}
	f, err := r.ReadFile(ctx, id, "/workspace/f", 100)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := readAll(f); err != nil || b != "hello" {
		t.Errorf("%q, %v", b, err)
	}
	for _, do := range []func(context.Context, string) error{r.Pause, r.Pause, r.Resume, r.Resume} {
		if err := do(ctx, id); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.Delete(ctx, id); err != nil {
		t.Fatal(err)
	}
	want := []string{api.EventSandboxCreated, api.EventSandboxStarted, api.EventExecStarted, api.EventExecEnded, api.EventFileWritten,
		api.EventFileRead, api.EventSandboxPaused, api.EventSandboxResumed, api.EventSandboxEnded}
	if got := p.types(id); !slices.Equal(got, want) {
		t.Errorf("events = %q", got)
	}
	for _, ev := range p.events {
		if ev.Tenant != "acme" || ev.Actor != "t1" || ev.Session != "s1" || ev.Tags["run_id"] != "r1" || strings.Contains(string(ev.Data), `"x"`) && ev.Type == api.EventSandboxCreated {
			t.Errorf("%+v %s", ev, ev.Data)
		}
	}
	var d struct {
		Bytes  int64
		SHA256 string
		Ending string
	}
	p.last(t, api.EventFileRead, &d)
	if d.Bytes != 5 || len(d.SHA256) != 64 {
		t.Errorf("%+v", d)
	}
	p.last(t, api.EventSandboxEnded, &d)
	if d.Ending != api.EndKilled {
		t.Errorf("%+v", d)
	}
}

// A sandbox that has written all that it may ends, and only that one.
func TestEventBudget(t *testing.T) {
	r, p := newDurable(t, quick)
	id, other := r.create(t, api.Limits{Pids: 8}), r.create(t, api.Limits{})
	p.breaks(func(what string) error {
		if what == api.EventCapHit {
			return fmt.Errorf("store: %w", sandbox.ErrBudget)
		}
		return nil
	})
	res, _ := r.exec(t, id, "forks", "100", "60")
	if res.Ending != api.EndPolicy {
		t.Errorf("exec = %+v", res)
	}
	wait(t, func() bool { sb, _ := r.Get(t.Context(), id); return sb.State == "ended" && sb.Ending == api.EndPolicy })
	if _, out := r.exec(t, other, "echo", "hi"); out != "hi\n" {
		t.Error("the other one", out)
	}
}

// What could not be recorded when it happened is recorded later.
func TestOwedEvents(t *testing.T) {
	opt := quick
	opt.Retain = 80 * time.Millisecond
	r, p := newDurable(t, opt)
	id := r.create(t, api.Limits{})
	p.breaks(func(what string) error {
		if what == api.EventExecEnded || what == api.EventSandboxEnded {
			return errors.New("disk full")
		}
		return nil
	})
	_, err := r.Exec(t.Context(), id, api.ExecRequest{Args: []string{"true"}}, sandbox.Streams{})
	if code(err) != api.CodeAuditFailed {
		t.Errorf("exec: %v", err)
	}
	if _, err := r.Delete(t.Context(), id); err != nil {
		t.Error(err)
	}
	p.breaks(nil)
	wait(t, func() bool { return slices.Contains(p.types(id), api.EventSandboxEnded) })
	want := []string{api.EventSandboxCreated, api.EventSandboxStarted, api.EventExecStarted, api.EventExecEnded, api.EventSandboxEnded}
	if got := p.types(id); !slices.Equal(got, want) {
		t.Errorf("events = %q", got)
	}
	wait(t, func() bool { _, err := r.Get(t.Context(), id); return code(err) == api.CodeSandboxNotFound }) // its day is over
	wait(t, func() bool { l, _ := p.Load(); return len(l) == 0 })
}

// wait waits until something is so.
func wait(t *testing.T, so func() bool) {
	t.Helper()
	for over := time.Now().Add(30 * time.Second); !so(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(over) {
			t.Fatal("it never came to be")
		}
	}
}
