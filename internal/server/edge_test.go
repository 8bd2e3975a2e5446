package server_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/server"
)

// Paths mean what they say, or nothing: no redirect, no cleaning.
func TestPaths(t *testing.T) {
	w := newWorld(t)
	id := w.create(agent, `{}`)
	for _, tt := range []struct {
		method, path string
		status       int
		code         string
	}{
		{"GET", "/", 404, api.CodeNoRoute},
		{"GET", "/v1", 404, api.CodeNoRoute},
		{"GET", "/v1/", 404, api.CodeNoRoute},
		{"GET", "/v1/sandboxes/", 404, api.CodeNoRoute},
		{"POST", "/v1/sandboxes/", 404, api.CodeNoRoute},
		{"GET", "//v1/sandboxes", 404, api.CodeNoRoute},
		{"GET", "/v1//sandboxes", 404, api.CodeNoRoute},
		{"GET", "/v1/sandboxes/" + id + "/", 404, api.CodeNoRoute},
		{"GET", "/v1/sandboxes//metrics", 404, api.CodeNoRoute},
		{"GET", "/V1/sandboxes", 404, api.CodeNoRoute},
		{"GET", "/v1/sandboxes/%2e%2e", 400, api.CodeBadRequest},
		{"GET", "/v1/sandboxes/..", 400, api.CodeBadRequest},
		{"GET", "/v1/x/../sandboxes", 400, api.CodeBadRequest},
		{"GET", "/v1/./sandboxes", 400, api.CodeBadRequest},
		{"GET", "/v1/sandboxes/" + id + "%2fmetrics", 404, api.CodeNoRoute},
		{"GET", "/v1%2fsandboxes", 404, api.CodeNoRoute},
		{"PUT", "/v1/sandboxes/" + id + "%2fx/proxy/80/x", 404, api.CodeNoRoute},
		{"PUT", "/v1/sandboxes/" + id + "/proxy/80/../../x", 400, api.CodeBadRequest},
		{"GET", "/v1/sandboxes/a%00b", 400, api.CodeBadRequest},
		{"GET", "/v1/sandboxes/a%ff", 400, api.CodeBadRequest},
		{"GET", "/v1/sandboxes/" + id + "?report=1;x=%zz", 400, api.CodeBadRequest},
		{"GET", "/v1/sandboxes?nope=1", 400, api.CodeBadRequest},
		{"GET", "/v1/sandboxes?limit=1&limit=2", 400, api.CodeBadRequest},
		{"GET", "/v1/sandboxes?limit=0", 400, api.CodeBadRequest},
		{"GET", "/v1/sandboxes?ended=yes", 400, api.CodeBadRequest},
		{"PUT", "/v1/sandboxes", 405, api.CodeMethod},
		{"OPTIONS", "/v1/sandboxes", 405, api.CodeMethod},
		{"TRACE", "/v1/sandboxes", 405, api.CodeMethod},
		{"PATCH", "/v1/sandboxes/" + id, 405, api.CodeMethod},
		{"HEAD", "/v1/events", 405, ""},
		{"HEAD", "/v1/sandboxes/" + id, 200, ""},
		{"HEAD", "/v1/version", 200, ""},
		{"HEAD", "/healthz", 200, ""},
		{"HEAD", "/v1/sandboxes/none", 404, ""},
		{"GET", "/v1/templates/builds", 403, api.CodeTokenForbidden},
		{"GET", "/v1/templates/a%2Fb:c", 404, api.CodeTemplateNotFound},
		{"GET", "/v1/templates/a/b:c", 404, api.CodeNoRoute},
		{"GET", "/v1/templates%2Fa", 404, api.CodeNoRoute},
		{"GET", "/v1/templates/host", 200, ""},
		{"GET", "/v1/templates/none", 404, api.CodeTemplateNotFound},
		{"GET", "/v1/apps/a/b/c", 501, api.CodeUnavailable},
	} {
		g := w.ask(agent, tt.method, tt.path, "")
		if g.status != tt.status || g.err.Code != tt.code {
			t.Errorf("%s %s: %d %s, want %d %s", tt.method, tt.path, g.status, g.err.Code, tt.status, tt.code)
		}
		if allow := g.header.Get("Allow"); (allow != "") != (tt.status == 405) {
			t.Errorf("%s %s: Allow: %q", tt.method, tt.path, allow)
		}
		if anon := w.ask("", tt.method, tt.path, ""); anon.status != 401 && tt.path != "/healthz" {
			t.Errorf("%s %s without a token: %d", tt.method, tt.path, anon.status)
		}
	}
	if a := w.ask(agent, "PUT", "/v1/sandboxes", "").header.Get("Allow"); a != "GET, HEAD, POST" {
		t.Errorf("Allow: %q", a)
	}
}

func TestRequestID(t *testing.T) {
	w := newWorld(t)
	for given, echoed := range map[string]bool{
		"abc-1.2_3:Z": true, "x": true, strings.Repeat("x", 64): true,
		strings.Repeat("x", 65): false, "a b": false, "a\"b": false, "": false, "ä": false,
	} {
		g := w.ask(agent, "GET", "/v1/none", "", "X-Request-Id", given)
		id := g.header.Get("X-Request-Id")
		if (id == given) != echoed || id == "" || g.err.RequestID != id {
			t.Errorf("%q: %q and %q", given, id, g.err.RequestID)
		}
	}
}

// Who was led here by another name, or from another page, gets nothing.
func TestHostAndOrigin(t *testing.T) {
	w := newWorld(t, func(o *server.Options) { o.Hosts = []string{"berm.example", "[2001:db8::7]"} })
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(w.url, "http://"))
	self := "127.0.0.1:" + port
	for _, tt := range []struct {
		host, origin string
		ok           bool
	}{
		{"", "", true},
		{"localhost", "", true},
		{"LOCALHOST.:80", "", true},
		{"127.0.0.1", "", true},
		{"127.9.9.9:1", "", true},
		{"[::1]:7070", "", true},
		{"berm.example:443", "", true},
		{"Berm.Example", "", true},
		{"[2001:db8::7]:80", "", true},
		{"evil.example", "", false},
		{"localhost.evil.example", "", false},
		{"127.0.0.1.evil.example:80", "", false},
		{"10.0.0.1", "", false},
		{"169.254.169.254", "", false},
		{"0.0.0.0", "", false},
		{"[::ffff:127.0.0.1]", "", true},
		{"", "http://" + self, true},
		{"", "http://evil.example", false},
		{"", "null", false},
		{"", "https://" + self + "/x", false},
		{"", "file://", false},
		{"", "http://localhost:" + port, false}, // another name is another origin
		{"localhost:" + port, "http://localhost:" + port, true},
		{"berm.example", "https://berm.example", true},
		{"berm.example:443", "https://berm.example", true},
		{"berm.example", "http://berm.example:8080", false},
		{"evil.example", "http://evil.example", false},
	} {
		for _, path := range []string{"/healthz", "/v1/version"} {
			var header []string
			if tt.host != "" {
				header = append(header, "Host", tt.host)
			}
			if tt.origin != "" {
				header = append(header, "Origin", tt.origin)
			}
			g := w.ask(agent, "GET", path, "", header...)
			if tt.ok && g.status != 200 || !tt.ok && (g.status != 403 || g.err.Code != api.CodeOriginForbidden) {
				t.Errorf("Host %q, Origin %q, %s: %d %s", tt.host, tt.origin, path, g.status, g.body)
			}
			for name := range g.header {
				if strings.HasPrefix(name, "Access-Control-") {
					t.Errorf("Host %q, Origin %q: %s", tt.host, tt.origin, name)
				}
			}
		}
	}
	g := w.ask("", "OPTIONS", "/v1/sandboxes", "", "Origin", "http://evil.example", "Access-Control-Request-Method", "POST")
	if g.status != 403 {
		t.Errorf("a preflight: %d", g.status)
	}
	if len(w.store.notes) == 0 || w.store.notes[0].Type != api.EventDenied || w.store.notes[0].Actor != "anonymous" {
		t.Errorf("refusals are not on record: %+v", w.store.notes)
	}
}

// A token in the address is taken by streams only, and never seen again.
func TestTokenInAddress(t *testing.T) {
	w := newWorld(t)
	if g := w.ask("", "GET", "/v1/events?access_token="+agent, ""); g.status != 200 {
		t.Errorf("events: %d %s", g.status, g.body)
	}
	if g := w.ask("", "GET", "/v1/events?access_token="+wrongToken, ""); g.status != 401 {
		t.Errorf("a wrong one: %d", g.status)
	}
	if g := w.ask("", "GET", "/v1/sandboxes?access_token="+agent, ""); g.status != 401 || g.err.Code != api.CodeTokenMissing {
		t.Errorf("a route that is no stream: %d", g.status)
	}
	if g := w.ask("", "POST", "/v1/sandboxes?access_token="+agent, "{}"); g.status != 401 {
		t.Errorf("a create: %d", g.status)
	}
	if strings.Contains(w.log.String(), agent) || strings.Contains(w.log.String(), "access_token") {
		t.Error("the log holds the token")
	}
	for _, h := range []string{"Basic " + agent, agent, "Bearer", "Bearer "} {
		if g := w.ask("", "GET", "/v1/version", "", "Authorization", h); g.status != 401 || g.err.Detail == "" {
			t.Errorf("Authorization: %s: %d %s", h, g.status, g.body)
		}
	}
	if g := w.ask("", "GET", "/v1/version", "", "Authorization", "bearer  "+agent); g.status != 200 {
		t.Errorf("a scheme has no case: %d", g.status)
	}
}

// Guessing is slow, on record, and costs nobody else anything.
func TestBadTokens(t *testing.T) {
	w := newWorld(t, func(o *server.Options) { o.BadTokens = 5 })
	n := map[int]int{}
	for range 20 {
		g := w.ask(wrongToken, "GET", "/v1/version", "")
		n[g.status]++
		if g.status == 429 && (g.header.Get("Retry-After") == "" || g.err.RetryAfter == 0) {
			t.Error("429 without Retry-After")
		}
	}
	if n[401] < 5 || n[401] > 7 || n[429] != 20-n[401] {
		t.Errorf("answers: %v", n)
	}
	if g := w.ask(agent, "GET", "/v1/version", ""); g.status != 200 {
		t.Errorf("a good token: %d", g.status)
	}
}

// One token may have so many requests open, and others are not touched by it.
func TestConcurrent(t *testing.T) {
	w := newWorld(t, func(o *server.Options) { o.Concurrent = 2 })
	w.store.add(api.Event{Type: "x", Tenant: "default"})
	var open []*http.Response
	for range 2 {
		req, _ := http.NewRequestWithContext(t.Context(), "GET", w.url+"/v1/events?follow=1", nil)
		req.Header.Set("Authorization", "Bearer "+agent)
		resp, err := w.http.Do(req)
		if err != nil || resp.StatusCode != 200 {
			t.Fatalf("%v %v", resp, err)
		}
		open = append(open, resp)
	}
	if g := w.ask(agent, "GET", "/v1/version", ""); g.status != 429 || g.err.Code != api.CodeRate || g.header.Get("Retry-After") != "1" {
		t.Errorf("%d %s", g.status, g.body)
	}
	if g := w.ask(otherAgent, "GET", "/v1/version", ""); g.status != 200 {
		t.Errorf("another token: %d", g.status)
	}
	for _, resp := range open {
		resp.Body.Close()
	}
	for end := time.Now().Add(10 * time.Second); w.ask(agent, "GET", "/v1/version", "").status != 200; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("what was open is still counted")
		}
	}
}

// Whoever sends slowly, or lies about how much, is cut off.
func TestSlowClients(t *testing.T) {
	w := newWorld(t, func(o *server.Options) { o.ReadTimeout = 200 * time.Millisecond })
	addr := strings.TrimPrefix(w.url, "http://")
	for name, send := range map[string]string{
		"a body that never comes":        "POST /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + agent + "\r\nContent-Length: 10\r\n\r\n{",
		"a body that nobody asked for":   "DELETE /v1/sandboxes/none HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + agent + "\r\nContent-Length: 10\r\n\r\n",
		"a body without a token":         "POST /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n",
		"a chunked body that never ends": "POST /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + agent + "\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n",
	} {
		nc, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		nc.SetDeadline(time.Now().Add(10 * time.Second))
		fmt.Fprint(nc, send)
		r := bufio.NewReader(nc)
		resp, err := http.ReadResponse(r, nil)
		if err != nil || resp.StatusCode < 400 || resp.StatusCode >= 500 {
			t.Errorf("%s: %v %v", name, resp, err)
		}
		for err == nil { // and then the connection is closed
			_, err = r.ReadByte()
		}
		if ne, ok := err.(net.Error); ok && ne.Timeout() {
			t.Errorf("%s: the connection stays open", name)
		}
		nc.Close()
	}
	// Headers have a bound too.
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	nc.SetDeadline(time.Now().Add(10 * time.Second))
	go fmt.Fprintf(nc, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: %s\r\n\r\n", strings.Repeat("x", 1<<20))
	if resp, err := http.ReadResponse(bufio.NewReader(nc), nil); err == nil && resp.StatusCode != 431 {
		t.Errorf("a megabyte of headers: %d", resp.StatusCode)
	}
}

func TestMetrics(t *testing.T) {
	w := newWorld(t)
	w.create(agent, `{}`)
	g := w.ask(operator, "GET", "/metrics", "")
	for _, want := range []string{`berm_http_requests_total{route="sandbox.create",status="201"} 1`, `berm_sandboxes{state="running"} 1`, "berm_sandbox_creates_total 1", "berm_execs_total 0", "berm_audit_degraded 0", "go_goroutines", "process_resident_memory_bytes"} {
		if !strings.Contains(g.body, want) {
			t.Errorf("/metrics has no %s:\n%.2000s", want, g.body)
		}
	}
	if !strings.Contains(w.log.String(), "actor=t-agent tenant=default") {
		t.Errorf("the log: %s", w.log.String())
	}
}
