package gateway

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bermhq/berm/internal/egress/sniff"
	"github.com/bermhq/berm/internal/egress/wire"
	"github.com/bermhq/berm/internal/policy"
)

// A site is a server outside that remembers what reached it.
type site struct {
	mu   sync.Mutex
	seen []string
}

// serve answers requests of one connection with what they were.
func (s *site) serve(c *net.TCPConn) {
	br := bufio.NewReader(c)
	for {
		r, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		line := r.Method + " " + r.Host + r.URL.Path + " " + string(body)
		if r.Header.Get("Expect") != "" {
			line += " expects"
		}
		s.mu.Lock()
		s.seen = append(s.seen, line)
		s.mu.Unlock()
		res := http.Response{StatusCode: 200, ProtoMajor: 1, ProtoMinor: 1, ContentLength: int64(len(line)), Body: io.NopCloser(strings.NewReader(line))}
		if r.Method == "HEAD" {
			res.Request = r
		}
		if res.Write(c) != nil {
			return
		}
	}
}

func (s *site) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen
}

// httpWorld is a world with a site at server4:80.
func httpWorld(t *testing.T) (*world, *site) {
	w, s := newWorld(t, nil), &site{}
	w.listen(at(server4, 80), s.serve)
	return w, s
}

// response reads the next one.
func response(t *testing.T, br *bufio.Reader, method string) (*http.Response, string) {
	t.Helper()
	r, err := http.ReadResponse(br, &http.Request{Method: method})
	if err != nil {
		t.Fatalf("no answer: %v", err)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r, string(body)
}

// ended wants the end of the connection, and nothing before it.
func ended(t *testing.T, br *bufio.Reader) {
	t.Helper()
	if b, err := io.ReadAll(br); len(b) > 0 || err != nil {
		t.Errorf("got %q, %v; want the end", b, err)
	}
}

const get = "GET /x HTTP/1.1\r\nHost: allowed.test\r\n\r\n"

func TestHTTPKeptAlive(t *testing.T) {
	w, s := httpWorld(t)
	c := w.mustDial(at(server4, 80))
	defer c.Close()
	br := bufio.NewReader(c)
	for range 3 {
		mustWrite(t, c, get)
		if _, body := response(t, br, "GET"); body != "GET allowed.test/x " {
			t.Fatalf("got %q", body)
		}
	}
	// One after the other without waiting, with bodies, cut anywhere.
	all := "POST /1 HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 3\r\n\r\nabc" +
		"POST /2 HTTP/1.1\r\nHost: allowed.test\r\nTransfer-Encoding: chunked\r\n\r\n3;x\r\ndef\r\n1\r\ng\r\n0\r\nX: y\r\n\r\n" + get
	for len(all) > 0 {
		n := min(7, len(all))
		mustWrite(t, c, all[:n])
		all = all[n:]
	}
	for _, want := range []string{"POST allowed.test/1 abc", "POST allowed.test/2 defg", "GET allowed.test/x "} {
		if _, body := response(t, br, "POST"); body != want {
			t.Errorf("got %q, want %q", body, want)
		}
	}
	c.CloseWrite()
	ended(t, br)
	if got := s.all(); len(got) != 6 {
		t.Errorf("the server saw %q", got)
	}
}

// TestHTTPDenied is each way to be refused, as the first and as the second
// request of a connection.
func TestHTTPDenied(t *testing.T) {
	big := "GET /" + strings.Repeat("a", wire.MaxPath) + " HTTP/1.1\r\nHost: allowed.test\r\n\r\n"
	for _, tt := range []struct{ name, in, reason, text string }{
		{"other name", "GET /x HTTP/1.1\r\nHost: other.test\r\n\r\n", policy.DenyName, "--allow other.test"},
		{"no name", "GET /x HTTP/1.0\r\n\r\n", policy.DenyNoName, ""},
		{"other port", "GET /x HTTP/1.1\r\nHost: allowed.test:81\r\n\r\n", policy.DenyHTTP, "another port"},
		{"CONNECT", "CONNECT other.test:443 HTTP/1.1\r\nHost: allowed.test\r\n\r\n", policy.DenyHTTP, "tunnel"},
		{"absolute", "GET http://other.test/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n", policy.DenyHTTP, "another host"},
		{"both lengths", "POST / HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", policy.DenyHTTP, "Content-Length"},
		{"two hosts", "GET / HTTP/1.1\r\nHost: allowed.test\r\nHost: other.test\r\n\r\n", policy.DenyHTTP, "Host"},
		{"bare LF", "GET / HTTP/1.1\r\nHost: allowed.test\nX: y\r\n\r\n", policy.DenyHTTP, "CR"},
		{"folded", "GET / HTTP/1.1\r\nHost: allowed.test\r\n X: y\r\n\r\n", policy.DenyHTTP, "folded"},
		{"0.9", "GET /\r\n\r\n", policy.DenyHTTP, "version"},
		{"h2c", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", policy.DenyHTTP, "HTTP/2"},
		{"upgrade", "GET / HTTP/1.1\r\nHost: allowed.test\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n", policy.DenyHTTP, "Upgrade"},
		{"long path", big, policy.DenyHTTP, "path"},
	} {
		for _, second := range []bool{false, true} {
			name := tt.name
			if second {
				name += ", second"
			}
			t.Run(name, func(t *testing.T) {
				w, s := httpWorld(t)
				c := w.mustDial(at(server4, 80))
				defer c.Close()
				br := bufio.NewReader(c)
				if second {
					mustWrite(t, c, get)
					response(t, br, "GET")
				}
				mustWrite(t, c, tt.in)
				r, body := response(t, br, "GET")
				if r.StatusCode/100 != 4 || r.Header.Get("Berm-Denied") != tt.reason || !strings.Contains(body, tt.text) || !r.Close {
					t.Errorf("got %d, %q: %q; want %q about %q", r.StatusCode, r.Header, body, tt.reason, tt.text)
				}
				ended(t, br)
				if tt.reason == policy.DenyHTTP {
					if a := w.denied("http", policy.DenyHTTP); !strings.Contains(a.Text, tt.text) {
						t.Errorf("recorded as %q", a.Text)
					}
				}
				want := 0
				if second {
					want = 1
				}
				if got := s.all(); len(got) != want {
					t.Errorf("the server saw %q", got)
				}
			})
		}
	}
}

// TestHTTPDeniedBehind: a refusal does not overtake the answers before it.
func TestHTTPDeniedBehind(t *testing.T) {
	w, s := httpWorld(t)
	c := w.mustDial(at(server4, 80))
	defer c.Close()
	mustWrite(t, c, get+get+"GET / HTTP/1.1\r\nHost: other.test\r\n\r\n"+get)
	br := bufio.NewReader(c)
	for range 2 {
		if r, _ := response(t, br, "GET"); r.StatusCode != 200 {
			t.Fatalf("got %d", r.StatusCode)
		}
	}
	if r, _ := response(t, br, "GET"); r.StatusCode != 403 {
		t.Errorf("got %d", r.StatusCode)
	}
	ended(t, br)
	if got := s.all(); len(got) != 2 {
		t.Errorf("the server saw %q", got)
	}
}

func TestHTTPDeniedHead(t *testing.T) {
	w, _ := httpWorld(t)
	c := w.mustDial(at(server4, 80))
	defer c.Close()
	mustWrite(t, c, "HEAD / HTTP/1.1\r\nHost: other.test\r\n\r\n")
	br := bufio.NewReader(c)
	if r, _ := response(t, br, "HEAD"); r.StatusCode != 403 || r.ContentLength <= 0 {
		t.Errorf("got %d, length %d", r.StatusCode, r.ContentLength)
	}
	ended(t, br) // no body
}

// TestHTTPSmuggling: a body that is none ends the connection before anything
// behind it can be taken for a request.
func TestHTTPSmuggling(t *testing.T) {
	const chunked = "POST / HTTP/1.1\r\nHost: allowed.test\r\nTransfer-Encoding: chunked\r\n\r\n"
	const evil = "GET /evil HTTP/1.1\r\nHost: other.test\r\n\r\n"
	for _, tt := range []struct{ name, in string }{
		{"size with a sign", chunked + "+0\r\n\r\n" + evil},
		{"size with a blank", chunked + "0 \r\n\r\n" + evil},
		{"bare LF", chunked + "0\n\n" + evil},
		{"extension with LF", chunked + "2;\nxx\r\n0\r\n\r\n" + evil},
		{"chunk too long", chunked + "1\r\nab\r\n0\r\n\r\n" + evil},
		{"Host behind", chunked + "0\r\nHost: other.test\r\n\r\n" + evil},
		{"length behind", chunked + "0\r\nContent-Length: 50\r\n\r\n" + evil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, s := httpWorld(t)
			c := w.mustDial(at(server4, 80))
			defer c.Close()
			mustWrite(t, c, tt.in)
			if b, err := io.ReadAll(c); err == nil || len(b) > 0 {
				t.Errorf("got %q, %v; want it cut off", b, err)
			}
			w.denied("http", policy.DenyHTTP)
			settle(t, w, 0)
			for _, r := range s.all() {
				if strings.Contains(r, "evil") {
					t.Errorf("the server saw %q", r)
				}
			}
		})
	}
}

// TestHTTPExpect: the guest hears "continue" from us, and the server is not
// asked.
func TestHTTPExpect(t *testing.T) {
	w, s := httpWorld(t)
	c := w.mustDial(at(server4, 80))
	defer c.Close()
	mustWrite(t, c, "POST /e HTTP/1.1\r\nHost: allowed.test\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
	br := bufio.NewReader(c)
	if r, _ := response(t, br, "POST"); r.StatusCode != 100 {
		t.Fatalf("got %d", r.StatusCode)
	}
	mustWrite(t, c, "ok")
	if _, body := response(t, br, "POST"); body != "POST allowed.test/e ok" {
		t.Errorf("got %q", body)
	}
	if got := s.all(); len(got) != 1 {
		t.Errorf("the server saw %q", got)
	}
}

func TestHTTPFault(t *testing.T) {
	for fault, status := range map[string]int{"refused": 502, "timeout": 504} {
		w := newWorld(t, func(a wire.Ask) wire.Answer {
			if a.Op == wire.OpConnect {
				return wire.Answer{Fault: fault}
			}
			return usual(a)
		})
		c := w.mustDial(at(server4, 80))
		mustWrite(t, c, get)
		if r, body := response(t, bufio.NewReader(c), "GET"); r.StatusCode != status || r.Header.Get("Berm-Fault") != fault || !strings.Contains(body, fault) {
			t.Errorf("%s: got %d, %q: %q", fault, r.StatusCode, r.Header, body)
		}
		c.Close()
	}
}

const upgrade = "GET /ws HTTP/1.1\r\nHost: allowed.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"

func TestWebSocket(t *testing.T) {
	w := newWorld(t, nil)
	early := make(chan int, 1)
	w.listen(at(server4, 80), func(c *net.TCPConn) {
		br := bufio.NewReader(c)
		if _, err := http.ReadRequest(br); err != nil {
			return
		}
		// Nothing may come before it was agreed to.
		c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		n, _ := br.Read(make([]byte, 10))
		early <- n
		c.SetReadDeadline(time.Time{})
		io.WriteString(c, "HTTP/1.1 1")
		io.WriteString(c, "01 Switching Protocols\r\n\r\n")
		io.Copy(struct{ io.Writer }{c}, br)
	})
	c := w.mustDial(at(server4, 80))
	defer c.Close()
	mustWrite(t, c, upgrade+"\x81\x02hi")
	if n := <-early; n > 0 {
		t.Errorf("%d bytes came before the server had agreed", n)
	}
	br := bufio.NewReader(c)
	if r, _ := response(t, br, "GET"); r.StatusCode != 101 {
		t.Fatalf("got %d", r.StatusCode)
	}
	mustWrite(t, c, "GET / HTTP/1.1\n")
	got := make([]byte, 4+15)
	if _, err := io.ReadFull(br, got); err != nil || string(got) != "\x81\x02hiGET / HTTP/1.1\n" {
		t.Errorf("got %q, %v", got, err)
	}
}

// TestWebSocketRefused: a server that does not agree goes on to be asked in
// requests only.
func TestWebSocketRefused(t *testing.T) {
	w, s := httpWorld(t)
	c := w.mustDial(at(server4, 80))
	defer c.Close()
	mustWrite(t, c, upgrade+"GET /evil HTTP/1.1\r\nHost: other.test\r\n\r\n")
	br := bufio.NewReader(c)
	if r, _ := response(t, br, "GET"); r.StatusCode != 200 {
		t.Fatalf("got %d", r.StatusCode)
	}
	if r, _ := response(t, br, "GET"); r.StatusCode != 403 {
		t.Errorf("got %d", r.StatusCode)
	}
	if got := s.all(); len(got) != 1 {
		t.Errorf("the server saw %q", got)
	}
}

// TestWebSocketSecond: only the first request of a connection may ask for it.
func TestWebSocketSecond(t *testing.T) {
	w, s := httpWorld(t)
	c := w.mustDial(at(server4, 80))
	defer c.Close()
	br := bufio.NewReader(c)
	mustWrite(t, c, get)
	response(t, br, "GET")
	mustWrite(t, c, upgrade)
	if r, _ := response(t, br, "GET"); r.StatusCode != 403 || r.Header.Get("Berm-Denied") != policy.DenyHTTP {
		t.Errorf("got %d", r.StatusCode)
	}
	if got := s.all(); len(got) != 1 {
		t.Errorf("the server saw %q", got)
	}
}

// What a refusal calls a request is an address that one could ask for.
func TestRefusalNamesPort(t *testing.T) {
	for _, tt := range []struct{ host, to, want string }{
		{"a.test", "192.0.2.1:80", "GET http://a.test/x is"},
		{"a.test", "192.0.2.1:8080", "GET http://a.test:8080/x is"},
		{"2001:db8::1", "[2001:db8::1]:80", "GET http://[2001:db8::1]/x is"},
		{"2001:db8::1", "[2001:db8::1]:8080", "GET http://[2001:db8::1]:8080/x is"},
	} {
		q := sniff.Request{Method: "GET", Host: tt.host, Path: "/x"}
		for _, a := range []wire.Answer{{Reason: policy.DenyPath}, {Fault: "refused"}} {
			if got := denial(&q, netip.MustParseAddrPort(tt.to), a).text; !strings.HasPrefix(got, tt.want) {
				t.Errorf("%q, want %q", got, tt.want)
			}
		}
	}
}
