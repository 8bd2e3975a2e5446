package testkit

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/bermhq/berm/internal/backend"
	"github.com/bermhq/berm/internal/guest"
)

// pauser starts an instance that can be paused.
func (b *bench) pauser(t *testing.T) (backend.Instance, backend.Pauser, *guest.Client) {
	t.Helper()
	i, c := b.start(t, b.spec())
	p, ok := i.(backend.Pauser)
	if !ok {
		t.Skip("cannot be paused")
	}
	if _, err := c.Hello(t.Context()); err != nil {
		t.Fatal(err)
	}
	return i, p, c
}

// still fails if the guest answers within a moment.
func still(t *testing.T, c *guest.Client, cmd guest.Start) (answered <-chan struct{}) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		p, err := c.Start(t.Context(), cmd)
		if err != nil {
			return
		}
		for {
			if _, _, err := p.Read(t.Context()); err != nil {
				if err != io.EOF {
					t.Errorf("a command that came while it was paused: %v", err)
				}
				return
			}
		}
	}()
	select {
	case <-done:
		t.Error("a paused guest answers")
	case <-time.After(200 * time.Millisecond):
	}
	return done
}

func answers(t *testing.T, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(caseTime):
		t.Fatal("it does not go on")
	}
}

func testPause(t *testing.T, b *bench) {
	_, p, c := b.pauser(t)
	for round := range 3 {
		for range 2 { // the second is no error
			if err := p.Pause(t.Context()); err != nil {
				t.Fatalf("Pause %d: %v", round, err)
			}
		}
		done := still(t, c, b.command(t, "true"))
		for range 2 {
			if err := p.Resume(t.Context()); err != nil {
				t.Fatalf("Resume %d: %v", round, err)
			}
		}
		answers(t, done)
	}
	if out, x := run(t, c, b.command(t, "echo", "after")); out != "after\n" || x.Code != 0 {
		t.Errorf("afterwards: %q, %+v", out, x)
	}
}

// Whatever runs inside, a paused instance uses no processor, and goes on.
func testPauseBusy(t *testing.T, b *bench) {
	for name, script := range map[string][]string{
		"spin":    {"sh", "-c", "while :; do :; done"},
		"tree":    {"sh", "-c", "f() { while :; do /bin/true; done; }; f & f & f & wait"},
		"threads": {"python3", "-c", "import threading\ndef f():\n  while True: pass\nfor _ in range(8): threading.Thread(target=f).start()"},
	} {
		t.Run(name, func(t *testing.T) {
			if slowness() > 1 && name != "spin" {
				t.Skip("this machine is emulated (BERM_SLOW): one kind of work is enough")
			}
			cmd := b.command(t, name)
			if _, ok := b.Commands[name]; !ok {
				cmd.Args = script
			}
			i, p, c := b.pauser(t)
			m, ok := i.(backend.Meter)
			if !ok {
				t.Skip("has no meter")
			}
			if u, err := m.Usage(); err != nil || u.CPU == 0 {
				t.Skipf("its meter does not tell time (%v)", err)
			}
			proc, err := c.Start(t.Context(), cmd)
			if err != nil {
				t.Fatal(err)
			}
			spent := func() time.Duration {
				u, err := m.Usage()
				if err != nil {
					t.Fatal(err)
				}
				return u.CPU
			}
			grows := func() {
				t.Helper()
				from := spent()
				for end := time.Now().Add(caseTime); spent() < from+50*time.Millisecond; time.Sleep(10 * time.Millisecond) {
					if time.Now().After(end) {
						t.Fatal("it does nothing")
					}
				}
			}
			for round := range either(3, 1) {
				grows()
				began := time.Now()
				if err := p.Pause(t.Context()); err != nil {
					t.Fatalf("Pause %d: %v", round, err)
				}
				took := time.Since(began)
				from := spent()
				time.Sleep(300 * time.Millisecond)
				if used := spent() - from; used > slowly(either(2*time.Millisecond, 4*time.Millisecond)) { // what it used before may be booked late
					t.Errorf("round %d: paused in %v, it used %v", round, took, used)
				}
				if err := p.Resume(t.Context()); err != nil {
					t.Fatalf("Resume %d: %v", round, err)
				}
			}
			grows()
			ctx, cancel := context.WithTimeout(t.Context(), caseTime)
			defer cancel()
			if err := proc.Kill(ctx); err != nil {
				t.Errorf("Kill: %v", err)
			}
		})
	}
}

func testPauseStop(t *testing.T, b *bench) {
	i, p, _ := b.pauser(t)
	if err := p.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), slowly(5*time.Second))
	defer cancel()
	if err := i.Stop(ctx); err != nil {
		t.Fatalf("Stop: %v", err)
	}
	if x, err := i.Wait(ctx); err != nil || x.Cause != "stopped" {
		t.Errorf("Wait = %+v, %v", x, err)
	}
	if err := p.Resume(ctx); err == nil {
		t.Error("Resume after the end: no error")
	}
}

func testPauseDeadline(t *testing.T, b *bench) {
	i, p, _ := b.pauser(t)
	d, ok := i.(backend.Deadliner)
	if !ok {
		t.Skip("its deadline cannot be moved")
	}
	at := time.Now().Add(slowly(500 * time.Millisecond))
	if err := d.SetDeadline(t.Context(), at); err != nil {
		t.Fatal(err)
	}
	if err := p.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	endsAt(t, i, at)
}
