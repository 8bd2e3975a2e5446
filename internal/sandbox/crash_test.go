package sandbox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/sandbox"
)

// Death at any moment under load: what was answered is there, nothing ends
// twice, nothing runs that nobody knows, and no start is without its end.
func TestCrashes(t *testing.T) {
	opt := quick
	opt.Record, opt.StopFor = 200*time.Millisecond, 300*time.Millisecond
	r, p := newMortal(t, opt)
	var mu sync.Mutex
	alive := map[string]bool{} // sandboxes whose creation was answered and whose end was not asked for
	ran := map[string]string{} // execs that were answered: exec -> sandbox
	for round := range 8 {
		r.t = t
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() { load(ctx, r, &mu, alive, ran) })
		}
		time.Sleep(time.Duration(10+rand.IntN(60)) * time.Millisecond)
		n := r.successor(t, opt, p)
		cancel()
		wg.Wait()
		if err := n.Adopt(t.Context()); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		known := map[string]bool{}
		for _, sb := range n.Sandboxes(t.Context(), sandbox.Filter{}) {
			known[sb.ID] = true
		}
		for id := range alive {
			if !known[id] {
				sb, err := n.Get(t.Context(), id)
				t.Errorf("round %d: %s was answered and is gone: %+v, %v", round, id, sb, err)
				delete(alive, id)
			}
		}
		wait(t, func() bool { return n.mem.Live() == len(n.Sandboxes(context.Background(), sandbox.Filter{})) })
		for exec, id := range ran {
			if known[id] {
				if x, err := n.GetExec(t.Context(), id, exec); err != nil && code(err) != api.CodeExecNotFound || err == nil && x.State != api.ExecEnded {
					t.Errorf("round %d: exec %s was answered: %+v, %v", round, exec, x, err)
				}
			}
		}
		r = n
	}
	for _, sb := range r.Sandboxes(t.Context(), sandbox.Filter{}) {
		wait(t, func() bool { _, err := r.Delete(t.Context(), sb.ID); return err == nil }) // StopFor is short here
	}
	counts(t, p)
	if open := unended(p); len(open) > 0 {
		t.Errorf("without an end: %v", open)
	}
	if r.mem.Live() != 0 {
		t.Errorf("%d live", r.mem.Live())
	}
}

// load makes, uses and ends sandboxes until ctx is over.
func load(ctx context.Context, r *rig, mu *sync.Mutex, alive map[string]bool, ran map[string]string) {
	for ctx.Err() == nil {
		sb, err := r.Create(ctx, api.CreateRequest{})
		if err != nil {
			return
		}
		mu.Lock()
		alive[sb.ID] = true
		mu.Unlock()
		for range rand.IntN(4) {
			res, err := r.Exec(ctx, sb.ID, api.ExecRequest{Args: []string{"true"}}, sandbox.Streams{})
			if err == nil {
				mu.Lock()
				ran[res.ExecID] = sb.ID
				mu.Unlock()
			}
		}
		r.Spawn(ctx, sb.ID, api.ExecRequest{Args: []string{"sleep", "0.05"}})
		if rand.IntN(2) == 0 {
			mu.Lock()
			delete(alive, sb.ID)
			mu.Unlock()
			r.Delete(ctx, sb.ID)
		}
	}
}

// unended are the starts in the log that no end belongs to.
func unended(p *paper) (open []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := map[string]string{}
	for _, ev := range p.events {
		var d struct {
			ExecID string `json:"exec_id"`
		}
		json.Unmarshal(ev.Data, &d)
		key := ev.SandboxID + d.ExecID
		switch ev.Type {
		case api.EventSandboxCreated, api.EventExecStarted:
			m[key] = fmt.Sprint(ev.Type, " ", key)
		case api.EventSandboxEnded, api.EventExecEnded:
			delete(m, key)
		}
	}
	for _, what := range m {
		open = append(open, what)
	}
	return open
}
