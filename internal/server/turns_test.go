package server_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/bermhq/berm/api"
)

// One tenant's questions about the past wait for each other, not others for
// them, and those that find too many before them are told so.
func TestTurns(t *testing.T) {
	w := newWorld(t)
	w.store.add(api.Event{Type: "a.b", Tenant: "default"}, api.Event{Type: "a.b", Tenant: "other"})
	var inside, most, refused atomic.Int32
	release := make(chan struct{})
	w.store.slow = func(tenant string) {
		if tenant != "default" {
			return
		}
		for n := inside.Add(1); n > most.Load(); {
			most.Store(n)
		}
		<-release
		inside.Add(-1)
	}
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			g := w.ask(agent, "GET", "/v1/events?type=none", "")
			if g.status == 429 {
				if g.err.Code != api.CodeRate || g.header.Get("Retry-After") == "" {
					t.Errorf("%s", g.body)
				}
				refused.Add(1)
			} else if g.status != 200 {
				t.Errorf("%d %s", g.status, g.body)
			}
		})
	}
	until(t, "those that are too many are refused", func() bool { return refused.Load() == 50-33 })
	if l := list(t, w.ask(otherAgent, "GET", "/v1/events", "")); len(l.Events) != 1 {
		t.Errorf("another tenant: %+v", l)
	}
	close(release)
	wg.Wait()
	if most.Load() != 1 || refused.Load() != 17 {
		t.Errorf("%d at once, %d refused", most.Load(), refused.Load())
	}
}

// The last events of a sandbox are bounded in bytes, the newest stay.
func TestLastEventsBytes(t *testing.T) {
	w := newWorld(t)
	id := w.create(agent, "{}")
	w.store.mu.Lock()
	big := json.RawMessage(`"` + strings.Repeat("x", 60<<10) + `"`)
	for i := range 40 {
		w.store.events = append(w.store.events, api.Event{Seq: uint64(i + 1), ID: fmt.Sprint(i), Type: "a.b", Tenant: "default", SandboxID: id, Data: big, Tags: map[string]string{}})
	}
	w.store.mu.Unlock()
	l := list(t, w.ask(agent, "GET", "/v1/sandboxes/"+id+"/events", ""))
	if n := len(l.Events); n < 10 || n > 17 || l.Events[n-1].Seq != 40 || l.Next != 40 {
		t.Errorf("%d events up to %d", n, l.Next)
	}
}
