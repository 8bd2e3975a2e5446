package sandbox_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/backend"
)

// Whoever follows a command hears of its end also where its sandbox ends.
func TestFollowToTheEnd(t *testing.T) {
	for ending, end := range map[string]func(r *rig, id string){
		api.EndKilled:      func(r *rig, id string) { r.Delete(r.t.Context(), id) },
		api.EndMemory:      func(r *rig, id string) { r.mem.Crash(id, api.CapMemory) },
		api.EndHostFailure: func(r *rig, id string) { r.mem.Crash(id, "") },
	} {
		t.Run(ending, func(t *testing.T) {
			r, _ := newDurable(t, quick)
			id := r.create(t, api.Limits{})
			x, err := r.Spawn(t.Context(), id, api.ExecRequest{Args: []string{"yes"}})
			if err != nil {
				t.Fatal(err)
			}
			reading, done := make(chan struct{}), make(chan struct{})
			var n int
			go func() {
				defer close(done)
				x, err = r.Follow(t.Context(), id, x.ExecID, 0, true, func(api.Chunk) error {
					if n++; n == 1 {
						close(reading)
					}
					return nil
				})
			}()
			<-reading
			end(r, id)
			<-done
			if err != nil || x.State != api.ExecEnded || x.Result == nil || x.Result.Ending != ending {
				t.Errorf("%+v, %v", x, err)
			}
		})
	}
}

// What ran in a sandbox that has ended is told for as long as the sandbox is,
// by the next engine too; its output is not, and the answer says why.
func TestExecsOfTheEnded(t *testing.T) {
	r, p := newMortal(t, quick)
	ctx := t.Context()
	id := r.create(t, api.Limits{})
	req := api.ExecRequest{ExecID: api.NewID(api.KindExec), Args: []string{"echo", "hi"}, Detach: true}
	if _, err := r.Spawn(ctx, id, req); err != nil {
		t.Fatal(err)
	}
	wait(t, func() bool { x, _ := r.GetExec(ctx, id, req.ExecID); return x.State == api.ExecEnded })
	cut, err := r.Spawn(ctx, id, api.ExecRequest{Args: []string{"sleep", "60"}})
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", 3000)
	for range 12 {
		r.exec(t, id, "echo", long)
	}
	if _, err := r.Delete(ctx, id); err != nil {
		t.Fatal(err)
	}
	check := func(name string, r *rig, most int) {
		t.Helper()
		all, err := r.Execs(ctx, id)
		if err != nil || len(all) == 0 || len(all) > most {
			t.Fatalf("%s: %d, %v", name, len(all), err)
		}
		for _, x := range all {
			y, err := r.GetExec(ctx, id, x.ExecID)
			if err != nil || y.State != api.ExecEnded || y.Result == nil || y.Result.Ending == "" || y.StartedAt == "" {
				t.Errorf("%s: %+v, %v", name, y, err)
			}
		}
	}
	check("this engine", r, 8)
	n := r.reborn(t, quick, p)
	check("the next", n, 6) // long ones: the newest that fit

	id = n.create(t, api.Limits{})
	if _, err := n.Spawn(ctx, id, req); err != nil {
		t.Fatal(err)
	}
	if cut, err = n.Spawn(ctx, id, api.ExecRequest{Args: []string{"sleep", "60"}}); err != nil {
		t.Fatal(err)
	}
	wait(t, func() bool { x, _ := n.GetExec(ctx, id, req.ExecID); return x.State == api.ExecEnded })
	n.Delete(ctx, id)
	n = n.reborn(t, quick, p)
	check("two engines later", n, 2)
	for exec, want := range map[string]string{req.ExecID: api.EndExit, cut.ExecID: api.EndKilled} {
		x, err := n.Follow(ctx, id, exec, 0, true, nil)
		if code(err) != api.CodeSandboxEnded || !strings.Contains(err.Error(), "output") || x.Result == nil || x.Result.Ending != want {
			t.Errorf("Follow: %+v, %v", x, err)
		}
	}
	if x, err := n.Spawn(ctx, id, req); err != nil || x.State != api.ExecEnded {
		t.Errorf("asked again: %+v, %v", x, err)
	}
}

// The ttl and the idle timeout are caps, too: of the sandbox and of what ran
// in it.
func TestTimesAreCaps(t *testing.T) {
	r, _ := newDurable(t, quick)
	for ending, req := range map[string]api.CreateRequest{api.EndTTL: {TTLSeconds: 0.4}, api.EndIdle: {IdleTimeoutSeconds: 0.3}} {
		sb, err := r.Create(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if ending == api.EndTTL {
			if _, err := r.Spawn(t.Context(), sb.ID, api.ExecRequest{Args: []string{"sleep", "60"}}); err != nil {
				t.Fatal(err)
			}
		}
		r.reaches(t, sb.ID)
		end, err := r.Delete(t.Context(), sb.ID)
		if err != nil || end.Ending != ending || !slices.Equal(end.CapsHit, []string{ending}) {
			t.Errorf("%+v, %v", end, err)
		}
		xs, err := r.Execs(t.Context(), sb.ID)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range xs {
			if x.Result == nil || x.Result.Ending != ending || !slices.Equal(x.Result.CapsHit, []string{ending}) {
				t.Errorf("%+v", x.Result)
			}
		}
	}
}

// A report of what still runs has figures.
func TestReportOfTheRunning(t *testing.T) {
	r, _ := newDurable(t, quick)
	id := r.create(t, api.Limits{})
	r.flaky.Usage = func() (backend.Usage, error) {
		return backend.Usage{CPU: time.Second, MemoryPeak: 3 << 20, MemoryBytes: 2 << 20, Tasks: 5, DiskBytes: 4096}, nil
	}
	rep, over, err := r.Report(t.Context(), id)
	u := rep.Usage
	if err != nil || over || u.CPUSeconds != 1 || u.MemoryPeakBytes != 3<<20 || u.PidsPeak != 5 || u.DiskPeakBytes != 4096 || rep.TimingsMS["create"] <= 0 {
		t.Errorf("%+v, %v, %v", rep, over, err)
	}
}
