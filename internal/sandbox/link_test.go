package sandbox_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/egress/wire"
	"github.com/bermhq/berm/internal/policy"
	"github.com/bermhq/berm/internal/sandbox"
)

// patient bounds what must happen.
const patient = 20 * time.Second

// A player plays the gateway of a sandbox.
type player struct {
	t    *testing.T
	c    *wire.Conn
	raw  *net.UnixConn
	seq  uint64
	flow uint64
}

func (r *rig) player(t *testing.T, id string) *player {
	t.Helper()
	c, err := r.mem.Gateway(id)
	if err != nil {
		t.Fatal(err)
	}
	p := &player{t: t, c: wire.NewConn(c), raw: c}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patient))
	if a, _, err := p.c.ReceiveAnswer(); err != nil || a.Seq != 0 {
		t.Fatalf("go: %+v, %v", a, err)
	}
	return p
}

func (p *player) ask(a wire.Ask) (wire.Answer, int) {
	p.t.Helper()
	p.seq++
	a.Seq = p.seq
	if err := p.c.SendAsk(a); err != nil {
		p.t.Fatal(err)
	}
	got, fd, err := p.c.ReceiveAnswer()
	if err != nil || got.Seq != p.seq {
		p.t.Fatalf("%+v: %+v, %v", a, got, err)
	}
	return got, fd
}

// connect asks for a connection as a gateway does; nil: there is none.
func (p *player) connect(to netip.AddrPort) (net.Conn, wire.Answer) {
	p.t.Helper()
	p.flow++
	a, fd := p.ask(wire.Ask{Op: wire.OpAccept, Flow: p.flow, To: to})
	if a.Inspect {
		a, fd = p.ask(wire.Ask{Op: wire.OpConnect, Flow: p.flow, To: to, Seen: string(policy.SeenRaw)})
	}
	if fd < 0 {
		return nil, a
	}
	f := os.NewFile(uintptr(fd), "connection")
	c, err := net.FileConn(f)
	f.Close()
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patient))
	return c, a
}

// An echo server that counts who came.
type outside struct {
	to   netip.AddrPort
	came atomic.Int32
}

func newOutside(t *testing.T) *outside {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	o := &outside{to: l.Addr().(*net.TCPAddr).AddrPort()}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			o.came.Add(1)
			go func() { defer c.Close(); io.Copy(c, c) }()
		}
	}()
	return o
}

// rule allows a range at the server's port.
func (o *outside) rule(more string) string {
	return fmt.Sprintf(`{"allow":"127.0.0.0/8:%d"%s}`, o.to.Port(), more)
}

func echoes(t *testing.T, c net.Conn, text string) {
	t.Helper()
	b := make([]byte, len(text))
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, b); err != nil || string(b) != text {
		t.Fatalf("%q, %v", b, err)
	}
}

// has says whether an event of that type is on paper whose data satisfies f.
func (p *paper) has(typ string, f func(d api.EgressData, ev api.Event) bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.events, func(ev api.Event) bool {
		var d api.EgressData
		return ev.Type == typ && json.Unmarshal(ev.Data, &d) == nil && f(d, ev)
	})
}

func (r *rig) linked(t *testing.T, doc string) string {
	t.Helper()
	sb, err := r.Create(by(t, api.RoleAgent), api.CreateRequest{Egress: rules(doc), Tags: map[string]string{"k": "v"}})
	if err != nil {
		t.Fatal(err)
	}
	return sb.ID
}

// What a sandbox reaches and what it is denied is in its events, its state and
// its report, with the bytes.
func TestLinkTells(t *testing.T) {
	r, p := newDurable(t, linked())
	o := newOutside(t)
	id := r.linked(t, "["+o.rule("")+"]")
	g := r.player(t, id)
	c, a := g.connect(o.to)
	if c == nil {
		t.Fatalf("%+v", a)
	}
	echoes(t, c, "hello")
	far := netip.MustParseAddrPort("192.0.2.1:22")
	if c, a := g.connect(far); c != nil || a.Allow || a.Reason == "" {
		t.Errorf("%+v", a)
	}
	wait(t, func() bool {
		s, err := r.Egress(t.Context(), id)
		return err == nil && s.EgressBytes == 5 && s.IngressBytes == 5
	})
	s, _ := r.Egress(t.Context(), id)
	if !slices.Equal(s.Hosts, []string{o.to.String()}) || len(s.Denied) != 1 || s.Denied[0].Target != far.String() || s.Denied[0].Reason == "" {
		t.Errorf("%+v", s)
	}
	for typ, f := range map[string]func(api.EgressData) bool{
		api.EventEgressAllowed: func(d api.EgressData) bool { return d.Port == o.to.Port() && d.Verdict == "allowed" && d.Rule != "" },
		api.EventEgressDenied:  func(d api.EgressData) bool { return d.Target == far.String() && d.Reason != "" && d.Fix != "" },
	} {
		wait(t, func() bool {
			return p.has(typ, func(d api.EgressData, ev api.Event) bool {
				return f(d) && ev.SandboxID == id && ev.Tags["k"] == "v" && ev.Tenant == api.DefaultTenant && ev.Actor == "system"
			})
		})
	}
	rep, err := r.Delete(t.Context(), id)
	if err != nil || rep.Usage.EgressBytes != 5 || rep.Usage.IngressBytes != 5 || !slices.Equal(rep.Hosts, s.Hosts) || len(rep.Denied) != 1 {
		t.Errorf("%+v, %v", rep, err)
	}
	if types := p.types(id); types[len(types)-1] != api.EventSandboxEnded {
		t.Errorf("after the end: %v", types)
	}
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("the connection outlives its sandbox")
	}
	if after, err := r.Egress(t.Context(), id); err != nil || after.EgressBytes != 5 || len(after.Hosts) != 1 {
		t.Errorf("ended: %+v, %v", after, err)
	}
}

// A narrower document cuts what it does not allow, at once, in a paused sandbox
// too; one that cannot be recorded cuts nothing.
func TestNarrowingCuts(t *testing.T) {
	r, p := newDurable(t, linked())
	o := newOutside(t)
	id := r.linked(t, "["+o.rule("")+"]")
	g := r.player(t, id)
	c, a := g.connect(o.to)
	if c == nil {
		t.Fatalf("%+v", a)
	}
	echoes(t, c, "one")
	p.breaks(func(what string) error {
		if what == api.EventPolicyChanged {
			return errors.New("the disk is full")
		}
		return nil
	})
	if _, err := r.SetEgress(by(t, api.RoleAgent), id, rules("[]")); err == nil {
		t.Fatal("changed without a record")
	}
	echoes(t, c, "two")
	p.breaks(nil)
	if err := r.Pause(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if _, err := r.SetEgress(by(t, api.RoleAgent), id, rules("[]")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection goes on: %v", err)
	}
	if c, a := g.connect(o.to); c != nil || a.Allow {
		t.Errorf("%+v", a)
	}
	if _, err := r.SetEgress(by(t, api.RoleOperator), id, rules("["+o.rule("")+"]")); err != nil {
		t.Fatal(err)
	}
	if c, a := g.connect(o.to); c == nil {
		t.Errorf("widened by an operator: %+v", a)
	}
}

// A rule that may be used twice is used twice, however often the daemon is
// killed in between, and no text of its user's gives it back.
func TestUsesOutliveTheDaemon(t *testing.T) {
	r, p := newMortal(t, linked())
	o := newOutside(t)
	doc := "[" + o.rule(`,"uses":2`) + "]"
	id := r.linked(t, doc)
	if c, a := r.player(t, id).connect(o.to); c == nil {
		t.Fatalf("the first use: %+v", a)
	}
	next := r.successor(t, linked(), p)
	if err := next.Adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	g := next.player(t, id)
	if c, a := g.connect(o.to); c == nil {
		t.Fatalf("the second use: %+v", a)
	}
	for _, again := range []string{doc, "[" + o.rule(`,"uses":1`) + "]", "[" + o.rule(`,"uses":2,"connections":9`) + "]", "[" + o.rule(`,"uses":2`) + "," + o.rule(`,"uses":2`) + "]"} {
		next.SetEgress(by(t, api.RoleAgent), id, rules(again))
		if c, a := g.connect(o.to); c != nil || a.Reason != policy.DenyUsed {
			t.Errorf("the third, after %s: %+v", again, a)
		}
	}
	last := next.successor(t, linked(), p)
	if err := last.Adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c, a := last.player(t, id).connect(o.to); c != nil || a.Reason != policy.DenyUsed {
		t.Errorf("after another restart: %+v", a)
	}
	if n := o.came.Load(); n != 2 {
		t.Errorf("the server saw %d connections", n)
	}
	s, err := last.Egress(t.Context(), id)
	if err != nil || !slices.Equal(s.Hosts, []string{o.to.String()}) || len(s.Denied) == 0 {
		t.Errorf("what was before the restarts: %+v, %v", s, err)
	}
	rep, err := last.Delete(t.Context(), id)
	if err != nil || !slices.Contains(rep.CapsHit, api.CapEgress) || !slices.Equal(rep.Hosts, s.Hosts) {
		t.Errorf("%+v, %v", rep, err)
	}
	var capped int
	for _, typ := range p.types(id) {
		if typ == api.EventCapHit {
			capped++
		}
	}
	if capped != 1 {
		t.Errorf("%d times cap.hit", capped)
	}
}

// A use that cannot be recorded is none.
func TestUseIsRecordedFirst(t *testing.T) {
	r, p := newDurable(t, linked())
	o := newOutside(t)
	id := r.linked(t, "["+o.rule(`,"uses":1`)+"]")
	p.breaks(func(what string) error {
		if what == "save" {
			return errors.New("the disk is full")
		}
		return nil
	})
	if c, a := r.player(t, id).connect(o.to); c != nil || a.Allow {
		t.Errorf("%+v", a)
	}
	if n := o.came.Load(); n != 0 {
		t.Errorf("the server saw %d connections", n)
	}
	p.breaks(nil)
}

// A sandbox whose wire writes more than it may ends.
func TestEgressOverTheEventBudget(t *testing.T) {
	r, p := newDurable(t, linked())
	id, other := r.linked(t, "[]"), r.linked(t, "[]")
	p.breaks(func(what string) error {
		if what == api.EventEgressDenied {
			return fmt.Errorf("store: %w", sandbox.ErrBudget)
		}
		return nil
	})
	g := r.player(t, id)
	if err := g.c.SendAsk(wire.Ask{Seq: 1, Op: wire.OpAccept, Flow: 1, To: netip.MustParseAddrPort("192.0.2.1:22")}); err != nil {
		t.Fatal(err)
	}
	wait(t, func() bool {
		sb, _ := r.Get(t.Context(), id)
		return sb.State == "ended" && sb.Ending == api.EndPolicy
	})
	if sb, err := r.Get(t.Context(), other); err != nil || sb.State != "running" {
		t.Errorf("the other one: %+v, %v", sb, err)
	}
}

// After a failed start, and after the end, the broker knows nothing of a link.
func TestLinkIsClosed(t *testing.T) {
	opt := linked()
	r, p := newDurable(t, opt)
	gone := func(id string) {
		t.Helper()
		if err := opt.Egress.Change(id, &policy.Egress{}); err == nil {
			t.Errorf("the broker still knows %s", id)
		}
	}
	id := r.linked(t, "[]")
	if err := opt.Egress.Change(id, &policy.Egress{}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Delete(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	gone(id)
	for name, fail := range map[string]func(){
		"start": func() { r.flaky.StartErr = errors.New("no") },
		"agent": func() { r.flaky.AgentErr = errors.New("no") },
		"silent": func() {
			r.flaky.Conn = func(c net.Conn) net.Conn { theirs, ours := net.Pipe(); theirs.Close(); c.Close(); return ours }
		},
	} {
		r.flaky.StartErr, r.flaky.AgentErr, r.flaky.Conn = nil, nil, nil
		fail()
		if _, err := r.Create(t.Context(), api.CreateRequest{Egress: rules("[]")}); err == nil {
			t.Errorf("%s: created", name)
		}
		var made struct{}
		gone(p.last(t, api.EventSandboxCreated, &made).SandboxID)
	}
	r.flaky.StartErr, r.flaky.AgentErr, r.flaky.Conn = nil, nil, nil
}
