package sandbox_test

import (
	"bytes"
	"log/slog"
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
	if _, err := r.Spawn(t.Context(), held.SandboxID, api.ExecRequest{Args: []string{"sleep", "60"}}); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	opt := quick
	opt.Log = slog.New(slog.NewTextHandler(&log, nil))
	n := r.reborn(t, opt, p)
	if log.Len() > 0 {
		t.Errorf("an end that was to come is logged: %s", log.String())
	}
	if xs, err := n.Execs(t.Context(), held.SandboxID); err != nil || len(xs) != 1 || xs[0].Result == nil || xs[0].Result.Ending != api.EndKilled {
		t.Errorf("its exec: %+v, %v", xs, err)
	}
	if sb, err := n.Get(t.Context(), held.SandboxID); err != nil || sb.Ending != api.EndKilled {
		t.Errorf("held: %+v, %v", sb, err)
	}
	if sb, err := n.Get(t.Context(), kept.SandboxID); err != nil || sb.State != "running" {
		t.Errorf("not held: %+v, %v", sb, err)
	}
}
