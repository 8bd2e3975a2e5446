package sniff

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
)

// readHead gives s to a reader, first byte by byte.
func readHead(t testing.TB, s string) (Request, int, error) {
	t.Helper()
	var one, all HeadReader
	q, n, err := all.Next([]byte(s))
	for i := range len(s) + 1 {
		q1, n1, err1 := one.Next([]byte(s[:i]))
		if n1 == 0 && err1 == nil {
			continue
		}
		if q1 != q || n1 != n || (err1 == nil) != (err == nil) {
			t.Fatalf("at once %+v, %d, %v; in pieces %+v, %d, %v", q, n, err, q1, n1, err1)
		}
		return q, n, err
	}
	if n != 0 || err != nil {
		t.Fatalf("at once %d, %v; in pieces nothing", n, err)
	}
	return q, n, err
}

func TestHead(t *testing.T) {
	for _, tt := range []struct {
		name, in string
		want     Request
	}{
		{"plain", "GET /a/b?c=d HTTP/1.1\r\nHost: A.test\r\n\r\n", Request{Method: "GET", Path: "/a/b", Host: "a.test"}},
		{"port", "GET / HTTP/1.1\r\nHost:a.test:8080 \r\n\r\n", Request{Method: "GET", Path: "/", Host: "a.test", Port: 8080}},
		{"dot at the end", "GET / HTTP/1.1\r\nHost: a.test.\r\n\r\n", Request{Method: "GET", Path: "/", Host: "a.test"}},
		{"address", "GET / HTTP/1.1\r\nHost: 192.0.2.1:80\r\n\r\n", Request{Method: "GET", Path: "/", Host: "192.0.2.1", Port: 80}},
		{"address of six", "GET / HTTP/1.1\r\nHost: [2001:DB8::1]:81\r\n\r\n", Request{Method: "GET", Path: "/", Host: "2001:db8::1", Port: 81}},
		{"empty host", "GET / HTTP/1.1\r\nHost:\r\n\r\n", Request{Method: "GET", Path: "/"}},
		{"1.0 without host", "GET / HTTP/1.0\r\n\r\n", Request{Method: "GET", Path: "/", Old: true}},
		{"absolute", "GET http://a.test/x?y HTTP/1.1\r\nHost: a.test\r\n\r\n", Request{Method: "GET", Path: "/x", Host: "a.test"}},
		{"absolute, port given once", "GET http://a.test:80 HTTP/1.1\r\nHost: a.test\r\n\r\n", Request{Method: "GET", Path: "/", Host: "a.test", Port: 80}},
		{"absolute, no path", "GET http://a.test?y HTTP/1.1\r\nHost: a.test\r\n\r\n", Request{Method: "GET", Path: "/", Host: "a.test"}},
		{"asterisk", "OPTIONS * HTTP/1.1\r\nHost: a.test\r\n\r\n", Request{Method: "OPTIONS", Path: "*", Host: "a.test"}},
		{"length", "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 12\r\n\r\n", Request{Method: "POST", Path: "/", Host: "a.test", length: 12}},
		{"length 0 with GET", "GET / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0\r\n\r\n", Request{Method: "GET", Path: "/", Host: "a.test"}},
		{"chunked", "PUT / HTTP/1.1\r\ntransfer-encoding:chunked\r\nHost: a.test\r\n\r\n", Request{Method: "PUT", Path: "/", Host: "a.test", chunked: true}},
		{"websocket", "GET / HTTP/1.1\r\nHost: a.test\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n\r\n", Request{Method: "GET", Path: "/", Host: "a.test", WebSocket: true}},
		{"expect", "POST / HTTP/1.1\r\nHost: a.test\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n", Request{Method: "POST", Path: "/", Host: "a.test", length: 1, Expect: [2]int{31, 53}}},
		{"bytes beyond ASCII in a value", "GET / HTTP/1.1\r\nHost: a.test\r\nX: \xff\r\n\r\n", Request{Method: "GET", Path: "/", Host: "a.test"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			q, n, err := readHead(t, tt.in+"next")
			q.connection = [2]int{} // TestForward has it
			if err != nil || q != tt.want || n != len(tt.in) {
				t.Errorf("got %+v, %d, %v; want %+v, %d", q, n, err, tt.want, len(tt.in))
			}
			if e := q.Expect; e[1] > 0 && tt.in[e[0]:e[1]] != "Expect: 100-continue\r\n" {
				t.Errorf("expect is %q", tt.in[e[0]:e[1]])
			}
		})
	}
}

func TestHeadRefused(t *testing.T) {
	const h = "Host: a.test\r\n"
	for _, tt := range []struct{ name, in string }{
		{"CONNECT", "CONNECT b.test:443 HTTP/1.1\r\n" + h + "\r\n"},
		{"HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"},
		{"HTTP/0.9", "GET /\r\n\r\n"},
		{"HTTP/1.2", "GET / HTTP/1.2\r\n" + h + "\r\n"},
		{"lower-case version", "GET / http/1.1\r\n" + h + "\r\n"},
		{"two spaces", "GET  / HTTP/1.1\r\n" + h + "\r\n"},
		{"tab", "GET\t/ HTTP/1.1\r\n" + h + "\r\n"},
		{"space behind the version", "GET / HTTP/1.1 \r\n" + h + "\r\n"},
		{"lower-case method", "get / HTTP/1.1\r\n" + h + "\r\n"},
		{"no method", " / HTTP/1.1\r\n" + h + "\r\n"},
		{"empty line first", "\r\nGET / HTTP/1.1\r\n" + h + "\r\n"},
		{"bare LF", "GET / HTTP/1.1\n" + h + "\r\n"},
		{"bare LF at the end", "GET / HTTP/1.1\r\n" + h + "\n"},
		{"bare CR", "GET / HTTP/1.1\r\nX: a\rb\r\n" + h + "\r\n"},
		{"folded", "GET / HTTP/1.1\r\n" + h + "X: a\r\n b\r\n\r\n"},
		{"folded first", "GET / HTTP/1.1\r\n X: a\r\n" + h + "\r\n"},
		{"space before the colon", "GET / HTTP/1.1\r\nHost : a.test\r\n\r\n"},
		{"no colon", "GET / HTTP/1.1\r\n" + h + "X\r\n\r\n"},
		{"no name", "GET / HTTP/1.1\r\n" + h + ": x\r\n\r\n"},
		{"NUL", "GET / HTTP/1.1\r\n" + h + "X: \x00\r\n\r\n"},
		{"two hosts", "GET / HTTP/1.1\r\n" + h + h + "\r\n"},
		{"no host", "GET / HTTP/1.1\r\n\r\n"},
		{"list of hosts", "GET / HTTP/1.1\r\nHost: a.test, b.test\r\n\r\n"},
		{"user in host", "GET / HTTP/1.1\r\nHost: a.test@b.test\r\n\r\n"},
		{"path in host", "GET / HTTP/1.1\r\nHost: a.test/b\r\n\r\n"},
		{"port 0", "GET / HTTP/1.1\r\nHost: a.test:0\r\n\r\n"},
		{"empty port", "GET / HTTP/1.1\r\nHost: a.test:\r\n\r\n"},
		{"port too high", "GET / HTTP/1.1\r\nHost: a.test:65536\r\n\r\n"},
		{"address in hex", "GET / HTTP/1.1\r\nHost: 0x7f000001\r\n\r\n"},
		{"address with a zone", "GET / HTTP/1.1\r\nHost: [fe80::1%25eth0]\r\n\r\n"},
		{"four in brackets", "GET / HTTP/1.1\r\nHost: [192.0.2.1]\r\n\r\n"},
		{"looks like host", "GET / HTTP/1.1\r\n" + h + "HO_ST: b\r\nContent_Length: 3\r\n\r\n"},
		{"absolute, other host", "GET http://b.test/ HTTP/1.1\r\n" + h + "\r\n"},
		{"absolute, other port", "GET http://a.test:81/ HTTP/1.1\r\n" + h + "\r\n"},
		{"absolute, user", "GET http://a.test@b.test/ HTTP/1.1\r\n" + h + "\r\n"},
		{"absolute, https", "GET https://a.test/ HTTP/1.1\r\n" + h + "\r\n"},
		{"absolute, no host", "GET http:///x HTTP/1.1\r\n" + h + "\r\n"},
		{"authority as target", "GET a.test:80 HTTP/1.1\r\n" + h + "\r\n"},
		{"asterisk with GET", "GET * HTTP/1.1\r\n" + h + "\r\n"},
		{"fragment", "GET /a#b HTTP/1.1\r\n" + h + "\r\n"},
		{"backslash", "GET /a\\b HTTP/1.1\r\n" + h + "\r\n"},
		{"empty target", "GET  HTTP/1.1\r\n" + h + "\r\n"},
		{"both lengths", "POST / HTTP/1.1\r\n" + h + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n"},
		{"both lengths, other way round", "POST / HTTP/1.1\r\n" + h + "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n"},
		{"two lengths", "POST / HTTP/1.1\r\n" + h + "Content-Length: 3\r\nContent-Length: 3\r\n\r\n"},
		{"list of lengths", "POST / HTTP/1.1\r\n" + h + "Content-Length: 3, 3\r\n\r\n"},
		{"signed length", "POST / HTTP/1.1\r\n" + h + "Content-Length: +3\r\n\r\n"},
		{"length in hex", "POST / HTTP/1.1\r\n" + h + "Content-Length: 0x3\r\n\r\n"},
		{"empty length", "POST / HTTP/1.1\r\n" + h + "Content-Length:\r\n\r\n"},
		{"length too big", "POST / HTTP/1.1\r\n" + h + "Content-Length: 9223372036854775808\r\n\r\n"},
		{"another encoding", "POST / HTTP/1.1\r\n" + h + "Transfer-Encoding: gzip, chunked\r\n\r\n"},
		{"encoding twice", "POST / HTTP/1.1\r\n" + h + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"},
		{"encoding in capitals", "POST / HTTP/1.1\r\n" + h + "Transfer-Encoding: Chunked\r\n\r\n"},
		{"encoding with a vertical tab", "POST / HTTP/1.1\r\n" + h + "Transfer-Encoding: \x0bchunked\r\n\r\n"},
		{"encoding in 1.0", "POST / HTTP/1.0\r\n" + h + "Transfer-Encoding: chunked\r\n\r\n"},
		{"encoding that looks like it", "POST / HTTP/1.1\r\n" + h + "Transfer_Encoding: chunked\r\n\r\n"},
		{"dropped by the next hop", "POST / HTTP/1.1\r\n" + h + "Content-Length: 3\r\nConnection: close, content-length\r\n\r\n"},
		{"GET with a body", "GET / HTTP/1.1\r\n" + h + "Content-Length: 3\r\n\r\n"},
		{"HEAD with a body", "HEAD / HTTP/1.1\r\n" + h + "Transfer-Encoding: chunked\r\n\r\n"},
		{"another method", "GET / HTTP/1.1\r\n" + h + "X-HTTP-Method-Override: DELETE\r\n\r\n"},
		{"another path", "GET / HTTP/1.1\r\n" + h + "X-Original-URL: /x\r\n\r\n"},
		{"another path, like IIS", "GET / HTTP/1.1\r\n" + h + "X_Rewrite_Url: /x\r\n\r\n"},
		{"h2c", "GET / HTTP/1.1\r\n" + h + "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: \r\n\r\n"},
		{"settings alone", "GET / HTTP/1.1\r\n" + h + "HTTP2-Settings: \r\n\r\n"},
		{"two upgrades", "GET / HTTP/1.1\r\n" + h + "Connection: Upgrade\r\nUpgrade: websocket, h2c\r\n\r\n"},
		{"websocket with POST", "POST / HTTP/1.1\r\n" + h + "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"},
		{"websocket in 1.0", "GET / HTTP/1.0\r\n" + h + "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"},
		{"websocket without Connection", "GET / HTTP/1.1\r\n" + h + "Upgrade: websocket\r\n\r\n"},
		{"two Connections", "POST / HTTP/1.1\r\n" + h + "Connection: close\r\nConnection: x\r\nContent-Length: 1\r\n\r\n"},
		{"another expectation", "POST / HTTP/1.1\r\n" + h + "Expect: x\r\nContent-Length: 1\r\n\r\n"},
		{"too many fields", "GET / HTTP/1.1\r\n" + h + strings.Repeat("X: y\r\n", maxFields) + "\r\n"},
		{"too long", "GET / HTTP/1.1\r\n" + h + "X: " + strings.Repeat("y", MaxHead) + "\r\n\r\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if q, n, err := readHead(t, tt.in); !errors.Is(err, ErrHTTP) || n != 0 {
				t.Errorf("got %+v, %d, %v; want it refused", q, n, err)
			}
		})
	}
	if _, _, err := readHead(t, "CONNECT b.test:443 HTTP/1.1\r\n\r\n"); err != ErrConnect {
		t.Errorf("CONNECT: %v", err)
	}
}

// readBody gives s to a body in pieces that double as long as nothing is taken.
func readBody(b Body, s string) (string, error) {
	at := 0
	for size := 1; !b.Done() && at < len(s); {
		n, err := b.Next([]byte(s[at:min(at+size, len(s))]))
		if at += n; err != nil {
			return s[:at], err
		}
		if n == 0 {
			if at+size >= len(s) {
				break
			}
			size++
			continue
		}
		size = 1
	}
	if !b.Done() {
		return s[:at], io.ErrUnexpectedEOF
	}
	return s[:at], nil
}

func TestBody(t *testing.T) {
	long := strings.Repeat("x", maxChunkLine)
	for _, tt := range []struct {
		name string
		body Body
		in   string // a bar is where it must end
		err  error
	}{
		{"none", Body{}, "|GET /", nil},
		{"length", Body{left: 5}, "12345|GET", nil},
		{"length, cut", Body{left: 5}, "1234", io.ErrUnexpectedEOF},
		{"chunked", Body{chunked: true}, "3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n|GET", nil},
		{"extension", Body{chunked: true}, "3;a=\"b\"\r\nabc\r\n0;x\r\n\r\n|", nil},
		{"trailer", Body{chunked: true}, "0\r\nX-Sum: 1\r\nY: 2\r\n\r\n|GET", nil},
		{"leading zeros", Body{chunked: true}, "003\r\nabc\r\n000\r\n\r\n|GET", nil},
		{"data with line ends", Body{chunked: true}, "4\r\n\r\n\r\n\r\n0\r\n\r\n|", nil},
		{"chunked, cut", Body{chunked: true}, "3\r\nab", io.ErrUnexpectedEOF},
		{"sign", Body{chunked: true}, "+3\r\nabc\r\n", ErrHTTP},
		{"space before", Body{chunked: true}, " 3\r\nabc\r\n", ErrHTTP},
		{"space behind", Body{chunked: true}, "3 \r\nabc\r\n", ErrHTTP},
		{"0x", Body{chunked: true}, "0x3\r\nabc\r\n", ErrHTTP},
		{"underscore", Body{chunked: true}, "1_0\r\nabc\r\n", ErrHTTP},
		{"no size", Body{chunked: true}, "\r\nabc\r\n", ErrHTTP},
		{"only an extension", Body{chunked: true}, ";a\r\nabc\r\n", ErrHTTP},
		{"too big", Body{chunked: true}, "8000000000000000\r\n", ErrHTTP},
		{"bare LF", Body{chunked: true}, "3\nabc\r\n", ErrHTTP},
		{"bare LF in an extension", Body{chunked: true}, "3;a\nb\r\nabc\r\n", ErrHTTP},
		{"bare CR in an extension", Body{chunked: true}, "3;a\rb\r\nabc\r\n", ErrHTTP},
		{"bare LF behind data", Body{chunked: true}, "3\r\nabc\n0\r\n\r\n", ErrHTTP},
		{"longer than it says", Body{chunked: true}, "3\r\nabcd\r\n0\r\n\r\n", ErrHTTP},
		{"longer, with a CR", Body{chunked: true}, "3\r\nabc\rd\n", ErrHTTP},
		{"long extension", Body{chunked: true}, "3;" + long + "\r\nabc\r\n", ErrHTTP},
		{"Host behind", Body{chunked: true}, "0\r\nHost: b.test\r\n\r\n", ErrHTTP},
		{"length behind", Body{chunked: true}, "0\r\nContent-Length: 3\r\n\r\n", ErrHTTP},
		{"encoding behind", Body{chunked: true}, "0\r\nTransfer-Encoding: chunked\r\n\r\n", ErrHTTP},
		{"folded behind", Body{chunked: true}, "0\r\nX: y\r\n z\r\n\r\n", ErrHTTP},
		{"no name behind", Body{chunked: true}, "0\r\nGET / HTTP/1.1\r\n\r\n", ErrHTTP},
		{"bare LF behind", Body{chunked: true}, "0\r\n\n", ErrHTTP},
		{"many trailers", Body{chunked: true}, "0\r\n" + strings.Repeat("X: y\r\n", maxFields+1) + "\r\n", ErrHTTP},
		{"long trailers", Body{chunked: true}, "0\r\n" + strings.Repeat("X: "+long[:1000]+"\r\n", 9) + "\r\n", ErrHTTP},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := strings.Replace(tt.in, "|", "", 1)
			got, err := readBody(tt.body, in)
			if !errors.Is(err, tt.err) {
				t.Fatalf("%q: %v, want %v", got, err, tt.err)
			}
			if want, _, ok := strings.Cut(tt.in, "|"); ok && got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			b := tt.body
			if n, err := b.Next([]byte(in)); tt.err == nil && (n != len(got) || err != nil || !b.Done()) || tt.err == ErrHTTP && !errors.Is(err, ErrHTTP) {
				t.Errorf("at once: %d, %v, %v", n, err, b.Done())
			}
		})
	}
}

func TestLook(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want Kind
	}{
		{"", More}, {"\x16", TLS}, {"\x16\x03\x01", TLS}, {"\x16\x02", Raw},
		{"G", More}, {"GET ", HTTP}, {"PRI * HTTP/2.0", HTTP}, {"CONNECT a", HTTP},
		{"PROPFIND /", More}, {"PROPFIND / HTTP/1.1", HTTP}, {"get / HTTP/1.1\r\n", HTTP},
		{"SSH-2.0-x\r\n", Raw}, {"EHLO a.test\r\n", Raw}, {"\r\n", Raw}, {" ", Raw}, {"\x80\x2e\x01", Raw},
		{strings.Repeat("A", maxMethod), More}, {strings.Repeat("A", maxMethod+1), Raw}, {"A " + strings.Repeat("b", maxLine), Raw},
	} {
		if got := Look([]byte(tt.in)); got != tt.want {
			t.Errorf("Look(%.40q) = %d, want %d", tt.in, got, tt.want)
		}
	}
}

// FuzzHTTPHead holds what is let through against the standard library's reader:
// it must find the same method, host, path and length.
func FuzzHTTPHead(f *testing.F) {
	f.Add("GET /a?b HTTP/1.1\r\nHost: a.test:80\r\n\r\n")
	f.Add("POST http://a.test/ HTTP/1.1\r\nHost: a.test\r\nContent-Length: 12\r\n\r\n")
	f.Add("PUT / HTTP/1.1\r\nHost: [::1]\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n")
	f.Add("GET / HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nExpect: 100-continue\r\n\r\n")
	f.Add("GET / HTTP/1.0\r\n\r\nGET")
	f.Fuzz(func(t *testing.T, s string) {
		q, n, err := readHead(t, s)
		if err != nil || n == 0 {
			return
		}
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(s[:n])))
		if err != nil {
			return // stricter still
		}
		host, port, ok := splitHost(r.Host)
		if r.Method != q.Method || !ok || host != q.Host || or80(port) != or80(q.Port) {
			t.Fatalf("%q %q:%d against %q %q", q.Method, q.Host, q.Port, r.Method, r.Host)
		}
		if length := max(r.ContentLength, 0); length != q.length || len(r.TransferEncoding) > 0 != q.chunked {
			t.Fatalf("length %d, %v against %d, %v", q.length, q.chunked, length, r.TransferEncoding)
		}
		if p, _, _ := strings.Cut(r.RequestURI, "?"); !strings.HasSuffix(p, q.Path) && q.Path != "/" {
			t.Fatalf("path %q of %q", q.Path, r.RequestURI)
		}
	})
}

// FuzzHTTPBody holds the ends of chunked bodies against the standard library's.
func FuzzHTTPBody(f *testing.F) {
	f.Add("3\r\nabc\r\n0\r\n\r\nGET")
	f.Add("3;x=y\r\nabc\r\n00\r\nA: b\r\n\r\n")
	f.Add("fffffffffffffff\r\nabc")
	f.Fuzz(func(t *testing.T, s string) {
		got, err := readBody(Body{chunked: true}, s)
		whole := Body{chunked: true}
		n, err2 := whole.Next([]byte(s))
		if (err == nil) != (err2 == nil && whole.Done()) || err == nil && n != len(got) {
			t.Fatalf("in pieces %d, %v; at once %d, %v", len(got), err, n, err2)
		}
		if err != nil {
			return
		}
		const head = "POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n"
		all := bytes.NewReader([]byte(head + s))
		br := bufio.NewReader(all)
		r, err := http.ReadRequest(br)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return // stricter still
		}
		if used := len(head) + len(s) - all.Len() - br.Buffered(); used != len(head)+len(got) {
			t.Fatalf("%q: ends at %d, net/http says %d", s, len(got), used-len(head))
		}
	})
}

// TestForward: what a server gets of a head.
func TestForward(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"GET / HTTP/1.1\r\nHost: a.test\r\nConnection: keep-alive\r\n\r\n", ""},
		{"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0\r\n\r\n", ""},
		{"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 1\r\n\r\n",
			"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 1\r\nConnection: close\r\n\r\n"},
		{"POST / HTTP/1.1\r\nConnection: keep-alive\r\nHost: a.test\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n",
			"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"},
		{"PUT / HTTP/1.0\r\nHost: a.test\r\nConnection: keep-alive\r\nContent-Length: 3\r\n\r\n",
			"PUT / HTTP/1.0\r\nHost: a.test\r\nContent-Length: 3\r\nConnection: close\r\n\r\n"},
	} {
		if tt.want == "" {
			tt.want = tt.in
		}
		q, n, err := new(HeadReader).Next([]byte(tt.in))
		if err != nil || n != len(tt.in) {
			t.Fatalf("%q: %d, %v", tt.in, n, err)
		}
		got := q.Forward([]byte(tt.in))
		if string(got) != tt.want {
			t.Errorf("%q: got %q", tt.in, got)
		}
		if _, n, err := new(HeadReader).Next(got); err != nil || n != len(got) {
			t.Errorf("%q: what is forwarded is no request: %v", tt.in, err)
		}
	}
}
