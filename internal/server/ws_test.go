package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/sandbox"
	"github.com/bermhq/berm/internal/server"
)

func (e *edge) ws(path string) *websocket.Conn {
	e.t.Helper()
	c, resp, err := websocket.Dial(e.t.Context(), "ws://berm"+path, &websocket.DialOptions{HTTPClient: e.client()})
	if err != nil {
		e.t.Fatalf("%v %v", err, resp)
	}
	c.SetReadLimit(1 << 20)
	e.t.Cleanup(func() { c.CloseNow() })
	return c
}

func say(t *testing.T, c *websocket.Conn, text string) {
	t.Helper()
	if err := c.Write(t.Context(), websocket.MessageText, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

type muxMessage struct {
	ID, Stream, Data, Error, Code, Ending string
	Exit                                  *int
	TimedOut                              bool `json:"timed_out"`
}

func hear(t *testing.T, c *websocket.Conn) (m muxMessage) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, p, err := c.Read(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(p, &m); err != nil {
		t.Fatalf("%s: %v", p, err)
	}
	return m
}

func TestMux(t *testing.T) {
	e := newEdge(t)
	id := e.create()
	c := e.ws("/v1/sandboxes/" + id + "/exec/ws")
	say(t, c, `{"id":"long","args":["sleep","60"],"timeout_seconds":25}`)
	for n := range 10 {
		say(t, c, fmt.Sprintf(`{"id":"n%d","cmd":"echo out %d; warn err %d; exit %d"}`, n, n, n, n))
	}
	out := map[string]string{}
	for done := 0; done < 10; {
		m := hear(t, c)
		if m.Exit != nil {
			out[m.ID] = out[m.ID+"stdout"] + out[m.ID+"stderr"] + fmt.Sprint(*m.Exit)
			done++
			continue
		}
		out[m.ID+m.Stream] += m.Data
	}
	for n := range 10 {
		got := out[fmt.Sprint("n", n)]
		if got != fmt.Sprintf("out %d\nerr %d\n%d", n, n, n) {
			t.Errorf("%d: %q", n, got)
		}
	}
	say(t, c, `{"id":"long","args":["true"]}`)
	if m := hear(t, c); m.ID != "long" || m.Code != api.CodeExecConflict {
		t.Errorf("%+v", m)
	}
	for _, bad := range []string{"{", `{}`, `{"id":""}`, `{"id":"a"}`, `{"id":"a","cmd":"b","what":1}`, `{"id":"a","cmd":"b","tty":true}`, `{"id":"` + strings.Repeat("x", 200) + `","cmd":"b"}`} {
		say(t, c, bad)
		if m := hear(t, c); m.Code != api.CodeBadRequest || m.Error == "" || len(m.ID) > 128 {
			t.Errorf("%s: %+v", bad, m)
		}
	}
	say(t, c, `{"id":"nobody","cancel":true}`)
	say(t, c, `{"id":"long","cancel":true}`)
	if m := hear(t, c); m.ID != "long" || m.Exit == nil || *m.Exit != 137 || m.Ending != api.EndKilled {
		t.Errorf("%+v", m)
	}
	say(t, c, `{"id":"slow","cmd":"sleep 60","timeout_seconds":0.1}`)
	if m := hear(t, c); m.Exit == nil || *m.Exit != 124 || !m.TimedOut {
		t.Errorf("%+v", m)
	}
	say(t, c, `{"id":"in","args":["cat"],"input":"typed"}`)
	if m := hear(t, c); m.Data != "typed" {
		t.Errorf("%+v", m)
	}
	hear(t, c)
	for n := range 17 {
		say(t, c, fmt.Sprintf(`{"id":"m%d","args":["sleep","60"],"timeout_seconds":25}`, n))
	}
	if m := hear(t, c); m.ID != "m16" || m.Code != api.CodeRate {
		t.Errorf("%+v", m)
	}
	until(t, "they run", func() bool { return e.running(id) == 16 })
	c.CloseNow() // and with the connection all of them end
	until(t, "they have ended", func() bool { return e.running(id) == 0 })
}

// A client that sends too much at once is cut; one that reads nothing holds
// nobody else.
func TestMuxHostile(t *testing.T) {
	e := newEdgeWith(t, server.Options{WriteTimeout: 300 * time.Millisecond}, sandbox.Options{Drain: 100 * time.Millisecond})
	id := e.create()
	c := e.ws("/v1/sandboxes/" + id + "/exec/ws")
	c.Write(t.Context(), websocket.MessageText, []byte(`{"id":"`+strings.Repeat("x", 2<<20)+`"}`))
	if _, _, err := c.Read(t.Context()); err == nil {
		t.Error("a message of 2 MiB was taken")
	}
	c = e.ws("/v1/sandboxes/" + id + "/exec/ws")
	say(t, c, `{"id":"a","args":["yes"],"timeout_seconds":25}`)
	until(t, "it runs", func() bool { return e.running(id) == 1 })
	if a := e.run(id, `{"args":["echo","hi"]}`); a.Stdout != "hi\n" {
		t.Errorf("%+v", a)
	}
	until(t, "it was cut", func() bool { return e.running(id) == 0 })
}

func TestPTY(t *testing.T) {
	e := newEdge(t)
	id := e.create()
	c := e.ws("/v1/sandboxes/" + id + "/exec/pty?rows=30&cols=100&cmd=cat")
	say(t, c, `{"resize":{"rows":40,"cols":120}}`)
	if err := c.Write(t.Context(), websocket.MessageBinary, []byte("typed\n")); err != nil {
		t.Fatal(err)
	}
	say(t, c, `{"stdin":"and sent\n"}`)
	got := ""
	for !strings.Contains(got, "and sent") {
		kind, p, err := c.Read(t.Context())
		if err != nil || kind != websocket.MessageBinary {
			t.Fatalf("%v %q %v", kind, p, err)
		}
		got += string(p)
	}
	if !strings.Contains(got, "typed") {
		t.Errorf("%q", got)
	}
	say(t, c, `{"resize":{"rows":0,"cols":1}}`) // breaks the rules
	for {
		if _, _, err := c.Read(t.Context()); err != nil {
			break
		}
	}
	until(t, "it has ended", func() bool { return e.running(id) == 0 })

	c = e.ws("/v1/sandboxes/" + id + "/exec/pty?cmd=exit+7")
	var end muxMessage
	_, p, err := c.Read(t.Context())
	if json.Unmarshal(p, &end); err != nil || end.Exit == nil || *end.Exit != 7 {
		t.Errorf("%s %v", p, err)
	}
	if _, _, err := c.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusNormalClosure {
		t.Error(err)
	}
	for path, want := range map[string]int{"?rows=0": 400, "?cols=70000": 400, "?rows=x": 400, "?what=1": 400, "?timeout_seconds=x": 400, "": 400} {
		if status, body := e.do("GET", "/v1/sandboxes/"+id+"/exec/pty"+path, ""); status != want {
			t.Errorf("%q: %d %s", path, status, body)
		}
	}
}

// What a browser's page of another origin opens is refused.
func TestWebSocketOrigin(t *testing.T) {
	e := newEdge(t)
	id := e.create()
	for _, route := range []string{"/exec/ws", "/exec/pty"} {
		c, resp, err := websocket.Dial(t.Context(), "ws://berm/v1/sandboxes/"+id+route, &websocket.DialOptions{
			HTTPClient: e.client(), HTTPHeader: http.Header{"Origin": {"http://evil.example"}}})
		if err == nil {
			c.CloseNow()
		}
		if resp == nil || resp.StatusCode != 403 {
			t.Errorf("%s: %v %v", route, resp, err)
		}
	}
}
