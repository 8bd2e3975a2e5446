package gateway

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/bermhq/berm/internal/egress/sniff"
	"github.com/bermhq/berm/internal/egress/wire"
	"github.com/bermhq/berm/internal/policy"
)

// http goes on with a connection that began with the request q, n bytes long.
// Each request is asked about before its first byte is let through; answers are
// copied as they come.
func (f *flow) http(p *peeker, q sniff.Request, n int) {
	if d, ok := f.refused(&q); !ok {
		f.deny(d)
		return
	}
	a := f.connect(f.request(&q))
	if !a.Allow {
		f.deny(denial(&q, f.to, a))
		return
	}
	if q.Expect[1] > 0 {
		// The field is taken out, see sniff.Request.Forward. So the guest hears it from
		// us, before anything that the server may say.
		if _, err := io.WriteString(f.guest, "HTTP/1.1 100 Continue\r\n\r\n"); err != nil {
			f.reset.Store(true)
			return
		}
	}
	if q.WebSocket {
		f.websocket(p, n)
		return
	}
	back := f.answers(nil)
	if f.forward(p, q, n) {
		f.requests(p, back)
	}
	<-back.done
}

// requests asks about all requests but the first, and lets them through.
func (f *flow) requests(p *peeker, back *answers) {
	for {
		q, n, more := f.next(p, back)
		if !more {
			return
		}
		if q.WebSocket { // nobody could tell where the answer to it begins
			f.denyLater(back, bad(&q, "a websocket on a connection that had requests before"))
			return
		}
		if d, ok := f.refused(&q); !ok {
			f.denyLater(back, d)
			return
		}
		ask := f.request(&q)
		ask.Op, ask.Flow, ask.To = wire.OpRequest, f.id, f.to
		a, _, err := f.g.broker.ask(ask)
		if err != nil {
			f.cut()
			return
		}
		if !a.Allow {
			f.denyLater(back, denial(&q, f.to, a))
			return
		}
		if !f.forward(p, q, n) {
			return
		}
	}
}

// next reads the head of the next request.
func (f *flow) next(p *peeker, back *answers) (q sniff.Request, n int, more bool) {
	var heads sniff.HeadReader
	var late <-chan time.Time
	for {
		if len(p.data()) > 0 {
			if late == nil {
				late = time.After(headTime)
			}
			var err error
			if q, n, err = heads.Next(p.data()); err != nil {
				f.denyLater(back, bad(&q, trim(err)))
				return q, 0, false
			}
			if n > 0 {
				return q, n, true
			}
		}
		switch err := p.more(late); {
		case err == nil:
		case err == io.EOF && len(p.data()) == 0:
			f.shutdown()
			return q, 0, false
		default: // cut off in the middle, or too slow
			f.guest.Abort()
			f.cut()
			return q, 0, false
		}
	}
}

// forward lets through a head of n bytes and the body behind it.
func (f *flow) forward(p *peeker, q sniff.Request, n int) bool {
	if _, err := f.out.Write(q.Forward(p.data()[:n])); err != nil {
		return false
	}
	p.take(n)
	for body := q.Body(); !body.Done(); {
		n, err := body.Next(p.data())
		if n > 0 {
			if _, err := f.out.Write(p.data()[:n]); err != nil {
				return false
			}
			p.take(n)
		}
		if err == nil && !body.Done() && (n == 0 || len(p.data()) == 0) {
			err = p.more(nil)
		}
		if err != nil { // not well-formed, or not whole: the server must not take it for whole
			if errors.Is(err, sniff.ErrHTTP) {
				f.g.records.addText("http", policy.DenyHTTP, f.to, q.Host, trim(err))
			}
			f.guest.Abort()
			f.cut()
			return false
		}
	}
	return true
}

// websocket lets a request through whose head is n bytes long, and holds what
// comes next until the server has said that it agrees. It is the first request,
// so the first line that the server says is the answer.
func (f *flow) websocket(p *peeker, n int) {
	const want = "HTTP/1.1 101 "
	agreed := make(chan bool, 1)
	line := make([]byte, 0, len(want))
	back := f.answers(func(b []byte) {
		if line == nil {
			return
		}
		line = append(line, b[:min(len(b), len(want)-len(line))]...)
		if len(line) == len(want) || b == nil {
			agreed <- string(line) == want
			line = nil
		}
	})
	defer func() { <-back.done }()
	if _, err := f.out.Write(p.data()[:n]); err != nil {
		return
	}
	p.take(n)
	if <-agreed {
		f.upward(p.data())
	} else {
		f.requests(p, back)
	}
}

// request is what is asked about q.
func (f *flow) request(q *sniff.Request) wire.Ask {
	return wire.Ask{Seen: string(policy.SeenHTTP), Claim: q.Host, Method: q.Method, Path: q.Path}
}

// refused says what is wrong with a request before anybody is asked.
func (f *flow) refused(q *sniff.Request) (refusal, bool) {
	if q.Port != 0 && q.Port != f.to.Port() {
		return bad(q, "Host names another port than that of the connection"), false
	}
	if len(q.Path) > wire.MaxPath {
		r := bad(q, fmt.Sprintf("a path of more than %d bytes", wire.MaxPath))
		r.status = "414 URI Too Long"
		return r, false
	}
	return refusal{}, true
}

// notHTTP ends a connection whose first request could not be read.
func (f *flow) notHTTP(q sniff.Request, err error) {
	f.deny(bad(&q, trim(err)))
}

// trim takes the general words from an error of sniff.
func trim(err error) string {
	return strings.TrimPrefix(err.Error(), sniff.ErrHTTP.Error()+": ")
}

// A refusal is an answer of our own to a request.
type refusal struct {
	status string
	field  string // the field that says why to programs
	why    string // the field's value
	text   string
	head   bool // no body
	own    bool // the broker does not know of it
	host   string
	detail string // that makes an own one
}

func bad(q *sniff.Request, text string) refusal {
	return refusal{
		status: "403 Forbidden", field: "Berm-Denied", why: policy.DenyHTTP, host: q.Host, own: true, head: q.Method == "HEAD", detail: text,
		text: "denied: not a request that can be checked: " + text + "\n",
	}
}

// denial turns the broker's answer into one to the guest.
func denial(q *sniff.Request, to netip.AddrPort, a wire.Answer) refusal {
	r := refusal{head: q.Method == "HEAD"}
	what := q.Method + " http://" + hostPort(q.Host, to.Port()) + q.Path
	if a.Fault != "" {
		r.status, r.field, r.why = "502 Bad Gateway", "Berm-Fault", a.Fault
		if a.Fault == "timeout" {
			r.status = "504 Gateway Timeout"
		}
		r.text = what + " is allowed, but its server cannot be reached: " + a.Fault + "\n"
		return r
	}
	r.status, r.field, r.why = "403 Forbidden", "Berm-Denied", a.Reason
	r.text = what + " is denied: " + a.Reason + "\n"
	if a.Text != "" {
		r.text += a.Text + "\n"
	}
	if a.Fix != "" {
		r.text += "to allow it: " + a.Fix + "\n"
	}
	return r
}

// hostPort is a host as it stands in a URL.
func hostPort(host string, port uint16) string {
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if port == 80 {
		return host
	}
	return host + ":" + strconv.Itoa(int(port))
}

// bytes is the whole answer.
func (r refusal) bytes() []byte {
	body := "berm: " + printable(r.text, 2000)
	out := fmt.Sprintf("HTTP/1.1 %s\r\nConnection: close\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n%s: %s\r\n\r\n",
		r.status, len(body), r.field, strings.ReplaceAll(printable(r.why, 100), "\n", " "))
	if !r.head {
		out += body
	}
	return []byte(out)
}

// printable keeps at most n characters of s, and ASCII only.
func printable(s string, n int) string {
	b := []byte(s[:min(n, len(s))])
	for i, c := range b {
		if (c < ' ' || c > '~') && c != '\n' {
			b[i] = '?'
		}
	}
	return string(b)
}

// deny answers the first request of a connection.
func (f *flow) deny(r refusal) {
	if r.own {
		f.g.records.addText("http", r.why, f.to, r.host, r.detail)
	}
	f.guest.Write(r.bytes())
	f.guest.finish()
}

// Bounds of denyLater.
const (
	answerQuiet = 500 * time.Millisecond
	answerTime  = 5 * time.Second
)

// denyLater answers a later request, behind the answers to those before. The
// server is told that no more comes, so it ends when it has said all; one that
// does not is waited for until it is quiet.
func (f *flow) denyLater(back *answers, r refusal) {
	if r.own {
		f.g.records.addText("http", r.why, f.to, r.host, r.detail)
	}
	back.hold.Store(true)
	f.shutdown()
	tick := time.NewTicker(answerQuiet / 10)
	defer tick.Stop()
	for end := time.Now().Add(answerTime); ; {
		select {
		case <-back.done:
			f.guest.Write(r.bytes())
			f.guest.finish()
			return
		case now := <-tick.C:
			if now.After(end) {
				f.guest.Abort() // it does not read what it was sent
				f.out.SetDeadline(now)
				return
			}
			if now.UnixNano()-back.heard.Load() > int64(answerQuiet) {
				f.out.SetReadDeadline(now)
			}
		}
	}
}
