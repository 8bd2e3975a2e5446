package sandbox_test

import (
	"testing"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/sandbox"
)

// deadline is what the host holds of a sandbox; the zero time if it has ended.
func (r *rig) deadline(id string) time.Time {
	all, err := r.flaky.Held(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	for _, h := range all {
		if h.ID == id && !h.Ended {
			return h.Deadline
		}
	}
	return time.Time{}
}

// Nobody is there, and a sandbox ends by its idle timeout all the same, and by
// its ttl where that is first or a command runs; the next engine says which.
func TestHostHoldsIdle(t *testing.T) {
	r, p := newMortal(t, quick)
	create := func(req api.CreateRequest) (string, time.Time) {
		sb, err := r.Create(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		return sb.SandboxID, time.Now()
	}
	idle, made := create(api.CreateRequest{IdleTimeoutSeconds: 0.8})
	wait(t, func() bool { d := r.deadline(idle).Sub(made); return d > 0 && d < 2*time.Second })
	ttl, _ := create(api.CreateRequest{TTLSeconds: 0.8, IdleTimeoutSeconds: 60})
	busy, _ := create(api.CreateRequest{IdleTimeoutSeconds: 0.8, TTLSeconds: 900})
	if _, err := r.Spawn(t.Context(), busy, api.ExecRequest{Args: []string{"sleep", "60"}}); err != nil {
		t.Fatal(err)
	}
	if d := time.Until(r.deadline(busy)); d < 800*time.Second {
		t.Errorf("while a command runs the host holds %v", d)
	}
	n := r.successor(t, quick, p)
	wait(t, func() bool { return n.mem.Live() == 1 })
	if err := n.Adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]string{idle: api.EndIdle, ttl: api.EndTTL, busy: ""} {
		sb, err := n.Get(t.Context(), id)
		if err != nil || sb.Ending != want {
			t.Errorf("want %q: %+v, %v", want, sb, err)
		}
		if at, _ := time.Parse(time.RFC3339Nano, sb.EndedAt); id == idle && at.Sub(made) > 2500*time.Millisecond {
			t.Errorf("it ended %v after it was made", at.Sub(made))
		}
	}
}

// An engine that follows another does not begin the idle clock anew.
func TestIdleIsTakenOver(t *testing.T) {
	r, p := newMortal(t, quick)
	sb, err := r.Create(t.Context(), api.CreateRequest{IdleTimeoutSeconds: 1.5})
	if err != nil {
		t.Fatal(err)
	}
	id, made := sb.SandboxID, time.Now()
	wait(t, func() bool { d := r.deadline(id).Sub(made); return d > 0 && d < 3*time.Second })
	time.Sleep(time.Until(made.Add(700 * time.Millisecond))) // a time that passes is what this is about
	n := r.reborn(t, quick, p)
	wait(t, func() bool { return n.Totals().States["ended"] == 1 })
	if d := time.Since(made); d > 2*time.Second {
		t.Errorf("it ended after %v", d)
	}
	if sb, err := n.Get(t.Context(), id); err != nil || sb.Ending != api.EndIdle {
		t.Errorf("%+v, %v", sb, err)
	}
}

// The host hears of use, and not of every one.
func TestHostHearsOfUse(t *testing.T) {
	r, _ := newDurable(t, quick)
	moves := make(chan time.Time, 1000)
	r.flaky.Deadline = func(at time.Time) error { moves <- at; return nil }
	sb, err := r.Create(t.Context(), api.CreateRequest{IdleTimeoutSeconds: 60})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for time.Since(began) < 600*time.Millisecond {
		if _, err := r.Exec(t.Context(), sb.SandboxID, api.ExecRequest{Args: []string{"true"}}, sandbox.Streams{}); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Get(t.Context(), sb.SandboxID); err != nil {
			t.Fatal(err)
		}
	}
	last := time.Now()
	wait(t, func() bool {
		return r.deadline(sb.SandboxID).Sub(last).Round(time.Second) == 61*time.Second
	})
	if n := len(moves); n == 0 || n > 2*int(time.Since(began)/(250*time.Millisecond))+2 {
		t.Errorf("it was told %d times in %v", n, time.Since(began))
	}
}
