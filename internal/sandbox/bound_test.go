package sandbox_test

import (
	"testing"

	"github.com/bermhq/berm/api"
)

// What a connection held is no longer held by anybody when its engine is gone.
func TestAdoptBound(t *testing.T) {
	r, p := newMortal(t, quick)
	held, err := r.Create(t.Context(), api.CreateRequest{Bound: true})
	if err != nil {
		t.Fatal(err)
	}
	kept, err := r.Create(t.Context(), api.CreateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	n := r.reborn(t, quick, p)
	if sb, err := n.Get(t.Context(), held.SandboxID); err != nil || sb.Ending != api.EndKilled {
		t.Errorf("held: %+v, %v", sb, err)
	}
	if sb, err := n.Get(t.Context(), kept.SandboxID); err != nil || sb.State != "running" {
		t.Errorf("not held: %+v, %v", sb, err)
	}
}
