package testkit

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/bermhq/berm/internal/backend"
)

func testStop(t *testing.T, b *bench) {
	i, c := b.start(t, b.spec())
	if _, err := c.Hello(t.Context()); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := i.Wait(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Wait on a live instance: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), caseTime)
	defer cancel()
	waits := make(chan backend.Exit, 2)
	for range 2 {
		go func() {
			x, err := i.Wait(ctx)
			if err != nil {
				t.Errorf("Wait: %v", err)
			}
			waits <- x
		}()
	}
	for n := range 3 {
		if err := i.Stop(ctx); err != nil {
			t.Fatalf("Stop %d: %v", n+1, err)
		}
	}
	for range 2 {
		if x := <-waits; x.Cause != "stopped" {
			t.Errorf("exit = %+v", x)
		}
	}
	select {
	case <-c.Done():
	case <-time.After(slowly(5 * time.Second)):
		t.Error("the stream outlives the instance")
	}
}

func testStopBusy(t *testing.T, b *bench) {
	i, c := b.start(t, b.spec())
	p, err := c.Start(t.Context(), b.command(t, "sleep", "60"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), caseTime)
	defer cancel()
	began := time.Now()
	if err := i.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(began); d > slowly(5*time.Second) {
		t.Errorf("Stop took %v", d)
	}
	for {
		if _, _, err := p.Read(ctx); err != nil {
			break // the end of the stream, or of the process: both are an end
		}
	}
}

func testAttach(t *testing.T, b *bench) {
	i, c := b.start(t, b.spec())
	if _, err := c.Hello(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), caseTime)
	defer cancel()
	again, err := b.be.Attach(ctx, i.Handle())
	if err != nil {
		t.Fatalf("Attach: %v", err)
	}
	if again.Handle() != i.Handle() {
		t.Errorf("handle = %+v, want %+v", again.Handle(), i.Handle())
	}
	if err := again.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := i.Wait(ctx); err != nil {
		t.Errorf("Wait: %v", err)
	}
	if _, err := b.be.Attach(ctx, i.Handle()); !errors.Is(err, backend.ErrGone) {
		t.Errorf("Attach after the end: %v", err)
	}
}

func testDeadline(t *testing.T, b *bench) {
	s := b.spec()
	s.Deadline = time.Now().Add(slowly(either(700*time.Millisecond, 1500*time.Millisecond)))
	i, _ := b.start(t, s)
	ctx, cancel := context.WithTimeout(t.Context(), slowly(10*time.Second))
	defer cancel()
	x, err := i.Wait(ctx)
	if err != nil || x.Cause != "deadline" {
		t.Errorf("Wait = %+v, %v", x, err)
	}
	if late := time.Since(s.Deadline); late > slowly(2*time.Second) {
		t.Errorf("ended %v late", late)
	}
}

// mover starts an instance whose deadline can be moved.
func (b *bench) mover(t *testing.T, s backend.Spec) (backend.Instance, backend.Deadliner) {
	t.Helper()
	i, c := b.start(t, s)
	d, ok := i.(backend.Deadliner)
	if !ok {
		t.Skip("its deadline cannot be moved")
	}
	if _, err := c.Hello(t.Context()); err != nil {
		t.Fatal(err)
	}
	return i, d
}

// endsAt fails unless the instance ends by its deadline, at about t.
func endsAt(t *testing.T, i backend.Instance, at time.Time) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), slowly(10*time.Second))
	defer cancel()
	x, err := i.Wait(ctx)
	if err != nil || x.Cause != "deadline" {
		t.Errorf("Wait = %+v, %v", x, err)
	}
	if late := time.Since(at); late < -50*time.Millisecond || late > slowly(2*time.Second) {
		t.Errorf("ended %v after its deadline", late)
	}
}

func testDeadlineMoves(t *testing.T, b *bench) {
	i, d := b.mover(t, b.spec())
	var at time.Time
	for _, in := range []time.Duration{slowly(500 * time.Millisecond), time.Hour, 0, slowly(400 * time.Millisecond)} {
		if at = time.Now().Add(in); in == 0 {
			at = time.Time{} // the Spec's own, which is never
		}
		if err := d.SetDeadline(t.Context(), at); err != nil {
			t.Fatalf("SetDeadline in %v: %v", in, err)
		}
		if in != time.Hour && in != 0 {
			continue
		}
		short, cancel := context.WithTimeout(t.Context(), either(700*time.Millisecond, 12*time.Second))
		if x, err := i.Wait(short); err == nil {
			t.Fatalf("ended in spite of its new deadline: %+v", x)
		}
		cancel()
	}
	endsAt(t, i, at)
	if err := d.SetDeadline(t.Context(), time.Now().Add(time.Hour)); err == nil {
		t.Error("SetDeadline after the end: no error")
	}
}

func testDeadlineBound(t *testing.T, b *bench) {
	s := b.spec()
	s.Deadline = time.Now().Add(slowly(either(3*time.Second, 1500*time.Millisecond)))
	i, d := b.mover(t, s)
	if err := d.SetDeadline(t.Context(), s.Deadline.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	endsAt(t, i, s.Deadline)
	i, d = b.mover(t, b.spec())
	at := time.Now().Add(-time.Second)
	if err := d.SetDeadline(t.Context(), at); err != nil {
		t.Fatal(err)
	}
	endsAt(t, i, at.Add(time.Second))
}

func testCancelled(t *testing.T, b *bench) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := b.spec()
	if i, err := b.be.Start(ctx, s); err == nil {
		i.Stop(t.Context())
		t.Fatal("Start under a context that has ended")
	}
	if _, err := b.be.Attach(t.Context(), backend.Handle{Backend: b.be.Info().Name, ID: s.ID}); !errors.Is(err, backend.ErrGone) {
		t.Errorf("Attach: %v", err)
	}
}

func testUsage(t *testing.T, b *bench) {
	i, c := b.start(t, b.spec())
	m, ok := i.(backend.Meter)
	if !ok {
		t.Skip("has no meter")
	}
	if _, err := c.Hello(t.Context()); err != nil {
		t.Fatal(err)
	}
	u, err := m.Usage()
	if err != nil || u.MemoryBytes < 0 || u.DiskBytes < 0 || u.CPU < 0 || u.OOMKills != 0 || u.TaskFails != 0 {
		t.Errorf("Usage = %+v, %v", u, err)
	}
	if err := i.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after, err := m.Usage(); err == nil && after.CPU < u.CPU {
		t.Errorf("after the end: %+v, before: %+v", after, u)
	}
}
