package server_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/sandbox"
	"github.com/bermhq/berm/internal/server"
)

func TestLogs(t *testing.T) {
	e := newEdgeWith(t, server.Options{Heartbeat: 50 * time.Millisecond}, sandbox.Options{})
	id := e.create()
	at := "/v1/sandboxes/" + id + "/logs"
	spawn := func(cmd string) {
		t.Helper()
		if status, out := e.do("POST", "/v1/sandboxes/"+id+"/exec", `{"cmd":"`+cmd+`","detach":true,"timeout_seconds":25}`); status != 202 {
			t.Fatalf("%d %s", status, out)
		}
	}
	if status, out := e.do("GET", at, ""); status != 200 || out != "" {
		t.Errorf("%d %q", status, out)
	}
	e.run(id, `{"args":["echo","not","logged"]}`)
	events(t, e.open(t.Context(), "POST", "/v1/sandboxes/"+id+"/exec/stream", `{"cmd":"echo one"}`))
	until(t, "one has ended", func() bool { return e.running(id) == 0 })
	spawn("warn two; echo three; sleep 60")
	until(t, "all is there", func() bool {
		_, out := e.do("GET", at+"?stream=both&tail=100", "")
		return strings.HasPrefix(out, "one\n") && strings.Contains(out, "two\n") && strings.Contains(out, "three\n") && len(out) == 14
	})
	for query, want := range map[string]string{"?stream=stderr": "two\n", "?stream=stdout": "one\nthree\n", "?stream=stdout&tail=1": "three\n", "?tail=0": "", "?follow=false&stream=stderr": "two\n"} {
		if status, out := e.do("GET", at+query, ""); status != 200 || out != want {
			t.Errorf("%s: %d %q", query, status, out)
		}
	}
	for _, query := range []string{"?stream=x", "?follow=maybe", "?tail=-1", "?since=1"} {
		if status, out := e.do("GET", at+query, ""); status != 400 {
			t.Errorf("%s: %d %s", query, status, out)
		}
	}

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	resp := e.open(ctx, "GET", at+"?follow=true&stream=stdout", "")
	f := newFeed(t, resp)
	if ev := f.must(); ev != (event{name: "open"}) {
		t.Errorf("%+v", ev)
	}
	for _, want := range []string{"one\n", "three\n"} {
		if ev := f.must(); ev.name != "line" || decodeData[api.LogLine](t, ev).Line != want {
			t.Errorf("%+v", ev)
		}
	}
	spawn("echo four é")
	if l := decodeData[api.LogLine](t, f.must()); l.Line != "four é\n" || l.Stream != "stdout" || l.ExecID == "" {
		t.Errorf("%+v", l)
	}
	if status, body := e.do("DELETE", "/v1/sandboxes/"+id, ""); status != 204 {
		t.Errorf("%d %s", status, body)
	}
	if evs := f.rest(); len(evs) > 1 {
		t.Errorf("%+v", evs)
	}
}
