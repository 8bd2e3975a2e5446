package server_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/auth"
)

// What was let in on a token ends when the token does, upgraded or not.
func TestTokenEnds(t *testing.T) {
	w, _ := newRealWorld(t)
	id := w.create(agent, "{}")
	at := "/v1/sandboxes/" + id
	echo := app(t, func(rw http.ResponseWriter, r *http.Request) {
		nc, _, err := rw.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer nc.Close()
		fmt.Fprint(nc, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n")
		io.Copy(nc, nc)
	})
	quiet := raw(t, func(c net.Conn) { c.Read(make([]byte, 1)) })
	const socket = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
	sleep := `{"args":["sleep","30"]}`
	for name, q := range map[string]struct {
		line, header, body string
		status             int
	}{
		"exec upgraded": {"POST " + at + "/exec", "Upgrade: berm-exec\r\nConnection: Upgrade\r\n", sleep, 101},
		"exec stream":   {"POST " + at + "/exec/stream", "", sleep, 200},
		"exec ws":       {"GET " + at + "/exec/ws", socket, "", 101},
		"exec pty":      {"GET " + at + "/exec/pty?cmd=cat", socket, "", 101},
		"dial":          {fmt.Sprintf("GET %s/dial/%d", at, quiet), "Upgrade: berm-stream\r\nConnection: Upgrade\r\n", "", 101},
		"proxy":         {fmt.Sprintf("GET %s/proxy/%d/", at, echo), "Upgrade: echo\r\nConnection: Upgrade\r\n", "", 101},
		"bound create":  {"POST /v1/sandboxes", "Upgrade: berm-bound\r\nConnection: Upgrade\r\n", "{}", 101},
		"events":        {"GET /v1/events?follow=1", "", "", 200},
		"logs":          {"GET " + at + "/logs?follow=1", "", "", 200},
		"watch":         {"GET " + at + "/fs/watch?path=/workspace", "", "", 200},
	} {
		t.Run(name, func(t *testing.T) {
			made, err := w.opt.Auth.Create(t.Context(), auth.Local, api.TokenRequest{Role: api.RoleAgent})
			if err != nil {
				t.Fatal(err)
			}
			nc, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			nc.SetDeadline(time.Now().Add(8 * time.Second))
			fmt.Fprintf(nc, "%s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n%sContent-Length: %d\r\n\r\n%s", q.line, made.Token, q.header, len(q.body), q.body)
			r := bufio.NewReader(nc)
			resp, err := http.ReadResponse(r, nil)
			if err != nil || resp.StatusCode != q.status {
				t.Fatalf("%v %v", resp, err)
			}
			if err := w.opt.Auth.Revoke(t.Context(), auth.Local, made.Info.TokenID); err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode == 200 {
				_, err = io.Copy(io.Discard, resp.Body)
			} else {
				_, err = io.Copy(io.Discard, r)
			}
			if ne, ok := err.(net.Error); ok && ne.Timeout() {
				t.Error("it goes on without its token")
			}
		})
	}
	until(t, "the bound sandbox is gone", func() bool { return w.be.Live() == 1 })
}

// A plain exec ends with the token that it was asked for on.
func TestTokenExpiresInExec(t *testing.T) {
	w, _ := newRealWorld(t)
	id := w.create(agent, "{}")
	made, err := w.opt.Auth.Create(t.Context(), auth.Local, api.TokenRequest{Role: api.RoleAgent, TTLSeconds: 1})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	g := w.ask(made.Token, "POST", "/v1/sandboxes/"+id+"/exec", `{"args":["sleep","15"]}`)
	if g.status != 200 || !strings.Contains(g.body, `"ending":"killed"`) || time.Since(began) > 10*time.Second {
		t.Errorf("%d %s after %v", g.status, g.body, time.Since(began))
	}
}
