package testkit

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bermhq/berm/internal/backend"
	"github.com/bermhq/berm/internal/guest"
)

// A Link is how the suite sees the far ends of links.
type Link struct {
	Told chan Gateway          // what the backend was told of
	PIDs func(id string) []int // gateways of an instance that run on this host
	Open func() int            // descriptors of the process that holds the host's ends
}

// A Gateway is one that was started for an instance.
type Gateway struct {
	ID     string
	Broker *net.UnixConn
}

// linked starts an instance with a link, that nobody else is told of.
func (b *bench) linked(t *testing.T) (backend.Instance, *guest.Client) {
	t.Helper()
	if b.Link == nil {
		t.Skip("instances have no link")
	}
	t.Cleanup(func() { // after the instance
		for {
			select {
			case g := <-b.Link.Told:
				g.Broker.Close()
			default:
				return
			}
		}
	})
	s := b.spec()
	s.Link = true
	return b.start(t, s)
}

// told waits for the gateway of an instance.
func (b *bench) told(t *testing.T, id string) Gateway {
	t.Helper()
	select {
	case g := <-b.Link.Told:
		t.Cleanup(func() { g.Broker.Close() })
		if g.ID != id {
			t.Errorf("a gateway of %q, want %q", g.ID, id)
		}
		return g
	case <-time.After(caseTime):
		t.Fatal("no gateway was started")
		return Gateway{}
	}
}

// untold fails if there is a gateway that nobody has asked for.
func (b *bench) untold(t *testing.T) {
	t.Helper()
	select {
	case g := <-b.Link.Told:
		g.Broker.Close()
		t.Error("another gateway was started")
	default:
	}
}

// one is the only gateway of an instance.
func (b *bench) one(t *testing.T, id string) int {
	t.Helper()
	pids := b.Link.PIDs(id)
	if len(pids) != 1 {
		t.Fatalf("gateways %v", pids)
	}
	return pids[0]
}

// none waits until an instance has no gateway.
func (b *bench) none(t *testing.T, id string) {
	t.Helper()
	for end := time.Now().Add(caseTime); len(b.Link.PIDs(id)) > 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the gateway does not end")
		}
	}
}

// shell runs a line of bash, whose /dev/udp needs no other program.
func (b *bench) shell(t *testing.T, c *guest.Client, line string) string {
	t.Helper()
	out, x := run(t, c, b.command(t, "bash", "-c", line))
	if x.Code != 0 || x.NotStarted != "" {
		t.Fatalf("bash -c %q: %+v", line, x)
	}
	return out
}

// knock has the guest send a frame.
func (b *bench) knock(t *testing.T, c *guest.Client) {
	t.Helper()
	b.shell(t, c, "echo x >/dev/udp/192.0.0.1/9")
}

// interfaces are the names in /proc/net/dev.
func interfaces(dev string) (out []string) {
	for line := range strings.Lines(dev) {
		if name, _, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			out = append(out, name)
		}
	}
	return out
}

func testNoLink(t *testing.T, b *bench) {
	if b.Link == nil {
		t.Skip("instances have no link")
	}
	i, c := b.start(t, b.spec())
	if got := interfaces(b.shell(t, c, "cat /proc/net/dev")); !slices.Equal(got, []string{"lo"}) {
		t.Errorf("interfaces %q", got)
	}
	if out := b.shell(t, c, "cat /proc/net/if_inet6"); strings.Contains(out, "eth") {
		t.Errorf("addresses %q", out)
	}
	if out := b.shell(t, c, "(echo x >/dev/udp/192.0.0.1/9) 2>&1 || true"); !strings.Contains(out, "unreachable") {
		t.Errorf("a way out: %q", out)
	}
	b.untold(t)
	if got := b.Link.PIDs(i.Handle().ID); len(got) > 0 {
		t.Errorf("gateways %v", got)
	}
}

func testLink(t *testing.T, b *bench) {
	i, c := b.linked(t)
	id := i.Handle().ID
	if got := slices.Sorted(slices.Values(interfaces(b.shell(t, c, "cat /proc/net/dev")))); !slices.Equal(got, []string{"eth0", "lo"}) {
		t.Errorf("interfaces %q", got)
	}
	if out := b.shell(t, c, "cat /proc/net/if_inet6"); !strings.Contains(out, "fd6265726d0000000000000000000002") {
		t.Errorf("IPv6 addresses %q", out)
	}
	// A socket that is connected has the address that it would send from.
	if out := b.shell(t, c, "exec 3<>/dev/udp/192.0.0.1/9; cat /proc/net/udp"); !strings.Contains(out, "020000C0:") {
		t.Errorf("IPv4 address in %q", out)
	}
	if out := b.shell(t, c, "exec 3<>/dev/udp/8.8.8.8/9; exec 4<>/dev/udp/2001:db8::1/9; cat /etc/resolv.conf"); !strings.HasPrefix(out, "nameserver 192.0.0.1\n") {
		t.Errorf("resolv.conf %q", out)
	}
	b.untold(t)
	if got := b.Link.PIDs(id); len(got) > 0 {
		t.Errorf("gateways %v before the first frame", got)
	}

	b.knock(t, c)
	b.told(t, id)
	first := b.one(t, id)
	for range 3 {
		b.knock(t, c)
	}
	if again := b.one(t, id); again != first {
		t.Errorf("gateway %d, was %d", again, first)
	}
	b.untold(t)

	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	b.none(t, id)
	b.knock(t, c)
	b.told(t, id)
	if second := b.one(t, id); second == first {
		t.Error("what was killed is there")
	}
	if out, x := run(t, c, b.command(t, "echo", "on")); out != "on\n" || x.Code != 0 {
		t.Errorf("%q, %+v", out, x)
	}
}

// Whatever the end of an instance, its gateway is gone with it.
func testLinkEnds(t *testing.T, b *bench) {
	for _, how := range []string{"stop", "deadline"} {
		t.Run(how, func(t *testing.T) {
			i, c := b.linked(t)
			id := i.Handle().ID
			b.knock(t, c)
			b.told(t, id)
			pid := b.one(t, id)
			uid := uidOf(pid)
			if uid == 0 || !leased(uid) {
				t.Errorf("the gateway's uid is %d, and leased is %v", uid, leased(uid))
			}
			ctx, cancel := context.WithTimeout(t.Context(), caseTime)
			defer cancel()
			if how == "stop" {
				if err := i.Stop(ctx); err != nil {
					t.Fatal(err)
				}
			} else {
				if err := i.(backend.Deadliner).SetDeadline(ctx, time.Now()); err != nil {
					t.Fatal(err)
				}
				if x, err := i.Wait(ctx); err != nil || x.Cause != "deadline" {
					t.Errorf("Wait = %+v, %v", x, err)
				}
			}
			if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
				t.Errorf("the gateway is there: %v", err)
			}
			if leased(uid) {
				t.Errorf("uid %d is still leased", uid)
			}
		})
	}
}

// uidOf is the host uid of a process.
func uidOf(pid int) (uid int) {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(b)) {
		fmt.Sscanf(line, "Uid: %d", &uid)
	}
	return uid
}

// leased says whether somebody holds a uid for a sandbox.
func leased(uid int) bool {
	b, _ := os.ReadFile("/proc/net/unix")
	return strings.Contains(string(b), fmt.Sprintf("@berm-uid-%d\n", uid))
}

// Quick rounds leave no descriptor behind, whether a gateway was there, was on
// its way, or never.
func testLinkRounds(t *testing.T, b *bench) {
	if b.Link == nil {
		t.Skip("instances have no link")
	}
	var before int
	for n := range either(30, 3) {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			i, c := b.linked(t)
			if n%3 > 0 {
				b.knock(t, c)
			}
			if n%3 > 1 {
				b.told(t, i.Handle().ID)
			}
		})
		if n == 2 { // all kinds have been
			before = b.Link.Open()
		}
	}
	skipSlow(t, "the other rounds", "three of 30 rounds")
	now := b.Link.Open()
	for end := time.Now().Add(caseTime); now > before && time.Now().Before(end); now = b.Link.Open() {
		time.Sleep(10 * time.Millisecond)
	}
	if now > before {
		t.Errorf("%d descriptors, %d before", now, before)
	}
}

func testLinkPaused(t *testing.T, b *bench) {
	i, c := b.linked(t)
	p, ok := i.(backend.Pauser)
	if !ok {
		t.Skip("cannot be paused")
	}
	b.knock(t, c)
	b.told(t, i.Handle().ID)
	pid := b.one(t, i.Handle().ID)
	for range 2 {
		if err := p.Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := p.Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	b.knock(t, c)
	if again := b.one(t, i.Handle().ID); again != pid {
		t.Errorf("gateway %d, was %d", again, pid)
	}
	b.untold(t)
}

// A gateway ends with the engine that serves it, and the next one serves others.
func testRestartLink(t *testing.T, b *bench) {
	if b.Restart == nil {
		t.Skip("instances end with the engine")
	}
	i, c := b.linked(t)
	id := i.Handle().ID
	for range 2 {
		b.knock(t, c)
		b.told(t, id)
		pid := b.one(t, id)
		b.be = b.Restart(t, b.be)
		c.Close()
		for end := time.Now().Add(caseTime); !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("the gateway outlives its engine")
			}
		}
		var err error
		if i, err = b.be.Attach(t.Context(), i.Handle()); err != nil {
			t.Fatal(err)
		}
		conn, err := i.Agent(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		c = guest.New(conn, guest.Options{})
		t.Cleanup(func() { c.Close() })
	}
	b.knock(t, c)
	b.told(t, id)
	b.one(t, id)
}
