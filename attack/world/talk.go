package world

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// patience is how long a server waits for a client to begin, and idle how long
// for what comes next of something begun.
const (
	patience = 15 * time.Second
	idle     = 700 * time.Millisecond
)

// forbidden is in every part of an attempt that must not arrive anywhere.
const forbidden = "denied"

// A visit is one connection to a server outside.
type visit struct {
	w      *World
	to     netip.AddrPort
	v      string // "4" or "6"
	judged bool   // policies allow the address, so what is said is looked at
	inner  bool   // within TLS, where nobody looks
}

func (v visit) hit(format string, args ...any) {
	if v.judged {
		v.w.log.hit(fmt.Sprintf("the allowed server %s, with ", v.to) + fmt.Sprintf(format, args...))
	}
}

// talk serves one connection outside, whatever its port is for: TLS, HTTP, DNS,
// SOCKS, or a greeting for those who wait for one.
func (w *World) talk(c net.Conn) {
	to := c.LocalAddr().(*net.TCPAddr).AddrPort()
	to = netip.AddrPortFrom(to.Addr().Unmap(), to.Port())
	v := visit{w: w, to: to, v: "6", judged: allowed(to)}
	if to.Addr().Is4() {
		v.v = "4"
	}
	r := bufio.NewReaderSize(c, 64<<10)
	if to.Port() == 53 {
		w.dnsOver(c, r, resolver(to.Addr()))
		return
	}
	if !v.judged {
		c.SetDeadline(time.Now().Add(300 * time.Millisecond))
		if _, err := r.Peek(1); err != nil {
			c.SetDeadline(time.Now().Add(patience))
			c.Write([]byte("220 canary\r\n"))
		}
	}
	c.SetDeadline(time.Now().Add(patience))
	b, err := r.Peek(1)
	switch {
	case err != nil:
	case b[0] == 0x16:
		v.tls(c, r)
	case b[0] == 5:
		v.hit("SOCKS")
		c.Write([]byte{5, 0})
		io.Copy(io.Discard, r)
	default:
		v.http(c, r)
	}
}

// http serves requests, as leniently as the worst of servers.
func (v visit) http(c net.Conn, r *bufio.Reader) {
	for {
		c.SetDeadline(time.Now().Add(patience))
		head, err := readHead(c, r)
		if string(head) == mark {
			v.w.log.marked()
			return
		}
		if len(head) == 0 {
			return
		}
		q := parseHead(head)
		c.SetDeadline(time.Now().Add(idle))
		body, berr := q.body(r)
		if !v.inner {
			if wrong := q.wrong(v.w.log.may, body); wrong != "" {
				v.hit("%s", wrong)
			} else if v.judged {
				v.w.log.fine("http" + v.v + " " + q.path)
			}
		}
		c.SetDeadline(time.Now().Add(patience))
		if strings.HasPrefix(q.path, "/drip/") {
			drip(c)
			return
		}
		io.WriteString(c, q.reply())
		if err != nil || berr != nil || q.close {
			return
		}
	}
}

// drip is an answer that comes slowly and has no end of its own.
func drip(c net.Conn) {
	io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
	for range 1000 {
		c.SetDeadline(time.Now().Add(patience))
		if _, err := io.WriteString(c, strings.Repeat("x", 999)+"\n"); err != nil {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// readHead reads until an empty line, however lines end, or nothing more comes.
func readHead(c net.Conn, r *bufio.Reader) ([]byte, error) {
	var head []byte
	first, err := r.Peek(1)
	if err != nil {
		return nil, err
	}
	if !strings.ContainsRune(" \r\n\x00\xef", rune(first[0])) && (first[0] < 'A' || first[0] > 'z') {
		head, _ = r.Peek(r.Buffered()) // not even text
		return head, errors.New("no head")
	}
	for len(head) < 1<<20 {
		c.SetDeadline(time.Now().Add(idle))
		line, err := r.ReadSlice('\n')
		head = append(head, line...)
		if err != nil {
			return head, err
		}
		if text := bytes.TrimSpace(head); len(text) == len(bytes.TrimSpace(line)) && len(text) > 0 && !bytes.Contains(line, []byte(" HTTP/1.")) && string(head) != mark {
			return head, errors.New("no head")
		}
		if len(bytes.TrimRight(line, "\r\n")) == 0 && len(bytes.TrimSpace(head)) > 0 || string(head) == mark {
			return head, nil
		}
	}
	return head, errors.New("too long a head")
}

// A query is a request as it arrived.
type query struct {
	raw                  []byte
	method, target, form string
	host, path           string
	hosts, lengths       int
	length               int64
	chunked, upgrade     bool
	coding               string
	odd                  string // what a strict server would not take
	close                bool
}

func parseHead(head []byte) query {
	q := query{raw: head, odd: ""}
	if !bytes.HasSuffix(head, []byte("\r\n\r\n")) {
		q.odd = "a head that does not end"
	}
	for i, line := range strings.SplitAfter(strings.TrimRight(string(head), "\r\n"), "\n") {
		if strings.HasSuffix(line, "\n") && !strings.HasSuffix(line, "\r\n") {
			q.odd = "bare line feeds"
		}
		text := strings.TrimRight(line, "\r\n")
		if i == 0 {
			f := strings.Split(text, " ")
			if len(f) != 3 || !strings.HasPrefix(f[2], "HTTP/1.") {
				q.odd = "no request line"
				q.close = true
			}
			q.method, q.target = f[0], strings.Join(f[1:min(2, len(f))], "")
			continue
		}
		if strings.HasPrefix(text, " ") || strings.HasPrefix(text, "\t") {
			q.odd = "a folded header"
			continue
		}
		name, value, _ := strings.Cut(text, ":")
		value = strings.TrimSpace(value)
		if strings.TrimRight(name, " \t") != name {
			q.odd = "a blank before a colon"
		}
		switch strings.ToLower(strings.TrimSpace(name)) {
		case "host":
			q.hosts++
			q.host = strings.ToLower(value)
			if h, _, err := net.SplitHostPort(q.host); err == nil {
				q.host = h
			}
		case "content-length":
			q.lengths++
			q.length, _ = strconv.ParseInt(value, 10, 64)
		case "transfer-encoding":
			q.coding += value
			q.chunked = strings.Contains(strings.ToLower(value), "chunked")
		case "upgrade":
			q.upgrade = !strings.EqualFold(value, "websocket")
		case "connection":
			q.close = q.close || strings.EqualFold(value, "close")
		}
	}
	q.path, _, _ = strings.Cut(q.target, "?")
	if u, err := url.Parse(q.target); err == nil && u.Host != "" {
		q.form = strings.ToLower(u.Hostname())
		q.path = u.Path
	}
	return q
}

// body reads what follows the head.
func (q *query) body(r *bufio.Reader) ([]byte, error) {
	if !q.chunked {
		return io.ReadAll(io.LimitReader(r, min(q.length, 1<<20)))
	}
	var out []byte
	for len(out) < 1<<20 {
		line, err := r.ReadString('\n')
		if err != nil {
			return out, err
		}
		n, err := strconv.ParseInt(strings.TrimSpace(strings.Split(line, ";")[0]), 16, 32)
		if err != nil {
			return out, err
		}
		out = append(out, line...)
		part := make([]byte, n)
		if _, err := io.ReadFull(r, part); err != nil {
			return out, err
		}
		out = append(out, part...)
		if _, err := r.ReadString('\n'); err != nil || n == 0 {
			return out, err
		}
	}
	return out, nil
}

// wrong says why a request should not have arrived at the allowed server.
func (q *query) wrong(may func(string) bool, body []byte) string {
	switch {
	case bytes.Contains(q.raw, []byte(forbidden)):
		return fmt.Sprintf("what is forbidden: %.60q", q.raw)
	case bytes.Contains(body, []byte(forbidden)):
		return fmt.Sprintf("what is forbidden in a body: %.60q", body)
	case q.odd != "":
		return q.odd
	case q.method == "CONNECT":
		return "CONNECT"
	case q.hosts != 1:
		return fmt.Sprintf("%d hosts", q.hosts)
	case !may(q.host):
		return fmt.Sprintf("the host %.60q", q.host)
	case q.form != "" && !may(q.form):
		return fmt.Sprintf("a request for %.60q", q.form)
	case q.form == "" && !strings.HasPrefix(q.target, "/") && q.target != "*":
		return fmt.Sprintf("the target %.60q", q.target)
	case q.lengths > 1 || q.lengths > 0 && q.coding != "":
		return "two lengths"
	case q.coding != "" && !slices.Contains([]string{"chunked"}, q.coding):
		return fmt.Sprintf("the transfer coding %.40q", q.coding)
	case q.upgrade:
		return "an upgrade"
	}
	return ""
}

// reply is what the client gets. Paths below /to/ lead to what follows them.
func (q *query) reply() string {
	if to, ok := strings.CutPrefix(q.path, "/to/"); ok {
		return "HTTP/1.1 302 Found\r\nLocation: http://" + to + "\r\nContent-Length: 0\r\n\r\n"
	}
	if q.method == "CONNECT" {
		return "HTTP/1.1 200 Connection established\r\n\r\n"
	}
	text := "canary " + q.host + "\n"
	if n, ok := strings.CutPrefix(q.path, "/bytes/"); ok {
		if size, err := strconv.Atoi(n); err == nil && size >= 0 && size <= 64<<20 {
			text = strings.Repeat("x", size)
		}
	}
	if q.method == "HEAD" {
		return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", len(text))
	}
	return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
}

// A replay is a connection whose first bytes are read again.
type replay struct {
	net.Conn
	r io.Reader
}

func (c replay) Read(b []byte) (int, error) { return c.r.Read(b) }

// tls serves a client that began with a handshake.
func (v visit) tls(c net.Conn, r *bufio.Reader) {
	asked := false
	conf := &tls.Config{Certificates: []tls.Certificate{v.w.certificate}, NextProtos: []string{"http/1.1"}}
	conf.GetConfigForClient = func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		asked = true
		name := strings.ToLower(h.ServerName)
		const encryptedHello = 0xfe0d
		switch {
		case slices.Contains(h.Extensions, encryptedHello):
			v.hit("an encrypted hello")
		case name == "":
			v.hit("TLS without a name")
		case !v.w.log.may(name):
			v.hit("TLS for %.60q", name)
		case v.judged:
			v.w.log.fine("tls" + v.v)
		}
		return nil, nil
	}
	tc := tls.Server(replay{c, r}, conf)
	c.SetDeadline(time.Now().Add(idle))
	err := tc.Handshake()
	if !asked {
		v.hit("a hello that is none")
	}
	if err == nil {
		v.inner = true
		v.http(tc, bufio.NewReader(tc))
	}
	tc.Close()
}

// selfSigned makes any certificate: clients do not look at it.
func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	t := x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		DNSNames: []string{"example.test", "*.test"}}
	der, err := x509.CreateCertificate(rand.Reader, &t, &t, &key.PublicKey, key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}
