package sniff

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Bounds of a request's head.
const (
	MaxHead   = 64 << 10
	maxFields = 128
	maxMethod = 32
)

// ErrHTTP is wrapped by everything that makes a request none that all servers
// would read alike; the text says what.
var ErrHTTP = errors.New("not a request that every server reads alike")

// ErrConnect is the answer to a request for a tunnel. It wraps ErrHTTP.
var ErrConnect = bad("CONNECT asks for a tunnel")

func bad(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrHTTP, fmt.Sprintf(format, args...))
}

// A Request is the head of one request.
type Request struct {
	Method string
	Path   string // of the target, without its query; "*" for OPTIONS of the server itself
	Host   string // lower case, without a port and brackets; "" for none
	Port   uint16 // that the Host field names; 0 for none
	Old    bool   // HTTP/1.0

	WebSocket bool // it asks for that, and becomes one if the server answers 101
	// Expect is where the field of that name is in the head, from and to, if it
	// is there. See Forward.
	Expect [2]int

	connection [2]int // where that field is, likewise
	chunked    bool
	length     int64
}

// Forward is what a server may get of the head that q was parsed from. Of a
// request with a body it leaves out Expect, for a server that does not want the
// body may read what comes next as either, and it has the server end the
// connection behind its answer: some never read a body that they have no use
// for, and would take it for the next request.
func (r *Request) Forward(head []byte) []byte {
	out := make([]byte, 0, len(head)+len(lastRequest))
	cut := [][2]int{r.Expect}
	if r.HasBody() {
		cut = append(cut, r.connection)
		slices.SortFunc(cut, func(a, b [2]int) int { return a[0] - b[0] })
	}
	at := 0
	for _, c := range cut {
		if c[1] > 0 {
			out = append(out, head[at:c[0]]...)
			at = c[1]
		}
	}
	out = append(out, head[at:]...)
	if r.HasBody() {
		out = append(out[:len(out)-2], lastRequest...)
	}
	return out
}

const lastRequest = "Connection: close\r\n\r\n"

// HasBody says whether anything of the request comes after its head.
func (r *Request) HasBody() bool { return r.chunked || r.length > 0 }

// A HeadReader finds the heads of requests. The zero value is ready.
type HeadReader struct {
	seen int // bytes that were looked at and hold no end
}

// Next parses the head that b begins with. It returns how long that is, or 0 if
// more bytes must come first; b must then begin as it did.
func (r *HeadReader) Next(b []byte) (Request, int, error) {
	// Line ends are judged as they come: a bare one must not wait for the rest.
	for i := r.seen; i < len(b) && i < MaxHead; i++ {
		switch c := b[i]; {
		case c == '\n' && (i == 0 || b[i-1] != '\r'):
			return Request{}, 0, bad("a line ends without CR")
		case c != '\n' && i > 0 && b[i-1] == '\r':
			return Request{}, 0, bad("CR within a line")
		case c == '\r' && i == 0:
			return Request{}, 0, bad("an empty line before a request")
		case c == '\n' && i >= 3 && b[i-2] == '\n':
			r.seen = 0
			q, err := parseHead(b[:i+1])
			if err != nil {
				return Request{}, 0, err
			}
			return q, i + 1, nil
		}
	}
	if r.seen = len(b); len(b) >= MaxHead {
		return Request{}, 0, bad("a head of more than %d bytes", MaxHead)
	}
	return Request{}, 0, nil
}

// parseHead parses a whole head: lines that end with CRLF, the last one empty.
func parseHead(b []byte) (Request, error) {
	line, rest, _ := bytes.Cut(b, []byte("\r\n"))
	q, authority, err := requestLine(string(line))
	if err != nil {
		return q, err
	}
	f := fields{length: -1}
	for at := len(line) + 2; len(rest) > 2; {
		line, rest, _ = bytes.Cut(rest, []byte("\r\n"))
		next := at + len(line) + 2
		if err := f.add(string(line), at, next); err != nil {
			return q, err
		}
		at = next
	}
	return q, f.finish(&q, authority)
}

// requestLine reads the first line. authority is that of an absolute target.
func requestLine(line string) (q Request, authority string, err error) {
	method, rest, _ := strings.Cut(line, " ")
	target, version, _ := strings.Cut(rest, " ")
	q.Method = method
	switch {
	case method == "PRI" && rest == "* HTTP/2.0":
		return q, "", bad("HTTP/2 without TLS")
	case method == "" || len(method) > maxMethod || !token(method) || method != strings.ToUpper(method):
		return q, "", bad("its method is none")
	case version != "HTTP/1.1" && version != "HTTP/1.0":
		return q, "", bad("the version is neither HTTP/1.1 nor HTTP/1.0")
	case method == "CONNECT":
		return q, "", ErrConnect
	}
	q.Old = version == "HTTP/1.0"
	for i := range len(target) {
		// A fragment is no part of a target, and some take \ for /.
		if c := target[i]; c <= ' ' || c >= 0x7f || c == '#' || c == '\\' {
			return q, "", bad("a character in its target that may not be there")
		}
	}
	switch scheme, after, absolute := strings.Cut(target, "://"); {
	case strings.HasPrefix(target, "/"):
	case target == "*" && method == "OPTIONS":
	case absolute && strings.EqualFold(scheme, "http"):
		end := strings.IndexAny(after, "/?")
		if end < 0 {
			end = len(after)
		}
		if authority, target = after[:end], after[end:]; authority == "" {
			return q, "", bad("a target without a host")
		}
		if !strings.HasPrefix(target, "/") {
			target = "/" + target
		}
	default:
		return q, "", bad("a target that is no path")
	}
	q.Path, _, _ = strings.Cut(target, "?")
	return q, authority, nil
}

// fields are those of a head that decide where a request goes and ends.
type fields struct {
	n          int
	host       []string
	length     int64 // -1: none
	chunked    bool
	upgrade    string
	connection []string
	expect     [2]int
	place      [2]int // of Connection
}

// add reads the line from..to of the head.
func (f *fields) add(line string, from, to int) error {
	if f.n++; f.n > maxFields {
		return bad("more than %d fields", maxFields)
	}
	name, value, err := field(line)
	if err != nil {
		return err
	}
	switch name {
	case "host":
		f.host = append(f.host, value)
	case "content-length":
		n, err := strconv.ParseUint(value, 10, 63)
		if err != nil || f.length >= 0 {
			return bad("Content-Length is not one number")
		}
		f.length = int64(n)
	case "transfer-encoding":
		if value != "chunked" || f.chunked {
			return bad("Transfer-Encoding is not chunked alone")
		}
		f.chunked = true
	case "upgrade":
		if f.upgrade != "" || !strings.EqualFold(value, "websocket") {
			return bad("Upgrade to something else than websocket")
		}
		f.upgrade = value
	case "connection":
		if f.place[1] > 0 {
			return bad("more than one Connection")
		}
		f.place = [2]int{from, to}
		for v := range strings.SplitSeq(value, ",") {
			f.connection = append(f.connection, strings.ToLower(strings.Trim(v, " \t")))
		}
	case "expect":
		if f.expect[1] > 0 || !strings.EqualFold(value, "100-continue") {
			return bad("Expect is not 100-continue")
		}
		f.expect = [2]int{from, to}
	case "http2-settings":
		return bad("HTTP/2 without TLS")
	}
	switch strings.ReplaceAll(name, "_", "-") {
	case "x-http-method-override", "x-http-method", "x-method-override", "x-original-url", "x-rewrite-url":
		return bad("%s, which some servers take for the method or the path", name)
	}
	return nil
}

// field splits a line of a head or a trailer.
func field(line string) (name, value string, err error) {
	if line == "" || line[0] == ' ' || line[0] == '\t' {
		return "", "", bad("a folded field")
	}
	name, value, colon := strings.Cut(line, ":")
	if !colon || !token(name) {
		return "", "", bad("a field without a proper name")
	}
	for i := range len(value) {
		if c := value[i]; c < ' ' && c != '\t' || c == 0x7f {
			return "", "", bad("a control character in a field")
		}
	}
	name = strings.ToLower(name)
	switch strings.ReplaceAll(name, "_", "-") { // one and the same to programs behind CGI
	case name:
	case "host", "content-length", "transfer-encoding":
		return "", "", bad("a field that only looks like %s", strings.ReplaceAll(name, "_", "-"))
	}
	return name, strings.Trim(value, " \t"), nil
}

// finish holds the fields against each other.
func (f *fields) finish(q *Request, authority string) error {
	switch {
	case len(f.host) > 1:
		return bad("more than one Host")
	case len(f.host) == 0 && !q.Old:
		return bad("no Host")
	case f.chunked && f.length >= 0:
		return bad("Transfer-Encoding and Content-Length")
	case f.chunked && q.Old:
		return bad("Transfer-Encoding in HTTP/1.0")
	}
	upgrade := false
	for _, c := range f.connection {
		switch c {
		case "upgrade":
			upgrade = true
		case "host", "content-length", "transfer-encoding", "expect":
			return bad("Connection names %s", c) // for the next hop to drop
		}
	}
	q.Expect, q.connection, q.chunked, q.length = f.expect, f.place, f.chunked, max(f.length, 0)
	if q.HasBody() && (q.Method == "GET" || q.Method == "HEAD" || q.Method == "TRACE") {
		return bad("%s with a body", q.Method) // which many servers do not read, and take for the next request
	}
	if f.upgrade != "" {
		if q.Method != "GET" || q.Old || !upgrade {
			return bad("Upgrade without GET, HTTP/1.1 and Connection: upgrade")
		}
		q.WebSocket = true
	}
	if len(f.host) == 1 {
		var ok bool
		if q.Host, q.Port, ok = splitHost(f.host[0]); !ok {
			return bad("Host is neither a name nor an address")
		}
	}
	if authority != "" {
		host, port, ok := splitHost(authority)
		if !ok || len(f.host) == 1 && (host != q.Host || or80(port) != or80(q.Port)) {
			return bad("the target names another host than Host")
		}
		q.Host, q.Port = host, port
	}
	return nil
}

func or80(port uint16) uint16 {
	if port == 0 {
		return 80
	}
	return port
}

// splitHost reads what Host may be: nothing, or a name or an address, and
// perhaps a port.
func splitHost(s string) (host string, port uint16, ok bool) {
	if s == "" {
		return "", 0, true
	}
	host = s
	if i := strings.LastIndexByte(s, ':'); i > strings.LastIndexByte(s, ']') {
		digits := s[i+1:]
		n, err := strconv.ParseUint(digits, 10, 16)
		if err != nil || n == 0 || digits[0] == '0' {
			return "", 0, false
		}
		host, port = s[:i], uint16(n)
	}
	if in, is := strings.CutPrefix(host, "["); is {
		a, err := netip.ParseAddr(strings.TrimSuffix(in, "]"))
		if err != nil || !a.Is6() || a.Zone() != "" || !strings.HasSuffix(in, "]") {
			return "", 0, false
		}
		return a.String(), port, true
	}
	if a, err := netip.ParseAddr(host); err == nil && a.Is4() {
		return a.String(), port, true
	}
	host, ok = hostName(strings.TrimSuffix(host, "."))
	return host, port, ok
}
