package egress

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/bermhq/berm/internal/egress/wire"
	"github.com/bermhq/berm/internal/policy"
)

const patience = 20 * time.Second // for what must happen; nothing waits that long where it does

// eventually waits for a condition.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// rules parses a document; rules are as people write them.
func rules(t testing.TB, doc string, args ...any) *policy.Egress {
	t.Helper()
	p, err := policy.ParseEgress(json.RawMessage(fmt.Sprintf(doc, args...)), time.Now(), nil)
	if err != nil {
		t.Fatalf("%s: %v", doc, err)
	}
	return p
}

// events collects what a sink gets.
type events struct {
	mu   sync.Mutex
	list []Event
}

func (e *events) sink(x Event) {
	e.mu.Lock()
	e.list = append(e.list, x)
	e.mu.Unlock()
}

func (e *events) find(is func(Event) bool) (Event, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, x := range e.list {
		if is(x) {
			return x, true
		}
	}
	return Event{}, false
}

func (e *events) denied(reason string) bool {
	_, ok := e.find(func(x Event) bool { return !x.Allowed && x.Data.Reason == reason })
	return ok
}

// count is how many denials of a reason were told.
func (e *events) count(reason string) (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, x := range e.list {
		if !x.Allowed && x.Data.Reason == reason {
			n += max(1, x.Data.Count)
		}
	}
	return n
}

// bench is a broker with one open link, "sb", and its events.
type bench struct {
	t      *testing.T
	broker *Broker
	events *events
}

func newBench(t *testing.T, files *Files, l Link) *bench {
	t.Helper()
	if files == nil {
		files = &Files{}
	}
	b := &bench{t: t, broker: New(Options{Files: files}), events: &events{}}
	l.Sink = b.events.sink
	if err := b.broker.Open("sb", l); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.broker.Close("sb") })
	return b
}

// gateway is a stand-in that says whatever it is told to.
type gateway struct {
	t    *testing.T
	wire *wire.Conn
	raw  *net.UnixConn
	done chan error // what Serve returned
	seq  uint64
	flow uint64
}

func unixPair(t *testing.T) (ours, theirs *net.UnixConn) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_SEQPACKET|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		c, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		ends[i] = c.(*net.UnixConn)
		t.Cleanup(func() { c.Close() })
	}
	return ends[0], ends[1]
}

func (b *bench) gateway() *gateway {
	b.t.Helper()
	ours, theirs := unixPair(b.t)
	g := &gateway{t: b.t, wire: wire.NewConn(ours), raw: ours, done: make(chan error, 1)}
	go func() { g.done <- b.broker.Serve("sb", theirs) }()
	ours.SetReadDeadline(time.Now().Add(3 * patience))
	if a, fd, err := g.wire.ReceiveAnswer(); err != nil || fd >= 0 || a.Seq != 0 {
		b.t.Fatalf("go: %+v, %d, %v", a, fd, err)
	}
	return g
}

// ask asks and waits for the answer to it.
func (g *gateway) ask(a wire.Ask) (wire.Answer, int) {
	g.t.Helper()
	g.seq++
	a.Seq = g.seq
	if err := g.wire.SendAsk(a); err != nil {
		g.t.Fatal(err)
	}
	got, fd, err := g.wire.ReceiveAnswer()
	if err != nil || got.Seq != a.Seq {
		g.t.Fatalf("%+v: answer %+v, %v", a, got, err)
	}
	return got, fd
}

func (g *gateway) name(name string, qtype uint16) wire.Answer {
	g.t.Helper()
	a, _ := g.ask(wire.Ask{Op: wire.OpName, Name: name, Type: qtype})
	return a
}

// connect is the whole of it: accept, and where something must be seen connect
// with that. The connection is nil unless it was allowed and made.
func (g *gateway) connect(to netip.AddrPort, seen wire.Ask) (wire.Answer, net.Conn) {
	g.t.Helper()
	g.flow++
	a, fd := g.ask(wire.Ask{Op: wire.OpAccept, Flow: g.flow, To: to})
	if a.Inspect {
		seen.Op, seen.Flow = wire.OpConnect, g.flow
		a, fd = g.ask(seen)
	}
	if (fd >= 0) != (a.Allow && a.Fault == "") {
		g.t.Fatalf("%+v with descriptor %d", a, fd)
	}
	return a, g.conn(fd)
}

func (g *gateway) conn(fd int) net.Conn {
	g.t.Helper()
	if fd < 0 {
		return nil
	}
	f := os.NewFile(uintptr(fd), "conn")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	return c
}

var raw = wire.Ask{Seen: "raw"}

// over closes the flow that was asked about last.
func (g *gateway) over() {
	g.t.Helper()
	if err := g.wire.SendAsk(wire.Ask{Op: wire.OpClose, Flow: g.flow}); err != nil {
		g.t.Fatal(err)
	}
}

// server is a TCP server on loopback that gives each connection to serve, and
// counts them.
type server struct {
	net.Listener
	at netip.AddrPort
	mu sync.Mutex
	n  int
}

func newServer(t *testing.T, address string, serve func(net.Conn)) *server {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	s := &server{Listener: l, at: l.Addr().(*net.TCPAddr).AddrPort()}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.n++
			s.mu.Unlock()
			go func() { defer c.Close(); serve(c) }()
		}
	}()
	return s
}

func (s *server) seen() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n
}

// echo gives back what it gets.
func echo(c net.Conn) {
	buf := make([]byte, 1<<15)
	for {
		n, err := c.Read(buf)
		if err != nil {
			return
		}
		if _, err := c.Write(buf[:n]); err != nil {
			return
		}
	}
}

// works says whether a connection carries bytes there and back.
func works(c net.Conn) bool {
	if _, err := c.Write([]byte("x")); err != nil {
		return false
	}
	n, err := c.Read(make([]byte, 1))
	return n == 1 && err == nil
}

// nameServer answers on loopback over UDP and TCP, at the same port. reply gets
// each question and may change what is sent; it returns nil to stay silent.
// It becomes a name server of b.
func nameServer(t *testing.T, b *bench, reply func(q *dns.Msg, tcp bool) []*dns.Msg) (asked func() int) {
	t.Helper()
	var mu sync.Mutex
	n := 0
	handle := func(tcp bool) dns.HandlerFunc {
		return func(w dns.ResponseWriter, q *dns.Msg) {
			mu.Lock()
			n++
			mu.Unlock()
			for _, m := range reply(q, tcp) {
				w.WriteMsg(m)
			}
		}
	}
	var udp net.PacketConn
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	for range 100 { // until a port is free for both
		if err != nil {
			t.Fatal(err)
		}
		if udp, err = net.ListenPacket("udp", tcp.Addr().String()); err == nil {
			break
		}
		tcp.Close()
		tcp, err = net.Listen("tcp", "127.0.0.1:0")
	}
	for _, s := range []*dns.Server{{PacketConn: udp, Handler: handle(false)}, {Listener: tcp, Handler: handle(true)}} {
		started := make(chan struct{})
		s.NotifyStartedFunc = func() { close(started) }
		go s.ActivateAndServe()
		<-started
		t.Cleanup(func() { s.Shutdown() })
	}
	b.broker.resolver.current.servers = append(b.broker.resolver.current.servers, udp.LocalAddr().String()) // resolv.conf knows no ports
	return func() int { mu.Lock(); defer mu.Unlock(); return n }
}

// records answers with records as text.
func records(q *dns.Msg, lines ...string) *dns.Msg {
	m := new(dns.Msg)
	m.SetReply(q)
	for _, l := range lines {
		rr, err := dns.NewRR(l)
		if err != nil {
			panic(err)
		}
		m.Answer = append(m.Answer, rr)
	}
	return m
}
