package server_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/bermhq/berm/api"
)

// app serves h where the fake backend's guests find it, and returns its port.
func app(t *testing.T, h http.HandlerFunc) int {
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	_, port, _ := net.SplitHostPort(srv.Listener.Addr().String())
	n, _ := strconv.Atoi(port)
	return n
}

func TestProxy(t *testing.T) {
	e := newEdge(t)
	id := e.create()
	port := app(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.Header().Set("Access-Control-Allow-Origin", "*")
		switch r.URL.Path {
		case "/away":
			http.Redirect(w, r, "http://evil.example/", http.StatusFound)
		case "/next":
			http.Redirect(w, r, "/there?x=1", http.StatusFound)
		case "/early":
			w.Header().Set("Set-Cookie", "berm=1")
			w.WriteHeader(http.StatusEarlyHints)
			fmt.Fprint(w, "late")
		case "/cut":
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, "part")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		case "/ws":
			c, err := websocket.Accept(w, r, nil)
			if err != nil {
				return
			}
			kind, p, _ := c.Read(r.Context())
			c.Write(r.Context(), kind, append([]byte("echo "), p...))
			c.Close(websocket.StatusNormalClosure, "")
		default:
			b, _ := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%s %s %s auth=%q %s", r.Method, r.RequestURI, r.Host, r.Header.Get("Authorization"), b)
		}
	})
	at := fmt.Sprintf("/v1/sandboxes/%s/proxy/%d", id, port)
	for _, tt := range []struct{ method, path, body, want string }{
		{"GET", "", "", "GET / "},
		{"GET", "/", "", "GET / "},
		{"POST", "/a%2Fb//c?q=%20&access_token=t", "body", "POST /a%2Fb//c?q=%20 "},
		{"DELETE", "/x?y", "", "DELETE /x?y "},
	} {
		status, out := e.do(tt.method, at+tt.path, tt.body, "Authorization", "Bearer secret")
		if want := fmt.Sprintf("%slocalhost:%d auth=\"\" %s", tt.want, port, tt.body); status != 200 || out != want {
			t.Errorf("%s %s: %d %q, want %q", tt.method, tt.path, status, out, want)
		}
	}
	for path, want := range map[string]string{"/away": "", "/next": at + "/there?x=1"} {
		tr := &http.Transport{DialContext: e.client().Transport.(*http.Transport).DialContext, DisableKeepAlives: true}
		req, _ := http.NewRequest("GET", "http://berm"+at+path, nil)
		resp, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 302 || resp.Header.Get("Location") != want {
			t.Errorf("%s: %d %q", path, resp.StatusCode, resp.Header.Get("Location"))
		}
	}
	resp := e.open(t.Context(), "GET", at+"/early", "")
	if resp.Header.Get("Content-Security-Policy") != "sandbox" || resp.Header.Get("Access-Control-Allow-Origin") != "" ||
		!api.ValidID(resp.Header.Get("X-Request-Id")) || resp.Header.Get("Set-Cookie") != "" {
		t.Errorf("%v", resp.Header)
	}
	if resp, err := e.client().Get("http://berm" + at + "/cut"); err == nil {
		if b, err := io.ReadAll(resp.Body); err == nil {
			t.Errorf("%q was given for the whole", b)
		}
		resp.Body.Close()
	}

	c := e.ws(at + "/ws")
	say(t, c, "hi")
	if _, p, err := c.Read(t.Context()); string(p) != "echo hi" || err != nil {
		t.Errorf("%q %v", p, err)
	}

	status, out := e.do("GET", "/v1/sandboxes/"+id+"/ports", "")
	var ports []api.Port
	if err := json.Unmarshal([]byte(out), &ports); err != nil || status != 200 {
		t.Errorf("%d %s", status, out)
	}
	found := false
	for _, p := range ports {
		if p.Port == port {
			found = p.Listening && p.ProxyURL == "http://berm"+at+"/" && p.Source == "detected"
		}
	}
	if !found {
		t.Errorf("%s", out)
	}
	for _, port := range []string{"0", "65536", "-1", "x", "080", "+80"} {
		for _, route := range []string{"/proxy/", "/dial/"} {
			if status, out := e.do("GET", "/v1/sandboxes/"+id+route+port, ""); status != 400 {
				t.Errorf("%s%s: %d %s", route, port, status, out)
			}
		}
	}
}

// raw accepts connections where guests find it and hands them to f.
func raw(t *testing.T, f func(net.Conn)) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); f(c) }()
		}
	}()
	return l.Addr().(*net.TCPAddr).Port
}

// Programs inside that answer nonsense, without end, or not at all.
func TestProxyHostile(t *testing.T) {
	e := newEdge(t)
	id := e.create()
	for name, answer := range map[string]string{
		"nothing":      "",
		"no protocol":  "220 smtp.example\r\n",
		"huge header":  "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 200<<10) + "\r\n\r\n",
		"many headers": "HTTP/1.1 200 OK\r\n" + strings.Repeat("X: y\r\n", 50000) + "\r\n",
		"no upgrade":   "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
		"two lengths":  "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
	} {
		port := raw(t, func(c net.Conn) {
			http.ReadRequest(bufio.NewReader(c))
			io.WriteString(c, answer)
		})
		status, out := e.do("GET", fmt.Sprintf("/v1/sandboxes/%s/proxy/%d/", id, port), "")
		if status != 502 || !strings.Contains(out, api.CodePortClosed) {
			t.Errorf("%s: %d %.200s", name, status, out)
		}
		for _, text := range []string{"connect: connection refused", "no route to host", "i/o timeout"} {
			if strings.Contains(out, text) {
				t.Errorf("%s: %s", name, out)
			}
		}
	}
	l, _ := net.Listen("tcp", "127.0.0.1:0")
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	status, out := e.do("GET", fmt.Sprintf("/v1/sandboxes/%s/proxy/%d/", id, port), "")
	if status != 502 || !strings.Contains(out, api.CodePortClosed) || strings.Contains(out, "connect: connection refused") {
		t.Errorf("%d %s", status, out)
	}
}

// dialStream upgrades to a raw stream.
func (e *edge) dialStream(id string, port int) (net.Conn, *bufio.Reader, *http.Response) {
	e.t.Helper()
	nc, err := e.dial(e.t.Context())
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() { nc.Close() })
	nc.SetDeadline(time.Now().Add(10 * time.Second))
	fmt.Fprintf(nc, "GET /v1/sandboxes/%s/dial/%d HTTP/1.1\r\nHost: berm\r\nUpgrade: berm-stream\r\nConnection: Upgrade\r\n\r\n", id, port)
	r := bufio.NewReader(nc)
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		e.t.Fatal(err)
	}
	return nc, r, resp
}

func TestDial(t *testing.T) {
	e := newEdge(t)
	id := e.create()
	port := raw(t, func(c net.Conn) {
		line, _ := bufio.NewReader(c).ReadString('\n')
		io.WriteString(c, "got "+line)
	})
	nc, r, resp := e.dialStream(id, port)
	if resp.StatusCode != 101 || resp.Header.Get("Upgrade") != api.StreamProtocol {
		t.Fatalf("%v", resp)
	}
	fmt.Fprint(nc, "a line\n")
	if b, err := io.ReadAll(r); string(b) != "got a line\n" || err != nil {
		t.Errorf("%q %v", b, err)
	}
	gone := make(chan struct{})
	port = raw(t, func(c net.Conn) { io.Copy(io.Discard, c); close(gone) })
	nc, _, _ = e.dialStream(id, port)
	nc.Close()
	select {
	case <-gone:
	case <-time.After(5 * time.Second):
		t.Error("the program still has its connection")
	}
	l, _ := net.Listen("tcp", "127.0.0.1:0")
	port = l.Addr().(*net.TCPAddr).Port
	l.Close()
	if _, _, resp := e.dialStream(id, port); resp.StatusCode != 502 {
		t.Errorf("%v", resp)
	}
	if status, out := e.do("GET", fmt.Sprintf("/v1/sandboxes/%s/dial/%d", id, port), ""); status != 400 {
		t.Errorf("%d %s", status, out)
	}
}

// What follows the body of a program's answer is not passed on.
func TestProxyTrailers(t *testing.T) {
	e := newEdge(t)
	id := e.create()
	port := app(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "Set-Cookie")
		fmt.Fprint(w, "body")
		w.(http.Flusher).Flush()
		w.Header().Set("Set-Cookie", "berm=1")
		w.Header().Set(http.TrailerPrefix+"X-Late", "1")
	})
	resp := e.open(t.Context(), "GET", fmt.Sprintf("/v1/sandboxes/%s/proxy/%d/", id, port), "")
	b, err := io.ReadAll(resp.Body)
	if string(b) != "body" || err != nil || len(resp.Trailer) > 0 || resp.Header.Get("Trailer") != "" {
		t.Errorf("%q %v %v %v", b, err, resp.Header, resp.Trailer)
	}
}

// A program that gives interim answers without end is given up.
func TestProxyInterim(t *testing.T) {
	e := newEdge(t)
	id := e.create()
	over := make(chan struct{})
	port := raw(t, func(c net.Conn) {
		defer close(over)
		http.ReadRequest(bufio.NewReader(c))
		for {
			if _, err := io.WriteString(c, "HTTP/1.1 103 Early Hints\r\n\r\n"); err != nil {
				return
			}
		}
	})
	status, out := e.do("GET", fmt.Sprintf("/v1/sandboxes/%s/proxy/%d/", id, port), "")
	if status != 502 || !strings.Contains(out, api.CodePortClosed) {
		t.Errorf("%d %s", status, out)
	}
	<-over
}
