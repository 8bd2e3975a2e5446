package sandbox_test

import (
	"testing"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/sandbox"
)

// TestAdoptWithoutLog: a log keeps its past for a time and up to a size. A
// sandbox that is older than all of it is taken over all the same.
func TestAdoptWithoutLog(t *testing.T) {
	r, p := newMortal(t, quick)
	ctx := sandbox.As(t.Context(), sandbox.Caller{Tenant: "acme", Actor: "t1", Role: api.RoleAgent})
	sb, err := r.Create(ctx, api.CreateRequest{TTLSeconds: 200})
	if err != nil {
		t.Fatal(err)
	}
	n := r.successor(t, quick, p)
	p.mu.Lock()
	p.events = nil
	p.mu.Unlock()
	if err := n.Adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := n.Get(ctx, sb.ID); err != nil || got.State != "running" {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestRunBelowCeiling: the time of a run is its own, and not above its token's.
func TestRunBelowCeiling(t *testing.T) {
	r, _ := newDurable(t, quick)
	ctx := sandbox.As(t.Context(), sandbox.Caller{Tenant: "acme", Actor: "t1", Role: api.RoleAgent, Ceiling: &api.Policy{TTLSeconds: 7200}})
	for _, timeout := range []float64{api.Unlimited, 86400, 7000} {
		sb, err := r.Create(ctx, api.CreateRequest{RunID: api.NewID(api.KindRun), Limits: api.Limits{TimeoutSeconds: timeout}})
		if err != nil || sb.TTLSeconds > 7200 {
			t.Errorf("timeout %g: ttl %g, %v", timeout, sb.TTLSeconds, err)
		}
	}
}
