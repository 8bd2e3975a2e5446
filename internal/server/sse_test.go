package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/sandbox"
	"github.com/bermhq/berm/internal/server"
)

// A daemon that is about to stop ends what has no end of its own, says so, and
// lets its clients come back to what goes on.
func TestStopping(t *testing.T) {
	stop, cancel := context.WithCancel(t.Context())
	e := newEdgeWith(t, server.Options{Stopping: stop}, sandbox.Options{})
	id := e.create()
	at := "/v1/sandboxes/" + id
	watch := newFeed(t, e.open(t.Context(), "GET", at+"/fs/watch?path=/workspace", ""))
	logs := newFeed(t, e.open(t.Context(), "GET", at+"/logs?follow=1", ""))
	watch.must()
	logs.must()
	mux, pty := e.ws(at+"/exec/ws"), e.ws(at+"/exec/pty?cmd=cat")
	port := raw(t, func(c net.Conn) { c.Read(make([]byte, 1)) })
	nc, r, _ := e.dialStream(id, port)
	defer nc.Close()
	cancel()
	for name, f := range map[string]*feed{"watch": watch, "logs": logs} {
		evs := f.rest()
		if len(evs) != 1 || evs[0].name != "error" || decodeData[api.Error](t, evs[0]).Code != api.CodeShuttingDown {
			t.Errorf("%s: %+v", name, evs)
		}
	}
	if _, _, err := mux.Read(t.Context()); err == nil {
		t.Error("exec/ws goes on")
	}
	for {
		if _, _, err := pty.Read(t.Context()); err != nil {
			break
		}
	}
	if _, err := r.ReadByte(); err == nil {
		t.Error("the raw stream goes on")
	}
}

// A reader of events that takes nothing is cut, and its command goes on.
func TestStuckReader(t *testing.T) {
	e := newEdgeWith(t, server.Options{WriteTimeout: 200 * time.Millisecond, Heartbeat: 50 * time.Millisecond}, sandbox.Options{})
	id := e.create()
	_, body := e.do("POST", "/v1/sandboxes/"+id+"/exec", `{"args":["sleep","60"],"detach":true,"timeout_seconds":25}`)
	var x api.Exec
	if err := json.Unmarshal([]byte(body), &x); err != nil {
		t.Fatal(body)
	}
	nc, err := e.dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	fmt.Fprintf(nc, "GET /v1/sandboxes/%s/execs/%s/output?follow=1 HTTP/1.1\r\nHost: berm\r\n\r\n", id, x.ExecID)
	time.Sleep(600 * time.Millisecond) // nothing of it is read
	nc.SetDeadline(time.Now().Add(5 * time.Second))
	buf := make([]byte, 4096)
	for n := 0; ; n++ {
		if _, err := nc.Read(buf); err != nil {
			if ne, ok := err.(net.Error); ok && ne.Timeout() {
				t.Error("the connection was not cut")
			}
			break
		}
	}
	if e.running(id) != 1 {
		t.Error("the command has ended")
	}
}
