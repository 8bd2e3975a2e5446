package keeper

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bermhq/berm/internal/jail"
)

// fakeGateway waits for a word of its broker, says what it is, and then passes
// on each frame that it reads. It dies of the frame "die", and of one that
// begins with "unborn" before it is up. What it is told by "mark" it leaves to
// the next, which says it.
func fakeGateway() {
	peek := make([]byte, 16)
	if n, _, _ := unix.Recvfrom(3, peek, unix.MSG_PEEK|unix.MSG_DONTWAIT); n > 0 && strings.HasPrefix(string(peek[:n]), "unborn") {
		unix.Read(3, peek)
		os.Exit(5)
	}
	os.NewFile(5, "sync").Write([]byte{1})
	unix.Close(5)
	b := make([]byte, 1<<16)
	if n, err := unix.Read(4, b); n == 0 || err != nil {
		os.Exit(6)
	}
	in, _ := os.ReadDir("/proc")
	marks := make([]byte, 16)
	unix.Pread(6, marks, 0)
	unix.Write(4, fmt.Appendf(nil, "up env=%d proc=%d args=%q%s", len(os.Environ()), len(in), os.Args, bytes.TrimRight(marks, "\x00")))
	unix.SetNonblock(3, false)
	for {
		n, err := unix.Read(3, b)
		if err != nil || n == 0 || string(b[:n]) == "die" {
			os.Exit(7)
		}
		if string(b[:n]) == "mark" {
			unix.Pwrite(6, []byte(" marked"), 0)
			if unix.Ftruncate(6, 0) == nil || unix.Ftruncate(6, 1<<20) == nil {
				os.Exit(8)
			}
		}
		unix.Write(4, b[:n])
	}
}

// A heard gateway is one that an engine was told of.
type heard struct {
	id     string
	broker *net.UnixConn
}

// hears has all gateways of an engine noted.
func hears(t *testing.T, c *Client) chan heard {
	out := make(chan heard, 100)
	c.OnGateway(func(id string, f *os.File) {
		conn, err := jail.Conn(f)
		if err != nil {
			t.Errorf("the broker's end of %s: %v", id, err)
			return
		}
		t.Cleanup(func() { conn.Close() })
		out <- heard{id, conn}
	})
	return out
}

func hear(t *testing.T, from chan heard) heard {
	t.Helper()
	select {
	case h := <-from:
		return h
	case <-time.After(10 * time.Second):
		t.Fatal("no gateway was started")
		return heard{}
	}
}

func silent(t *testing.T, from chan heard) {
	t.Helper()
	select {
	case h := <-from:
		t.Errorf("a gateway for %s that nobody needs", h.id)
	default:
	}
}

// says reads what a gateway passed on.
func (h heard) says(t *testing.T, want string) {
	t.Helper()
	h.broker.SetReadDeadline(time.Now().Add(10 * time.Second))
	b := make([]byte, 1<<16)
	if n, err := h.broker.Read(b); err != nil || string(b[:n]) != want {
		t.Errorf("the gateway says %.100q, %v; want %.100q", b[:n], err, want)
	}
}

func (h heard) begin(t *testing.T) {
	t.Helper()
	h.marked(t, false)
}

// marked is begin where the gateway before may have left something.
func (h heard) marked(t *testing.T, is bool) {
	t.Helper()
	if _, err := h.broker.Write([]byte("go")); err != nil {
		t.Fatal(err)
	}
	left := ""
	if is {
		left = " marked"
	}
	h.says(t, `up env=0 proc=0 args=["berm-gateway"]`+left)
}

// leased says whether somebody holds a uid for a sandbox.
func leased(uid int) bool {
	b, _ := os.ReadFile("/proc/net/unix")
	return strings.Contains(string(b), fmt.Sprintf("@berm-uid-%d\n", uid))
}

func (r *rig) linked(c *Client, change func(*Launch)) (string, *Running) {
	r.t.Helper()
	l := fakeLaunch(r.id())
	l.Link = true
	if change != nil {
		change(&l)
	}
	spec := devNull()
	defer spec.Close()
	run, err := c.Launch(r.t.Context(), l, spec)
	if err != nil {
		r.t.Fatalf("Launch: %v", err)
	}
	r.t.Cleanup(func() { run.close() })
	if run.Link == nil {
		r.t.Fatal("no link came back")
	}
	return l.ID, run
}

// procs are the processes in a sandbox's group, without the sandbox.
func procs(run *Running, id string) (out []int) {
	h, _ := jail.FindHierarchy()
	for _, p := range h.Plan(groupName(id)).Procs() {
		if p != run.PID {
			out = append(out, p)
		}
	}
	return out
}

func frame(t *testing.T, run *Running, what string) {
	t.Helper()
	if _, err := run.Link.WriteString(what); err != nil {
		t.Fatal(err)
	}
}

func TestGateway(t *testing.T) {
	r := serve(t, Config{every: time.Millisecond}, ModeUnit)
	c := r.dial()
	told := hears(t, c)
	id, run := r.linked(c, nil)
	echo(t, run, "up")
	if got := procs(run, id); len(got) > 0 {
		t.Errorf("processes %v before the first frame", got)
	}
	silent(t, told)

	frame(t, run, "one")
	frame(t, run, "two")
	g := hear(t, told)
	if g.id != id {
		t.Errorf("a gateway of %s, want %s", g.id, id)
	}
	pids := procs(run, id)
	if len(pids) != 1 {
		t.Fatalf("gateways %v", pids)
	}
	uid := func(pid int) (out [4]int) {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		for line := range strings.Lines(string(b)) {
			fmt.Sscanf(line, "Uid: %d %d %d %d", &out[0], &out[1], &out[2], &out[3])
		}
		return out
	}
	if u, s := uid(pids[0]), uid(run.PID); u[0] < 1000 || u == s || u != [4]int{u[0], u[0], u[0], u[0]} {
		t.Errorf("its uids are %v, the sandbox's %v", u, s)
	}
	g.begin(t)
	g.says(t, "one") // the keeper has read none
	g.says(t, "two")
	big := strings.Repeat("x", 60014)
	for range 40 { // as many as TCP may have under way
		frame(t, run, big)
	}
	for range 40 {
		g.says(t, big)
	}
	silent(t, told)

	frame(t, run, "mark")
	g.says(t, "mark")
	frame(t, run, "die")
	g = hear(t, told) // at once, for whoever only listens
	g.marked(t, true)
	frame(t, run, "three")
	g.says(t, "three")
	frame(t, run, "die")
	frame(t, run, "unborn") // dies before it is up: the engine hears nothing of it
	frame(t, run, "four")
	g = hear(t, told)
	g.marked(t, true)
	g.says(t, "four")

	gateway := procs(run, id)[0]
	own := uid(gateway)[0]
	if !leased(own) {
		t.Errorf("its uid %d is nobody's", own)
	}
	if err := c.Stop(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(gateway, 0); err != syscall.ESRCH {
		t.Errorf("the gateway outlives its sandbox: %v", err)
	}
	if leased(own) {
		t.Errorf("its uid %d is still held", own)
	}
	silent(t, told)
}

// Without its engine no gateway runs; the next engine gets a new one, with the
// frames that came meanwhile.
func TestGatewayEngine(t *testing.T) {
	for name, part := range map[string]func(*rig, *Client) *Client{
		"closed":   func(r *rig, c *Client) *Client { c.Close(); return nil },
		"replaced": func(r *rig, _ *Client) *Client { return r.dial() },
	} {
		t.Run(name, func(t *testing.T) {
			r := serve(t, Config{every: time.Millisecond}, ModeUnit)
			c := r.dial()
			told := hears(t, c)
			id, run := r.linked(c, nil)
			idle, _ := r.linked(c, nil)
			frame(t, run, "x")
			g := hear(t, told)
			g.begin(t)
			g.says(t, "x")
			for n := range maxGateways + 2 { // this wears nothing out
				served := procs(run, id)
				next := part(r, c)
				until(t, "the gateway is gone", func() bool { return len(served) == 1 && !slices.Contains(procs(run, id), served[0]) })
				echo(t, run, "goes on")
				silent(t, told)
				if n%2 == 0 {
					frame(t, run, "meanwhile")
				} // else the next one comes all the same: guests may only listen
				if next == nil {
					if got := procs(run, id); len(got) > 0 {
						t.Errorf("gateways %v without an engine", got)
					}
					next = r.dial()
				}
				c, told = next, hears(t, next) // later than the event, perhaps
				g = hear(t, told)
				g.begin(t)
				if n%2 != 0 {
					frame(t, run, "meanwhile")
				}
				g.says(t, "meanwhile")
			}
			again, err := c.Attach(t.Context(), idle)
			if err != nil || again.Link != nil {
				t.Errorf("Attach: %+v, %v", again, err)
			}
			silent(t, told)
		})
	}
}

// After many gateways that died the next come slowly, and they do come.
func TestGatewayWornOut(t *testing.T) {
	const slow = 200 * time.Millisecond
	r := serve(t, Config{every: time.Millisecond, worn: slow}, ModeUnit)
	c := r.dial()
	told := hears(t, c)
	_, run := r.linked(c, nil)
	var began time.Time
	for n := range maxGateways + 3 {
		frame(t, run, "x")
		g := hear(t, told)
		g.begin(t)
		g.says(t, "x")
		if n == maxGateways-1 {
			began = time.Now()
		}
		frame(t, run, "die")
	}
	if took := time.Since(began); took < 2*slow { // of the three the first begins to wait before it is heard of
		t.Errorf("three more gateways within %v", took)
	}
	echo(t, run, "goes on")
}

// The rate holds, however fast gateways die.
func TestGatewayRate(t *testing.T) {
	r := serve(t, Config{every: 200 * time.Millisecond}, ModeUnit)
	c := r.dial()
	told := hears(t, c)
	_, run := r.linked(c, nil)
	began := time.Now()
	for range 4 {
		frame(t, run, "x")
		hear(t, told).broker.Close() // it ends
	}
	if took := time.Since(began); took < 600*time.Millisecond {
		t.Errorf("four gateways within %v", took)
	}
}

// Whatever ends a sandbox, its gateway goes with it, and no descriptor stays.
func TestGatewayEnds(t *testing.T) {
	r := serve(t, Config{every: time.Millisecond}, ModeUnit)
	c := r.dial()
	told := hears(t, c)
	open := func() int { ents, _ := os.ReadDir("/proc/self/fd"); return len(ents) }
	var before int
	for n := range 31 {
		id, run := r.linked(c, nil)
		frame(t, run, "x")
		var g heard
		if n%3 == 0 { // else it is on its way up, or there is none
			g = hear(t, told)
		}
		switch n % 3 {
		case 0:
			run.Agent.WriteString("x") // it ends by itself
		case 1:
			if err := c.SetDeadline(t.Context(), id, time.Now()); err != nil {
				t.Fatal(err)
			}
		case 2:
			if err := c.Stop(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
		if e := gone(t, run); e.Unkept != "" {
			t.Errorf("%+v", e)
		}
		run.close()
		if g.broker != nil {
			g.broker.Close()
		}
		for len(told) > 0 {
			(<-told).broker.Close()
		}
		if n == 0 {
			before = open()
		}
	}
	until(t, "all descriptors are closed", func() bool {
		for len(told) > 0 {
			(<-told).broker.Close()
		}
		return open() <= before
	})
	if got := procsNamed(gatewayName); len(got) > 0 {
		t.Errorf("gateways %v", got)
	}
}

// procsNamed are our own children's children with that argv[0].
func procsNamed(name string) (out []int) {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range all {
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		if b, _ := os.ReadFile(f); string(b) == name+"\x00" && jail.Parent(pid) == os.Getpid() {
			out = append(out, pid)
		}
	}
	return slices.Clip(out)
}

// A keeper that does not know of links gives none, and that is an error.
func TestClientOldKeeper(t *testing.T) {
	a, b, err := jail.Pair(unix.SOCK_SEQPACKET)
	if err != nil {
		t.Fatal(err)
	}
	ca, _ := jail.Conn(a)
	cb, _ := jail.Conn(b)
	defer cb.Close()
	c := NewClient(ca)
	defer c.Close()
	asked := make(chan string, 4)
	go func() {
		buf := make([]byte, maxMessage)
		for {
			var q request
			files, err := receive(cb, buf, &q)
			if err != nil {
				return
			}
			closeAll(files)
			asked <- q.Op + " " + q.ID
			f := devNull()
			if q.Op == "launch" {
				send(cb, reply{Seq: q.Seq, PID: 1, Control: true}, f, f, f)
			} else {
				send(cb, reply{Seq: q.Seq})
			}
			f.Close()
		}
	}()
	spec := devNull()
	defer spec.Close()
	_, err = c.Launch(t.Context(), Launch{ID: testID, Link: true}, spec)
	var ref *Refusal
	if !errors.As(err, &ref) || ref.Code != "egress.unavailable" || !strings.Contains(ref.Hint, "restart the keeper") {
		t.Errorf("Launch: %v", err)
	}
	if first, second := <-asked, <-asked; first != "launch " || second != "stop "+testID {
		t.Errorf("asked %q, then %q", first, second)
	}
}

// A gateway that an engine hears of and does not want is not kept.
func TestClientEarly(t *testing.T) {
	a, b, err := jail.Pair(unix.SOCK_SEQPACKET)
	if err != nil {
		t.Fatal(err)
	}
	ca, _ := jail.Conn(a)
	cb, _ := jail.Conn(b)
	defer cb.Close()
	c := NewClient(ca)
	ours := make([]*net.UnixConn, maxEarly+1)
	for n := range ours {
		x, y, err := jail.Pair(unix.SOCK_SEQPACKET)
		if err != nil {
			t.Fatal(err)
		}
		if err := send(cb, reply{Gateway: testID}, y); err != nil {
			t.Fatal(err)
		}
		y.Close()
		ours[n], _ = jail.Conn(x)
		defer ours[n].Close()
	}
	closed := func(n int) func() bool {
		return func() bool {
			ours[n].SetReadDeadline(time.Now().Add(time.Second))
			_, err := ours[n].Read(make([]byte, 1))
			return err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
		}
	}
	until(t, "the last is closed: too many wait", closed(maxEarly))
	c.Close()
	until(t, "the first is closed with the connection", closed(0))
}

// An engine that reads nothing holds up no end: neither the word of a new
// gateway nor anything else waits for it.
func TestGatewayUnheard(t *testing.T) {
	r := serve(t, Config{every: time.Millisecond}, ModeUnit)
	conn := dialTo(r.path)
	defer conn.Close()
	buf := make([]byte, maxMessage)
	ask := func(q request, files ...*os.File) (a reply, got []*os.File) {
		t.Helper()
		if err := send(conn, q, files...); err != nil {
			t.Fatal(err)
		}
		got, err := receive(conn, buf, &a)
		if err != nil || a.Err != nil {
			t.Fatalf("%s: %+v, %v", q.Op, a.Err, err)
		}
		return a, got
	}
	ask(request{Seq: 1, Op: "hello", Version: Version, Oldest: oldest})
	l := fakeLaunch(r.id())
	l.Link, l.DeadlineMS = true, time.Now().Add(5*time.Second).UnixMilli()
	spec := devNull()
	defer spec.Close()
	a, files := ask(request{Seq: 2, Op: "launch", Launch: &l}, spec)
	defer closeAll(files)
	if !a.Link || !a.Control {
		t.Fatalf("%+v", a)
	}
	// Answers that nobody reads, until none can be written any more.
	conn.SetWriteDeadline(time.Now().Add(time.Second))
	for n := uint64(3); ; n++ {
		if send(conn, request{Seq: n, Op: "list"}) != nil {
			break
		}
	}
	if _, err := files[3].WriteString("frame"); err != nil { // control, agent, upper, link
		t.Fatal(err)
	}
	h, _ := jail.FindHierarchy()
	until(t, "its deadline ends it", func() bool { return len(h.Named(groupName(l.ID))) == 0 })
	if late := time.Since(time.UnixMilli(l.DeadlineMS)); late > 4*time.Second {
		t.Errorf("%v late", late) // the patience with the engine is longer
	}
	if got := procsNamed(gatewayName); len(got) > 0 {
		t.Errorf("gateways %v", got)
	}
}
