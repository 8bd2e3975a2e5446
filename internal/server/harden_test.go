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
	"github.com/bermhq/berm/internal/server"
)

// knock opens a connection to a world and sends a request on it; it returns once
// it is answered.
func (w *world) knock(path, token string) (nc net.Conn, resp *http.Response) {
	w.t.Helper()
	nc, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { nc.Close() })
	nc.SetDeadline(time.Now().Add(10 * time.Second))
	if path == "" {
		return nc, nil
	}
	if token != "" {
		token = "Authorization: Bearer " + token + "\r\n"
	}
	fmt.Fprintf(nc, "GET %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n", path, token)
	resp, err = http.ReadResponse(bufio.NewReader(nc), nil)
	if err != nil {
		w.t.Fatal(err)
	}
	io.Copy(io.Discard, resp.Body)
	return nc, resp
}

// ended says whether the other side has closed.
func ended(nc net.Conn) bool {
	nc.SetReadDeadline(time.Now().Add(10 * time.Second))
	_, err := nc.Read(make([]byte, 1))
	ne, ok := err.(net.Error)
	return err != nil && !(ok && ne.Timeout())
}

// Who shows no token keeps no connection, and does not keep others out.
func TestStrangers(t *testing.T) {
	w := newBoundWorld(t, 8, 4)
	for _, token := range []string{"", wrongToken} {
		path := "/healthz"
		if token != "" {
			path = "/v1/me"
		}
		if nc, resp := w.knock(path, token); !resp.Close || !ended(nc) {
			t.Errorf("%s: the connection stays open: %v", path, resp.Header)
		}
	}
	if strings.Contains(w.log.String(), "healthz") {
		t.Error("a stranger fills the log")
	}

	known, resp := w.knock("/v1/me", agent)
	if resp.Close || resp.StatusCode != 200 {
		t.Fatalf("%v", resp)
	}
	var silent []net.Conn
	for range 5 {
		nc, _ := w.knock("", "")
		silent = append(silent, nc)
	}
	if !ended(silent[0]) {
		t.Error("an address has more silent connections than it may")
	}
	fmt.Fprint(known, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
	if resp, err := http.ReadResponse(bufio.NewReader(known), nil); err != nil || resp.Close {
		t.Errorf("the one with a token: %v %v", resp, err)
	}
	// Full: the strangers go first, then the idle one that is oldest.
	for range 8 {
		w.knock("/v1/me", agent)
	}
	if !ended(silent[4]) || !ended(known) {
		t.Error("nobody made room")
	}
}

// Where all are busy with a token, the next waits.
func TestBoundFull(t *testing.T) {
	w := newBoundWorld(t, 2, 4)
	busy := func() net.Conn {
		nc, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(nc, "GET /v1/events?follow=1 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n", agent)
		return nc
	}
	var all []net.Conn
	for range 3 {
		nc := busy()
		defer nc.Close()
		all = append(all, nc)
		if len(all) < 3 {
			if _, err := http.ReadResponse(bufio.NewReader(nc), nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	all[2].SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	if _, err := all[2].Read(make([]byte, 1)); err == nil {
		t.Error("three connections are open")
	}
	all[0].Close()
	all[2].SetReadDeadline(time.Now().Add(10 * time.Second))
	if resp, err := http.ReadResponse(bufio.NewReader(all[2]), nil); err != nil || resp.StatusCode != 200 {
		t.Errorf("%v %v", resp, err)
	}
}

// No method has an answer that asks for no token.
func TestGeneralOptions(t *testing.T) {
	w := newWorld(t)
	nc, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	fmt.Fprint(nc, "OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n")
	if resp, err := http.ReadResponse(bufio.NewReader(nc), nil); err != nil || resp.StatusCode != 401 {
		t.Errorf("%v %v", resp, err)
	}
}

func newBoundWorld(t *testing.T, n, strangers int) *world {
	bounds[t] = func(l net.Listener) net.Listener { return server.Bound(l, n, strangers) }
	defer delete(bounds, t)
	return newWorld(t, func(o *server.Options) {})
}

// bounds are the listeners of the tests that want others.
var bounds = map[*testing.T]func(net.Listener) net.Listener{}

// All tokens of a tenant together may have so many requests open.
func TestConcurrentTenant(t *testing.T) {
	w := newWorld(t, func(o *server.Options) { o.Concurrent = 1 })
	for i := range 5 {
		token := fmt.Sprintf("e2b_more%d", i)
		w.auth.ids[token] = auth.Identity{TokenID: token, Tenant: api.DefaultTenant, Role: api.RoleAgent}
		want := 200
		if i == 4 {
			want = 429
		}
		req, _ := http.NewRequestWithContext(t.Context(), "GET", w.url+"/v1/events?follow=1", nil)
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := w.http.Do(req)
		if err != nil || resp.StatusCode != want {
			t.Fatalf("token %d: %v %v", i, resp, err)
		}
		defer resp.Body.Close()
	}
	if g := w.ask(otherAgent, "GET", "/v1/version", ""); g.status != 200 {
		t.Errorf("another tenant: %d", g.status)
	}
}
