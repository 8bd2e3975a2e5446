package sandbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/backend"
	"github.com/bermhq/berm/internal/sandbox"
	"github.com/bermhq/berm/internal/testkit"
)

// reborn is the rig after a sudden death, with everything taken over.
func (r *rig) reborn(t *testing.T, opt sandbox.Options, p *paper) *rig {
	t.Helper()
	n := r.successor(t, opt, p)
	if err := n.Adopt(t.Context()); err != nil {
		t.Fatalf("Adopt: %v", err)
	}
	return n
}

// A new engine has what the one before it had: state, times, tags, execs and
// their output; what had a caller that is gone has ended.
func TestAdopt(t *testing.T) {
	r, p := newMortal(t, quick)
	ctx := sandbox.As(t.Context(), sandbox.Caller{Tenant: "acme", Actor: "t1", Role: api.RoleAgent})
	sb, err := r.Create(ctx, api.CreateRequest{TTLSeconds: 200, Env: map[string]string{"A": "1"}, Session: "s1"})
	if err != nil {
		t.Fatal(err)
	}
	id := sb.ID
	ttl, v := 300.0, "w"
	if _, err := r.SetLifecycle(ctx, id, api.LifecycleChange{TTLSeconds: &ttl}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.SetTags(ctx, id, api.MetadataChange{Tags: map[string]*string{"v": &v}}); err != nil {
		t.Fatal(err)
	}
	done, err := r.Spawn(ctx, id, api.ExecRequest{Args: []string{"echo", "done"}, ExecID: api.NewID(api.KindExec)})
	if err != nil {
		t.Fatal(err)
	}
	wait(t, func() bool { x, _ := r.GetExec(ctx, id, done.ExecID); return x.State == api.ExecEnded })
	runs, err := r.Spawn(ctx, id, api.ExecRequest{Args: []string{"cat"}, Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	ends, err := r.Spawn(ctx, id, api.ExecRequest{Args: []string{"sleep", "0.3"}})
	if err != nil {
		t.Fatal(err)
	}
	plain := make(chan error, 1)
	go func() {
		_, err := r.Exec(ctx, id, api.ExecRequest{Args: []string{"sleep", "60"}}, sandbox.Streams{})
		plain <- err
	}()
	wait(t, func() bool { l, _ := r.Execs(ctx, id); return len(l) == 4 })
	paused, err := r.Create(ctx, api.CreateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Pause(ctx, paused.ID); err != nil {
		t.Fatal(err)
	}
	gone, err := r.Create(ctx, api.CreateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	r.Delete(ctx, gone.ID)

	n := r.successor(t, quick, p)
	time.Sleep(400 * time.Millisecond) // ends has ended meanwhile
	if err := n.Adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, err := n.Get(ctx, id)
	if err != nil || got.State != "running" || got.TTLSeconds != 300 || got.Tags["v"] != "w" || got.Session != "s1" || got.CreatedAt != sb.CreatedAt || got.ExpiresAt == "" {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := n.Get(t.Context(), id); code(err) != api.CodeSandboxNotFound {
		t.Errorf("another tenant: %v", err)
	}
	again, err := n.Spawn(ctx, id, api.ExecRequest{Args: []string{"echo", "done"}, ExecID: done.ExecID})
	if err != nil || again.State != api.ExecEnded || again.Result.ExitCode != 0 {
		t.Errorf("asked again: %+v, %v", again, err)
	}
	if out, _, _, err := n.output2(ctx, id, done.ExecID); err != nil || out != "done\n" {
		t.Errorf("%q, %v", out, err)
	}
	if _, err := n.WriteStdin(ctx, id, runs.ExecID, strings.NewReader("hi\n"), true); err != nil {
		t.Error(err)
	}
	if out, _, x, err := n.output2(ctx, id, runs.ExecID); err != nil || out != "hi\n" || x.Result == nil || x.Result.ExitCode != 0 {
		t.Errorf("%q, %+v, %v", out, x, err)
	}
	wait(t, func() bool {
		l, _ := n.Execs(ctx, id)
		return !slices.ContainsFunc(l, func(x api.Exec) bool { return x.State == api.ExecRunning })
	})
	if x, err := n.GetExec(ctx, id, ends.ExecID); err != nil || x.Result.Ending != api.EndExit {
		t.Errorf("%+v, %v", x, err)
	}
	l, _ := n.Execs(ctx, id)
	if x := l[0]; x.Args[0] != "sleep" || x.Result.Ending != api.EndKilled || x.Result.Reason == "" || x.Detached {
		t.Errorf("the plain one: %+v %+v", x, x.Result)
	}
	<-plain
	res, err := n.Exec(ctx, id, api.ExecRequest{Args: []string{"env"}}, sandbox.Streams{})
	if err != nil || res.ExitCode != 0 {
		t.Errorf("%+v, %v", res, err)
	}
	if sb, err := n.Get(ctx, paused.ID); err != nil || sb.State != "paused" {
		t.Errorf("%+v, %v", sb, err)
	}
	if err := n.Resume(ctx, paused.ID); err != nil {
		t.Error(err)
	}
	if res, err := n.Exec(ctx, paused.ID, api.ExecRequest{Args: []string{"true"}}, sandbox.Streams{}); err != nil || res.ExitCode != 0 {
		t.Errorf("%+v, %v", res, err)
	}
	if sb, err := n.Get(ctx, gone.ID); err != nil || sb.State != "ended" || sb.Ending != api.EndKilled || sb.EndedAt == "" {
		t.Errorf("%+v, %v", sb, err)
	}
	if end, err := n.Delete(ctx, gone.ID); err != nil || end.Ending != api.EndKilled {
		t.Errorf("%+v, %v", end, err)
	}
	counts(t, p)
}

// output2 is output for one tenant.
func (r *rig) output2(ctx context.Context, id, exec string) (string, int64, api.Exec, error) {
	var out strings.Builder
	x, err := r.Follow(ctx, id, exec, 0, true, func(c api.Chunk) error { out.Write(c.Data); return nil })
	return out.String(), 0, x, err
}

// exec2 runs a command whose answer nobody waits for.
func (r *rig) exec2(id, cmd string) {
	r.Exec(r.t.Context(), id, api.ExecRequest{Args: []string{cmd}}, sandbox.Streams{})
}

// counts holds the log against itself: each start has exactly one end, or none
// while it runs.
func counts(t *testing.T, p *paper) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	ended := map[string]int{}
	for _, ev := range p.events {
		var d struct {
			ExecID string `json:"exec_id"`
		}
		json.Unmarshal(ev.Data, &d)
		key := ev.SandboxID + d.ExecID
		switch ev.Type {
		case api.EventExecEnded, api.EventSandboxEnded:
			if ended[key]++; ended[key] > 1 {
				t.Errorf("%s ended twice", key)
			}
		}
	}
}

// Whatever the engine was about to do when it died, the next one brings log,
// record and host together.
func TestAdoptAfterEachStep(t *testing.T) {
	for _, tt := range []struct {
		at      string // where it dies: this is not written any more, nor anything after
		do      func(r *rig, id string)
		state   string // of the first sandbox then
		created int    // events of this type in all
	}{
		{"save", func(r *rig, _ string) { r.Create(r.t.Context(), api.CreateRequest{}) }, "running", 1},
		{api.EventSandboxCreated, func(r *rig, _ string) { r.Create(r.t.Context(), api.CreateRequest{}) }, "running", 1},
		{api.EventSandboxStarted, func(r *rig, _ string) { r.Create(r.t.Context(), api.CreateRequest{}) }, "running", 2},
		{api.EventExecStarted, func(r *rig, id string) { r.exec2(id, "true") }, "running", 1},
		{api.EventExecEnded, func(r *rig, id string) { r.exec2(id, "true") }, "running", 1},
		{api.EventSandboxPaused, func(r *rig, id string) { r.Pause(r.t.Context(), id) }, "running", 1},
		{"pause", func(r *rig, id string) { r.Pause(r.t.Context(), id) }, "paused", 1}, // decided: it is done
		{api.EventSandboxEnded, func(r *rig, id string) { r.Delete(r.t.Context(), id) }, "ended", 1},
	} {
		t.Run(tt.at, func(t *testing.T) {
			opt := quick
			opt.Record = 100 * time.Millisecond
			r, p := newMortal(t, opt)
			r.t = t
			id := r.create(t, api.Limits{})
			dead := false
			p.breaks(func(what string) error {
				if dead = dead || what == tt.at || tt.at == "pause" && what == "save"; dead {
					return errors.New("dead")
				}
				return nil
			})
			if tt.at == "pause" {
				r.flaky.PauseErr = testkit.ErrFault
			}
			tt.do(r, id)
			n := r.reborn(t, opt, p)
			sb, err := n.Get(t.Context(), id)
			if err != nil || sb.State != tt.state {
				t.Errorf("%+v, %v", sb, err)
			}
			wait(t, func() bool { l, _ := n.Execs(t.Context(), id); return len(l) == 0 || l[0].State == api.ExecEnded })
			made := 0
			for _, typ := range p.types("") {
				if typ == api.EventSandboxCreated {
					made++
				}
			}
			if made != tt.created {
				t.Errorf("created %d", made)
			}
			live := 1
			if tt.state == "ended" {
				live = 0
			}
			if n.mem.Live() != live {
				t.Errorf("%d instances", n.mem.Live())
			}
			if got := n.Sandboxes(t.Context(), sandbox.Filter{}); len(got) != live {
				t.Errorf("%+v", got)
			}
			counts(t, p)
		})
	}
}

// What ended while nobody was here is recorded with the cause that the host
// knows, once; what runs without a record is stopped.
func TestAdoptTheDead(t *testing.T) {
	for cause, want := range map[string]string{
		api.CapMemory: api.EndMemory, api.CapProcesses: api.EndProcesses, "deadline": api.EndTTL, "": api.EndHostFailure,
	} {
		t.Run(want, func(t *testing.T) {
			r, p := newMortal(t, quick)
			id := r.create(t, api.Limits{})
			if _, err := r.Spawn(t.Context(), id, api.ExecRequest{Args: []string{"sleep", "60"}}); err != nil {
				t.Fatal(err)
			}
			n := r.successor(t, quick, p)
			n.mem.Crash(id, cause)
			if err := n.Adopt(t.Context()); err != nil {
				t.Fatal(err)
			}
			sb, err := n.Get(t.Context(), id)
			if err != nil || sb.State != "ended" || sb.Ending != want {
				t.Errorf("%+v, %v", sb, err)
			}
			got := p.types(id)
			if len(got) != 5 || got[3] != api.EventExecEnded || got[4] != api.EventSandboxEnded {
				t.Errorf("events = %q", got)
			}
			if held, _ := n.flaky.Held(t.Context()); len(held) != 0 {
				t.Errorf("the host still remembers %+v", held)
			}
			n = n.reborn(t, quick, p) // nothing is said twice
			if again := p.types(id); len(again) != 5 {
				t.Errorf("events = %q", again)
			}
			if end, err := n.Delete(t.Context(), id); err != nil || end.Ending != want {
				t.Errorf("%+v, %v", end, err)
			}
		})
	}
}

func TestAdoptStrays(t *testing.T) {
	r, p := newMortal(t, quick)
	id := r.create(t, api.Limits{})
	other := r.create(t, api.Limits{})
	p.Drop(id)
	n := r.reborn(t, quick, p)
	if n.mem.Live() != 1 {
		t.Errorf("%d live", n.mem.Live())
	}
	if _, err := n.Get(t.Context(), other); err != nil {
		t.Error(err)
	}
	if held, _ := n.flaky.Held(t.Context()); len(held) != 1 {
		t.Errorf("%+v", held)
	}
}

// A guest that does not greet the new engine holds up nobody.
func TestAdoptSilentGuests(t *testing.T) {
	r, p := newMortal(t, quick)
	for range 40 {
		id := r.create(t, api.Limits{})
		if _, err := r.Spawn(t.Context(), id, api.ExecRequest{Args: []string{"sleep", "60"}}); err != nil {
			t.Fatal(err)
		}
	}
	n := r.successor(t, quick, p)
	n.flaky.Conn = testkit.SilentAfter(0)
	began := time.Now()
	if err := n.Adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(began); d > 10*quick.Boot { // one after the other they would take 40 times that
		t.Errorf("took %v", d)
	}
	wait(t, func() bool { return n.mem.Live() == 0 })
	wait(t, func() bool { return n.Totals().States["ended"] == 40 })
	counts(t, p)
}

// A ttl that ended while nobody was here, and one that is soon over.
func TestAdoptOverdue(t *testing.T) {
	r, p := newMortal(t, quick)
	sb, err := r.Create(t.Context(), api.CreateRequest{TTLSeconds: 0.3})
	if err != nil {
		t.Fatal(err)
	}
	n := r.successor(t, quick, p)
	time.Sleep(400 * time.Millisecond)
	if err := n.Adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	if end := n.reaches(t, sb.ID); end != api.EndTTL {
		t.Error(end)
	}
}

var _ backend.Holder = (*testkit.Flaky)(nil)
