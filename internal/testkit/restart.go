package testkit

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bermhq/berm/internal/backend"
	"github.com/bermhq/berm/internal/guest"
)

// heldAs is what a Holder says of one instance.
func heldAs(t *testing.T, be backend.Backend, id string) *backend.Held {
	t.Helper()
	h, ok := be.(backend.Holder)
	if !ok {
		t.Fatal("a backend that outlives its engine must be a Holder")
	}
	all, err := h.Held(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n := slices.IndexFunc(all, func(h backend.Held) bool { return h.ID == id }); n >= 0 {
		return &all[n]
	}
	return nil
}

// An engine that dies in the middle of whatever leaves an instance that the
// next one can use.
func testRestart(t *testing.T, b *bench) {
	if b.Restart == nil {
		t.Skip("instances end with the engine")
	}
	s := b.spec()
	s.Deadline, s.Extend = time.Now().Add(time.Hour), true
	i, c := b.start(t, s)
	dir := b.command(t, "true").Dir
	if err := c.WriteFile(t.Context(), dir+"/mark", 0o644, b.UID, b.GID, strings.NewReader("mine")); err != nil {
		t.Fatal(err)
	}
	for round := range 3 {
		c.Close()
		// It attached, was answered and did not read it, and was cut off in a frame.
		conn, err := i.Agent(t.Context())
		if err != nil {
			t.Fatalf("Agent again: %v", err)
		}
		hello := guest.Hello{Version: guest.Version}
		epoch := uint32(0x01010100 + round)
		m := guest.AppendMarker(nil, epoch, 0x0101010101010101)
		m = guest.AppendFrame(m, epoch, 0, guest.KindHello, hello.Append(nil))
		half := guest.AppendFrame(nil, epoch, 1, guest.KindOpen, make([]byte, 4096))
		if _, err := conn.Write(append(m, half[:len(half)/2]...)); err != nil {
			t.Fatal(err)
		}
		b.be = b.Restart(t, b.be)
		conn.Close()

		if h := heldAs(t, b.be, s.ID); h == nil || h.Ended || h.Paused || h.Deadline.Sub(s.Deadline).Abs() > time.Second {
			t.Fatalf("held: %+v", h)
		}
		if i, err = b.be.Attach(t.Context(), i.Handle()); err != nil {
			t.Fatalf("Attach: %v", err)
		}
		t.Cleanup(func() { b.stop(t, i) })
		if conn, err = i.Agent(t.Context()); err != nil {
			t.Fatalf("Agent: %v", err)
		}
		c = guest.New(conn, guest.Options{})
		t.Cleanup(func() { c.Close() })
		if _, err := c.Stat(t.Context(), dir+"/mark"); err != nil {
			t.Fatalf("Stat: %v", err)
		}
		if out, x := run(t, c, b.command(t, "echo", "on")); out != "on\n" || x.Code != 0 {
			t.Fatalf("round %d: %q, %+v", round, out, x)
		}
		if m, ok := i.(backend.Meter); ok {
			if _, err := m.Usage(); err != nil {
				t.Errorf("Usage: %v", err)
			}
		}
	}
	at := time.Now().Add(slowly(300 * time.Millisecond))
	if err := i.(backend.Deadliner).SetDeadline(t.Context(), at); err != nil {
		t.Fatal(err)
	}
	endsAt(t, i, at)
	if h := heldAs(t, b.be, s.ID); h == nil || !h.Ended || h.Exit.Cause != "deadline" {
		t.Errorf("after its end it is held as %+v", h)
	}
	if err := b.be.(backend.Holder).Forget(t.Context(), s.ID); err != nil {
		t.Fatal(err)
	}
	if h := heldAs(t, b.be, s.ID); h != nil {
		t.Errorf("forgotten, and still held as %+v", h)
	}
}

// What ends while there is no engine is told to the next one.
func testRestartEnded(t *testing.T, b *bench) {
	if b.Restart == nil {
		t.Skip("instances end with the engine")
	}
	s := b.spec()
	i, c := b.start(t, s)
	if _, err := c.Hello(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.Close()
	if err := i.(backend.Deadliner).SetDeadline(t.Context(), time.Now().Add(slowly(300*time.Millisecond))); err != nil {
		t.Fatal(err)
	}
	b.be = b.Restart(t, b.be)
	ctx, cancel := context.WithTimeout(t.Context(), caseTime)
	defer cancel()
	for {
		if h := heldAs(t, b.be, s.ID); h == nil {
			t.Fatal("it is not known")
		} else if h.Ended {
			if h.Exit.Cause != "deadline" {
				t.Errorf("it ended as %+v", h)
			}
			break
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			t.Fatal("its deadline does not hold without an engine")
		}
	}
	if _, err := b.be.Attach(ctx, i.Handle()); !errors.Is(err, backend.ErrGone) {
		t.Errorf("Attach: %v", err)
	}
}

// What was bound to an engine ends with it, also a paused one, and nobody has to
// ask for that; what was not goes on.
func testRestartBound(t *testing.T, b *bench) {
	if b.Restart == nil {
		t.Skip("instances end with the engine")
	}
	free, _ := b.start(t, b.spec())
	var bound []string
	for n := range 2 {
		s := b.spec()
		s.Deadline, s.Extend, s.Bound = time.Now().Add(time.Hour), true, true
		i, c := b.start(t, s)
		if _, err := c.Hello(t.Context()); err != nil {
			t.Fatal(err)
		}
		if p, ok := i.(backend.Pauser); ok && n > 0 {
			if err := p.Pause(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		bound = append(bound, s.ID)
	}
	b.be = b.Restart(t, b.be)
	died := time.Now()
	for _, id := range bound {
		h := heldAs(t, b.be, id)
		for ; h != nil && !h.Ended && time.Since(died) < caseTime; h = heldAs(t, b.be, id) {
			time.Sleep(10 * time.Millisecond)
		}
		if took := time.Since(died); h == nil || h.Exit.Cause != "owner" || took > slowly(2*time.Second) {
			t.Errorf("after %v it is held as %+v", took, h)
		}
	}
	if h := heldAs(t, b.be, free.Handle().ID); h == nil || h.Ended {
		t.Errorf("what was not bound is held as %+v", h)
	}
}

func testRestartPaused(t *testing.T, b *bench) {
	if b.Restart == nil {
		t.Skip("instances end with the engine")
	}
	i, p, c := b.pauser(t)
	if err := p.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.be = b.Restart(t, b.be)
	c.Close()
	if h := heldAs(t, b.be, i.Handle().ID); h == nil || !h.Paused {
		t.Fatalf("held: %+v", h)
	}
	i, err := b.be.Attach(t.Context(), i.Handle())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.stop(t, i) })
	conn, err := i.Agent(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c = guest.New(conn, guest.Options{})
	t.Cleanup(func() { c.Close() })
	done := still(t, c, b.command(t, "true"))
	if err := i.(backend.Pauser).Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	answers(t, done)
}

// stop stops an instance when a test ends, through the engine that lives then.
func (b *bench) stop(t *testing.T, i backend.Instance) {
	ctx, cancel := context.WithTimeout(context.Background(), caseTime)
	defer cancel()
	if b.Restart != nil {
		var err error
		if i, err = b.be.Attach(ctx, i.Handle()); errors.Is(err, backend.ErrGone) {
			return
		} else if err != nil {
			t.Errorf("Attach: %v", err)
			return
		}
	}
	if err := i.Stop(ctx); err != nil {
		t.Errorf("Stop: %v", err)
	}
}
