package sandbox_test

import (
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/guest"
	"github.com/bermhq/berm/internal/sandbox"
	"github.com/bermhq/berm/internal/testkit"
)

// What a command leaves running ends before the answer, or the sandbox does.
func TestEndAll(t *testing.T) {
	for _, tt := range []struct {
		name       string
		endAll     bool
		background bool
		answer     func(s *testkit.Script, stream uint32)
		asked      bool
		state      string
	}{
		{"not asked for", false, true, nil, false, "running"},
		{"nothing is left", true, false, nil, false, "running"},
		{"it ends", true, true, func(s *testkit.Script, stream uint32) {
			k := guest.KillReply{Killed: 1}
			rep := guest.Reply{Body: k.Append(nil)}
			s.Frame(stream, guest.KindReply, rep.Append(nil))
		}, true, "running"},
		{"some resist", true, true, func(s *testkit.Script, stream uint32) {
			k := guest.KillReply{Killed: 1, Left: 1}
			rep := guest.Reply{Body: k.Append(nil)}
			s.Frame(stream, guest.KindReply, rep.Append(nil))
		}, true, "ended"},
		{"no answer", true, true, func(*testkit.Script, uint32) {}, true, "ended"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			opt := quick
			opt.EndAll = 200 * time.Millisecond
			r := newRig(t, opt)
			var asked atomic.Bool
			r.plays(func(s *testkit.Script) {
				s.Greet()
				replies(s, s.Open(), guest.Exit{Code: 3, Background: tt.background})
				if stream := s.Open(); stream != 0 {
					asked.Store(true)
					if tt.answer != nil {
						tt.answer(s, stream)
					}
				}
			})
			id := r.create(t, api.Limits{})
			res, err := r.Exec(t.Context(), id, api.ExecRequest{Args: []string{"x"}, EndAll: tt.endAll}, sandbox.Streams{})
			if err != nil || res.Ending != api.EndExit || res.ExitCode != 3 {
				t.Errorf("exec = %+v, %v", res, err)
			}
			if sb, err := r.Get(t.Context(), id); err != nil || sb.State != tt.state || asked.Load() != tt.asked {
				t.Errorf("state %q, %v; asked %v", sb.State, err, asked.Load())
			}
		})
	}
}

// Whoever does not read cannot hold an exec beyond its time, nor the sandbox.
func TestNeverRead(t *testing.T) {
	for _, tt := range []struct {
		name, cmd, ending string
		end               func(r *rig, id string)
		reason            bool
	}{
		{"timeout", "yes", api.EndTimeout, nil, true},
		{"had ended by itself", "echo hi", api.EndExit, nil, true},
		{"delete", "yes", api.EndKilled, func(r *rig, id string) { r.Delete(t.Context(), id) }, true},
		{"death", "yes", api.EndMemory, func(r *rig, id string) { r.mem.Crash(id, api.CapMemory) }, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			opt := quick
			opt.Drain = 100 * time.Millisecond
			r := newRig(t, opt)
			limits := api.Limits{TimeoutSeconds: 0.3}
			if tt.end != nil {
				limits.TimeoutSeconds = 60
			}
			id := r.create(t, limits)
			if tt.end != nil {
				time.AfterFunc(200*time.Millisecond, func() { tt.end(r, id) })
			}
			never := make(chan struct{})
			defer close(never)
			began := time.Now()
			res, err := r.Exec(t.Context(), id, api.ExecRequest{Args: strings.Fields(tt.cmd)}, sandbox.Streams{
				Output: func(sandbox.Stream, []byte) error { <-never; return io.ErrClosedPipe },
			})
			if err != nil || res.Ending != tt.ending || (res.Reason != "") != tt.reason {
				t.Errorf("exec = %+v, %v", res, err)
			}
			if d := time.Since(began); d > 2*time.Second {
				t.Errorf("took %v", d)
			}
			if _, err := r.Delete(t.Context(), id); err != nil {
				t.Errorf("Delete: %v", err)
			}
		})
	}
}

// A slow reader gets all of it as long as the program's time is not over.
func TestLateReader(t *testing.T) {
	opt := quick
	opt.Drain = 50 * time.Millisecond
	r := newRig(t, opt)
	id := r.create(t, api.Limits{TimeoutSeconds: 20})
	got := 0
	res, err := r.Exec(t.Context(), id, api.ExecRequest{Args: []string{"echo", strings.Repeat("x", 200_000)}}, sandbox.Streams{
		Output: func(_ sandbox.Stream, p []byte) error { time.Sleep(150 * time.Millisecond); got += len(p); return nil },
	})
	if err != nil || res.Ending != api.EndExit || got != 200_001 || res.Reason != "" {
		t.Errorf("exec = %+v, %v; %d bytes", res, err, got)
	}
}

// The host holds the deadline of what runs, the latest of several, and the
// sandbox's own again afterwards.
func TestHostDeadline(t *testing.T) {
	r := newRig(t, sandbox.Options{})
	var moves []time.Time
	var fail error
	seen := make(chan struct{}, 16)
	r.flaky.Deadline = func(at time.Time) error { moves = append(moves, at); seen <- struct{}{}; return fail }
	sb, err := r.Create(t.Context(), api.CreateRequest{RunID: api.NewID(api.KindRun), Limits: api.Limits{TimeoutSeconds: 60}})
	if err != nil {
		t.Fatal(err)
	}
	id := sb.SandboxID
	for sb.TimingsMS["boot"] == 0 { // until the guest is up
		time.Sleep(5 * time.Millisecond)
		if sb, err = r.Get(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(20 * time.Millisecond)
	in := func(i int, d time.Duration) {
		t.Helper()
		if i >= len(moves) {
			t.Fatalf("%d moves", len(moves))
		}
		if off := time.Until(moves[i]) - d; off < -5*time.Second || off > time.Second {
			t.Errorf("move %d is %v off", i, off)
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Exec(t.Context(), id, api.ExecRequest{Args: []string{"sleep", "0.5"}, TimeoutSeconds: 40}, sandbox.Streams{})
	}()
	<-seen
	r.Exec(t.Context(), id, api.ExecRequest{Args: []string{"true"}, TimeoutSeconds: 20}, sandbox.Streams{})
	<-done
	if len(moves) != 4 {
		t.Fatalf("%d moves", len(moves))
	}
	in(0, 45*time.Second)
	in(1, 45*time.Second) // the longer one decides
	in(2, 45*time.Second)
	in(3, 11*time.Minute) // as it was created
	fail = testkit.ErrFault
	var ae *api.Error
	if _, err := r.Exec(t.Context(), id, api.ExecRequest{Args: []string{"true"}}, sandbox.Streams{}); !errors.As(err, &ae) || ae.Code != api.CodeHostFailure {
		t.Errorf("exec without a deadline: %v", err)
	}
	fail = nil
}

// One byte now and then is no progress, and many calls are no way around it.
func TestDrippingGuest(t *testing.T) {
	opt := quick
	opt.Listing = 300 * time.Millisecond
	r := newRig(t, opt)
	r.plays(func(s *testkit.Script) {
		s.Greet()
		for stream := s.Open(); stream != 0; stream = s.Open() {
			for s.Frame(stream, guest.KindData, []byte("x")) == nil {
				time.Sleep(100 * time.Millisecond) // less than a stall
			}
		}
	})
	id := r.create(t, api.Limits{})
	began := time.Now()
	var ae *api.Error
	f, err := r.ReadFile(t.Context(), id, "x", 1<<20)
	if err == nil {
		_, err = io.Copy(io.Discard, f)
		f.Close()
	}
	if !errors.As(err, &ae) || ae.Code != api.CodeGuestSilent {
		t.Errorf("read: %v", err)
	}
	for range 30 {
		if f, err := r.ReadFile(t.Context(), id, "x", 1<<20); err == nil {
			io.Copy(io.Discard, f)
			f.Close()
		}
	}
	if _, err := r.Glob(t.Context(), id, "*"); err == nil {
		t.Error("glob: no error")
	}
	if d := time.Since(began); d > 10*time.Second || d < 900*time.Millisecond {
		t.Errorf("took %v", d)
	}
}

// Before the guest is up the host leaves room for its boot, and then no more.
func TestHostDeadlineTightens(t *testing.T) {
	r := newRig(t, quick)
	moves := make(chan time.Duration, 16)
	r.flaky.Deadline = func(at time.Time) error { moves <- time.Until(at); return nil }
	r.flaky.Conn = testkit.Slow(8, 5*time.Millisecond) // the greeting takes a while
	id := r.create(t, api.Limits{TimeoutSeconds: 30})
	r.exec(t, id, "sleep", "0.2")
	close(moves)
	for i, want := range []time.Duration{35*time.Second + quick.Boot, 35 * time.Second} {
		if got := <-moves; got > want || got < want-300*time.Millisecond {
			t.Errorf("move %d: in %v, want %v", i, got, want)
		}
	}
}
