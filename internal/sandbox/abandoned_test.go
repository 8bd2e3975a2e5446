package sandbox_test

import (
	"bytes"
	"testing"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/sandbox"
)

// A command that was decided on but never begun, because the engine died between
// the two, has an end; whoever asks for it again under its id is told of that.
func TestNeverBegun(t *testing.T) {
	r, p := newMortal(t, quick)
	id := r.create(t, api.Limits{})
	ran, lost := api.NewID(api.KindExec), api.NewID(api.KindExec)
	if _, err := r.Exec(t.Context(), id, api.ExecRequest{Args: []string{"true"}, ExecID: ran}, sandbox.Streams{}); err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	var started []api.Event
	for _, ev := range p.events {
		if ev.Type == api.EventExecStarted {
			ev.Data = bytes.ReplaceAll(ev.Data, []byte(ran), []byte(lost))
			started = append(started, ev)
		}
	}
	p.mu.Unlock()
	if len(started) != 1 || !bytes.Contains(started[0].Data, []byte(lost)) {
		t.Fatalf("%+v", started)
	}
	if err := p.Append(t.Context(), started...); err != nil {
		t.Fatal(err)
	}
	n := r.reborn(t, quick, p)
	res, err := n.Exec(t.Context(), id, api.ExecRequest{Args: []string{"true"}, ExecID: lost}, sandbox.Streams{})
	if err != nil || res.Ending != api.EndKilled {
		t.Errorf("%+v, %v", res, err)
	}
}
