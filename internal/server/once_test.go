package server_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/bermhq/berm/api"
)

// A create under a key happens once, however often it is asked.
func TestIdempotencyKey(t *testing.T) {
	w := newWorld(t)
	first := w.ask(agent, "POST", "/v1/sandboxes", `{"tags":{"a":"1","b":"2"}}`, "Idempotency-Key", "k1")
	if first.status != 201 || first.header.Get("Idempotency-Replayed") != "" {
		t.Fatalf("%d %s", first.status, first.body)
	}
	for _, body := range []string{`{"tags":{"a":"1","b":"2"}}`, ` {"tags":{"b":"2","a":"1"}, "persistent":false}`} {
		g := w.ask(agent, "POST", "/v1/sandboxes", body, "Idempotency-Key", "k1")
		if g.status != 201 || g.body != first.body || g.header.Get("Idempotency-Replayed") != "true" {
			t.Errorf("%s: %d %s", body, g.status, g.body)
		}
	}
	if g := w.ask(agent, "POST", "/v1/sandboxes", `{}`, "Idempotency-Key", "k1"); g.status != 409 || g.err.Code != api.CodeKeyConflict {
		t.Errorf("another request: %d %s", g.status, g.body)
	}
	if g := w.ask(otherAgent, "POST", "/v1/sandboxes", `{}`, "Idempotency-Key", "k1"); g.status != 201 || idOf(g) == idOf(first) {
		t.Errorf("another tenant: %d %s", g.status, g.body)
	}
	// One that failed may be asked again.
	for range 2 {
		if g := w.ask(agent, "POST", "/v1/sandboxes", `{"isolation":"vm"}`, "Idempotency-Key", "k2"); g.status != 400 {
			t.Errorf("%d", g.status)
		}
	}
	if g := w.ask(agent, "POST", "/v1/sandboxes", `{}`, "Idempotency-Key", "k2"); g.status != 201 {
		t.Errorf("after failures: %d %s", g.status, g.body)
	}
	if g := w.ask(agent, "POST", "/v1/sandboxes", `{}`, "Idempotency-Key", strings.Repeat("k", 256)); g.status != 400 {
		t.Errorf("a long key: %d", g.status)
	}

	ids := make([]string, 16)
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() {
			ids[i] = idOf(w.ask(agent, "POST", "/v1/sandboxes", `{"tags":{"same":"time"}}`, "Idempotency-Key", "k3"))
		})
	}
	wg.Wait()
	for _, x := range ids {
		if x == "" || x != ids[0] {
			t.Errorf("ids: %v", ids)
			break
		}
	}
}

func idOf(g got) string {
	var sb api.Sandbox
	json.Unmarshal([]byte(g.body), &sb)
	return sb.SandboxID
}

// What is remembered has a bound.
func TestManyKeys(t *testing.T) {
	w := newWorld(t)
	if testing.Short() {
		t.Skip("makes hundreds of sandboxes")
	}
	seen := map[string]bool{}
	for i := range 50 {
		g := w.ask(agent, "POST", "/v1/sandboxes", `{}`, "Idempotency-Key", fmt.Sprint("key-", i))
		if g.status != 201 || seen[idOf(g)] {
			t.Fatalf("%d %s", g.status, g.body)
		}
		seen[idOf(g)] = true
		if g := w.ask(agent, "DELETE", "/v1/sandboxes/"+idOf(g), ""); g.status != 204 {
			t.Fatalf("delete: %d %s", g.status, g.body)
		}
	}
}
