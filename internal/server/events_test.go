package server_test

import (
	"bufio"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/server"
)

func list(t *testing.T, g got) api.EventList {
	t.Helper()
	var l api.EventList
	if err := json.Unmarshal([]byte(g.body), &l); err != nil || g.status != 200 || l.Events == nil {
		t.Fatalf("%d %s", g.status, g.body)
	}
	return l
}

func TestEventPages(t *testing.T) {
	w := newWorld(t)
	for range 60 {
		w.store.add(api.Event{Type: "sandbox.created", Tenant: "other"}, api.Event{Type: "exec.started", Tenant: "other"})
	}
	w.store.add(api.Event{Type: "sandbox.created", Tenant: "default", SandboxID: "s1"}, api.Event{Type: "exec.started", Tenant: "default", SandboxID: "s2"})

	l := list(t, w.ask(agent, "GET", "/v1/events", "")) // behind much that is another tenant's
	if len(l.Events) != 2 || l.Events[0].Seq != 121 || l.Next != 122 {
		t.Errorf("%+v", l)
	}
	if l := list(t, w.ask(agent, "GET", "/v1/events?after=122", "")); len(l.Events) != 0 || l.Next != 122 {
		t.Errorf("after the end: %+v", l)
	}
	if l := list(t, w.ask(agent, "GET", "/v1/events?after=end", "")); len(l.Events) != 0 || l.Next != 122 {
		t.Errorf("after=end: %+v", l)
	}
	if l := list(t, w.ask(agent, "GET", "/v1/events?sandbox_id=s2", "")); len(l.Events) != 1 || l.Events[0].SandboxID != "s2" {
		t.Errorf("of one sandbox: %+v", l)
	}
	if l := list(t, w.ask(otherAgent, "GET", "/v1/events?type=exec.started&limit=7", "")); len(l.Events) != 7 || l.Events[6].Seq != 14 {
		t.Errorf("of one type: %+v", l)
	}
	for _, bad := range []string{"after=-1", "after=x", "limit=0", "limit=9999", "wait=61", "wait=60.5", "wait=-0.1", "wait=nan", "wait=x", "follow=maybe", "tenant=other", "after=1&after=2"} {
		if g := w.ask(agent, "GET", "/v1/events?"+bad, ""); g.status != 400 {
			t.Errorf("%s: %d", bad, g.status)
		}
	}
	// What is empty is as good as absent.
	if l := list(t, w.ask(agent, "GET", "/v1/events?after=&limit=1&type=&sandbox_id=&wait=", "")); len(l.Events) != 1 {
		t.Errorf("empty parameters: %+v", l)
	}
	// A long poll ends with the first event that is the caller's.
	go func() {
		w.store.add(api.Event{Type: "x", Tenant: "other"})
		w.store.add(api.Event{Type: "y", Tenant: "default"})
	}()
	if l := list(t, w.ask(agent, "GET", "/v1/events?after=122&wait=10", "")); len(l.Events) != 1 || l.Events[0].Type != "y" {
		t.Errorf("long poll: %+v", l)
	}
	began := time.Now()
	if l := list(t, w.ask(agent, "GET", "/v1/events?after=124&wait=0.6", "")); len(l.Events) != 0 || time.Since(began) < 500*time.Millisecond {
		t.Errorf("long poll of nothing: %+v after %v", l, time.Since(began))
	}
}

// A stream gives what there is and what comes, shows that it lives, and can be
// taken up where it broke.
func TestEventStream(t *testing.T) {
	w := newWorld(t, func(o *server.Options) { o.Heartbeat = 50 * time.Millisecond })
	w.store.add(api.Event{Type: "a.b", Tenant: "default"}, api.Event{Type: "c.d", Tenant: "other"}, api.Event{Type: "e.f", Tenant: "default"})
	open := func(path string, header ...string) (*bufio.Reader, func()) {
		req, _ := http.NewRequestWithContext(t.Context(), "GET", w.url+path, nil)
		req.Header.Set("Authorization", "Bearer "+agent)
		for i := 0; i < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		resp, err := w.http.Do(req)
		if err != nil || resp.Header.Get("Content-Type") != "text/event-stream; charset=utf-8" {
			t.Fatalf("%v %v", resp, err)
		}
		return bufio.NewReader(resp.Body), func() { resp.Body.Close() }
	}
	next := func(r *bufio.Reader, want string) string {
		t.Helper()
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				t.Fatalf("waiting for %s: %v", want, err)
			}
			if strings.HasPrefix(line, want) {
				return strings.TrimSpace(line)
			}
		}
	}
	r, stop := open("/v1/events", "Accept", "text/event-stream")
	next(r, "event: a.b")
	next(r, "id: 1")
	next(r, "event: e.f")
	next(r, "id: 3")
	next(r, ":") // a heartbeat
	w.store.add(api.Event{Type: "g.h", Tenant: "default"})
	next(r, "event: g.h")
	if data := next(r, "data:"); !strings.Contains(data, `"seq":4`) {
		t.Error(data)
	}
	stop()
	r, stop = open("/v1/events?stream=1", "Last-Event-ID", "3")
	if line := next(r, "event:"); line != "event: g.h" {
		t.Errorf("taken up: %s", line)
	}
	stop()

	id := w.create(agent, `{}`)
	for range 3 {
		w.store.add(api.Event{Type: "exec.started", Tenant: "default", SandboxID: id}, api.Event{Type: "exec.ended", Tenant: "default", SandboxID: id})
	}
	g := w.ask(agent, "GET", "/v1/sandboxes/"+id+"/events?tail=2", "")
	var l struct {
		Events []struct {
			Time      string
			SandboxID string `json:"sandbox_id"`
			Type      string
			Payload   json.RawMessage
			Seq       uint64
		}
	}
	if err := json.Unmarshal([]byte(g.body), &l); err != nil || len(l.Events) != 2 || l.Events[1].Type != "exec.ended" || string(l.Events[0].Payload) != `{"x":1}` || l.Events[1].Seq != 10 {
		t.Errorf("%d %s", g.status, g.body)
	}
	r, stop = open("/v1/sandboxes/"+id+"/events?tail=1&follow=1", "X", "")
	next(r, "event: event")
	next(r, "id: 10")
	w.store.add(api.Event{Type: "sandbox.ended", Tenant: "default", SandboxID: id})
	next(r, "id: 11")
	stop()
}
