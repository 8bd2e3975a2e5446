package sandbox_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/backend"
	"github.com/bermhq/berm/internal/backend/mem"
	"github.com/bermhq/berm/internal/egress"
	"github.com/bermhq/berm/internal/sandbox"
	"github.com/bermhq/berm/internal/testkit"
)

// rig is an engine over the fake, which can be broken.
type rig struct {
	*sandbox.Engine
	mem   *mem.Backend
	flaky *testkit.Flaky
	t     *testing.T
	pen   *pen // nil without a journal

	broker *atomic.Pointer[egress.Broker] // of the engine that is there now
}

func newRig(t *testing.T, opt sandbox.Options) *rig {
	testkit.NoLeak(t)
	return newRigBeside(t, opt)
}

// newRigBeside is newRig for tests that run beside others.
func newRigBeside(t *testing.T, opt sandbox.Options) *rig {
	broker := &atomic.Pointer[egress.Broker]{}
	broker.Store(opt.Egress)
	b := mem.New(mem.Options{Name: "gvisor", Boundary: api.BoundaryUserKernel, Dir: t.TempDir(), Gateway: func(id string, c *net.UnixConn) {
		go broker.Load().Serve(id, c)
	}})
	f := &testkit.Flaky{Backend: b}
	r := &rig{Engine: sandbox.New([]backend.Backend{f}, opt), mem: b, flaky: f, t: t, broker: broker}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if r.pen != nil && r.pen.dead.Load() {
			return // what it had is another's
		}
		if err := r.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
		if n := b.Live(); n != 0 {
			t.Errorf("%d instances are left", n)
		}
	})
	return r
}

// quick makes an engine that does not wait long for what never comes.
var quick = sandbox.Options{Boot: 400 * time.Millisecond, Grace: 50 * time.Millisecond, Settle: 50 * time.Millisecond, Stall: 300 * time.Millisecond, Sample: 5 * time.Millisecond}

func (r *rig) create(t *testing.T, l api.Limits) string {
	t.Helper()
	sb, err := r.Create(t.Context(), api.CreateRequest{Limits: l})
	if err != nil {
		t.Fatalf("Create: %v", err)
	}
	return sb.SandboxID
}

func (r *rig) exec(t *testing.T, id string, args ...string) (api.ExecResult, string) {
	t.Helper()
	var out bytes.Buffer
	res, err := r.Exec(t.Context(), id, api.ExecRequest{Args: args}, sandbox.Streams{
		Output: func(_ sandbox.Stream, p []byte) error { out.Write(p); return nil },
	})
	if err != nil {
		t.Fatalf("Exec: %v", err)
	}
	return res, out.String()
}

func TestExec(t *testing.T) {
	r := newRig(t, sandbox.Options{})
	id := r.create(t, api.Limits{})
	for _, tt := range []struct {
		args []string
		code int
		out  string
	}{
		{[]string{"true"}, 0, ""},
		{[]string{"false"}, 1, ""},
		{[]string{"echo", "hi"}, 0, "hi\n"},
		{[]string{"no-such-command"}, 127, ""},
	} {
		res, out := r.exec(t, id, tt.args...)
		if res.Ending != api.EndExit || res.ExitCode != tt.code || out != tt.out || len(res.CapsHit) != 0 || !api.ValidID(res.ExecID) {
			t.Errorf("%q: %+v, out %q", tt.args, res, out)
		}
		if (res.NotStarted != "") != (tt.code == 127) {
			t.Errorf("%q: not started: %q", tt.args, res.NotStarted)
		}
	}
	end, err := r.Delete(t.Context(), id)
	if err != nil || end.Ending != api.EndKilled || end.SandboxID != id {
		t.Errorf("Delete = %+v, %v", end, err)
	}
	again, err := r.Delete(t.Context(), id)
	if err != nil || again.Ending != end.Ending {
		t.Errorf("Delete again = %+v, %v", again, err)
	}
	if sb, err := r.Get(t.Context(), id); err != nil || sb.State != "ended" {
		t.Errorf("Get = %+v, %v", sb, err)
	}
	var ae *api.Error
	if _, err := r.Exec(t.Context(), id, api.ExecRequest{Args: []string{"true"}}, sandbox.Streams{}); !errors.As(err, &ae) || ae.Code != api.CodeSandboxEnded {
		t.Errorf("Exec after the end: %v", err)
	}
	if _, err := r.Get(t.Context(), "nope"); !errors.As(err, &ae) || ae.Code != api.CodeSandboxNotFound {
		t.Errorf("Get of nothing: %v", err)
	}
}

// What ends a sandbox from outside while a command runs decides its ending.
func TestOuterEndings(t *testing.T) {
	for _, tt := range []struct {
		cause string
		usage backend.Usage
		want  string
		code  int
		caps  []string
	}{
		{cause: api.CapMemory, want: api.EndMemory, code: 137, caps: []string{"memory"}},
		{cause: api.CapProcesses, want: api.EndProcesses, code: 123, caps: []string{"processes"}},
		{cause: "deadline", want: api.EndTimeout, code: 124, caps: []string{"timeout"}},
		{cause: "stopped", want: api.EndKilled, code: 137, caps: []string{}},
		{cause: "", want: api.EndHostFailure, code: 125, caps: []string{}},
		{cause: "", usage: backend.Usage{OOMKills: 1}, want: api.EndMemory, code: 137, caps: []string{"memory"}},
		{cause: "", usage: backend.Usage{TaskFails: 3}, want: api.EndProcesses, code: 123, caps: []string{"processes"}},
	} {
		t.Run(tt.cause+"/"+tt.want, func(t *testing.T) {
			r := newRig(t, sandbox.Options{Sample: time.Hour})
			var mu sync.Mutex
			var usage backend.Usage
			r.flaky.Usage = func() (backend.Usage, error) { mu.Lock(); defer mu.Unlock(); return usage, nil }
			id := r.create(t, api.Limits{})
			go func() {
				time.Sleep(100 * time.Millisecond)
				mu.Lock()
				usage = tt.usage
				mu.Unlock()
				r.mem.Crash(id, tt.cause)
			}()
			res, _ := r.exec(t, id, "sleep", "60")
			if res.Ending != tt.want || res.ExitCode != tt.code || !slices.Equal(res.CapsHit, tt.caps) {
				t.Errorf("exec = %+v", res)
			}
			if end, err := r.Delete(t.Context(), id); err != nil || end.Ending != tt.want || !slices.Equal(end.CapsHit, tt.caps) {
				t.Errorf("end = %+v, %v", end, err)
			}
		})
	}
}

func TestSampledCaps(t *testing.T) {
	r := newRig(t, quick)
	n := 0
	r.flaky.Usage = func() (backend.Usage, error) {
		n++ // full for a moment only
		u := backend.Usage{DiskBytes: 1 << 20, MemoryPeak: 5 << 20, CPU: time.Second}
		if n == 3 {
			u.DiskBytes = 64<<20 - 4096
		}
		return u, nil
	}
	id := r.create(t, api.Limits{DiskBytes: 64 << 20})
	res, _ := r.exec(t, id, "sleep", "0.2")
	if res.Ending != api.EndExit || !slices.Equal(res.CapsHit, []string{"disk"}) {
		t.Errorf("exec = %+v", res)
	}
	if res, _ := r.exec(t, id, "true"); len(res.CapsHit) != 0 {
		t.Errorf("the next exec = %+v", res)
	}
	end, _ := r.Delete(t.Context(), id)
	if !slices.Equal(end.CapsHit, []string{"disk"}) || end.Usage.DiskPeakBytes != 64<<20-4096 || end.Usage.MemoryPeakBytes != 5<<20 || end.Usage.CPUSeconds != 1 {
		t.Errorf("end = %+v", end)
	}
}

// What the guest's own watcher ended, and what it saw.
func TestInnerEndings(t *testing.T) {
	r := newRig(t, sandbox.Options{})
	id := r.create(t, api.Limits{MemoryBytes: 64 << 20, Pids: 8, OutputBytes: 1024})
	for _, tt := range []struct {
		args   string
		ending string
		code   int
		caps   []string
	}{
		{"hog 1000000000", api.EndMemory, 137, []string{"memory"}},
		{"forks 100", api.EndProcesses, 123, []string{"processes"}},
		{"fill", api.EndExit, 1, []string{"disk"}},
		{"yes", api.EndOutput, 123, []string{"output"}},
		{"exit 124", api.EndExit, 124, []string{}},
		{"exit 137", api.EndExit, 137, []string{}},
	} {
		res, out := r.exec(t, id, strings.Fields(tt.args)...)
		if res.Ending != tt.ending || res.ExitCode != tt.code || !slices.Equal(res.CapsHit, tt.caps) {
			t.Errorf("%s: %+v", tt.args, res)
		}
		if tt.ending == api.EndOutput && len(out) != api.FloodFactor*1024 {
			t.Errorf("%s: %d bytes came out", tt.args, len(out))
		}
	}
	end, err := r.Delete(t.Context(), id)
	if err != nil || !slices.Equal(end.CapsHit, []string{"memory", "processes", "disk", "output"}) || end.Usage.PidsPeak != 8 {
		t.Errorf("end = %+v, %v", end, err)
	}
}

func TestTimeout(t *testing.T) {
	r := newRig(t, sandbox.Options{})
	id := r.create(t, api.Limits{TimeoutSeconds: 0.2})
	began := time.Now()
	res, _ := r.exec(t, id, "sleep", "60")
	if res.Ending != api.EndTimeout || res.ExitCode != 124 || !slices.Equal(res.CapsHit, []string{"timeout"}) {
		t.Errorf("exec = %+v", res)
	}
	if d := time.Since(began); d > 2*time.Second {
		t.Errorf("took %v", d)
	}
	// The agent killed it, so the sandbox lives.
	if res, out := r.exec(t, id, "echo", "alive"); out != "alive\n" || res.ExitCode != 0 {
		t.Errorf("next = %+v %q", res, out)
	}
	if _, err := r.Exec(t.Context(), id, api.ExecRequest{Args: []string{"true"}, TimeoutSeconds: 5}, sandbox.Streams{}); err == nil {
		t.Error("an exec may not have more time than its sandbox")
	}
}

func TestClientGoesAway(t *testing.T) {
	r := newRig(t, sandbox.Options{})
	id := r.create(t, api.Limits{})
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	res, err := r.Exec(ctx, id, api.ExecRequest{Args: []string{"sleep", "60"}}, sandbox.Streams{})
	if err != nil || res.Ending != api.EndKilled || res.ExitCode != 137 {
		t.Errorf("exec = %+v, %v", res, err)
	}
	// One that no longer takes the output is gone too.
	in := make(chan sandbox.Input, 1)
	in <- sandbox.Input{Stdin: []byte("x\n")}
	res, err = r.Exec(t.Context(), id, api.ExecRequest{Args: []string{"cat"}, Stdin: true}, sandbox.Streams{
		Input:  in,
		Output: func(sandbox.Stream, []byte) error { return io.ErrClosedPipe },
	})
	if err != nil || res.Ending != api.EndKilled {
		t.Errorf("exec = %+v, %v", res, err)
	}
}

// A reader that stalls does not hold up the end of the program's time.
func TestSlowReader(t *testing.T) {
	r := newRig(t, sandbox.Options{})
	id := r.create(t, api.Limits{TimeoutSeconds: 0.3})
	in := make(chan sandbox.Input)
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		for {
			select {
			case in <- sandbox.Input{Stdin: bytes.Repeat([]byte("x"), 32<<10)}:
			case <-stop:
				return
			}
		}
	}()
	release := make(chan struct{})
	time.AfterFunc(time.Second, func() { close(release) })
	began := time.Now()
	res, err := r.Exec(t.Context(), id, api.ExecRequest{Args: []string{"cat"}, Stdin: true}, sandbox.Streams{
		Input:  in,
		Output: func(sandbox.Stream, []byte) error { <-release; return nil },
	})
	if err != nil || res.Ending != api.EndTimeout {
		t.Errorf("exec = %+v, %v", res, err)
	}
	if d := time.Since(began); d > 4*time.Second {
		t.Errorf("took %v", d)
	}
}

func TestBadRequests(t *testing.T) {
	r := newRig(t, sandbox.Options{})
	id := r.create(t, api.Limits{})
	for name, req := range map[string]api.ExecRequest{
		"no command":    {},
		"empty command": {Args: []string{""}},
		"zero":          {Args: []string{"a\x00"}},
		"env name":      {Args: []string{"true"}, Env: map[string]string{"A=B": "x"}},
		"relative dir":  {Args: []string{"true"}, Dir: "x"},
		"long":          {Args: []string{"echo", strings.Repeat("x", 1<<20)}},
		"time":          {Args: []string{"true"}, TimeoutSeconds: -3},
	} {
		var ae *api.Error
		if _, err := r.Exec(t.Context(), id, req, sandbox.Streams{}); !errors.As(err, &ae) || ae.Code != api.CodeBadRequest {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, tt := range map[string]struct {
		req  api.CreateRequest
		code string
	}{
		"isolation": {api.CreateRequest{Isolation: "vm"}, api.CodeUnknownIsolation},
		"template":  {api.CreateRequest{Template: "../etc"}, api.CodeTemplateNotFound},
		"limit":     {api.CreateRequest{Limits: api.Limits{Pids: -5}}, api.CodeLimitInvalid},
		"run":       {api.CreateRequest{RunID: "x"}, api.CodeBadRequest},
		"tags":      {api.CreateRequest{Tags: map[string]string{"": ""}}, api.CodeBadRequest},
	} {
		var ae *api.Error
		if _, err := r.Create(t.Context(), tt.req); !errors.As(err, &ae) || ae.Code != tt.code {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAutoNeverTakesLess(t *testing.T) {
	testkit.NoLeak(t)
	e := sandbox.New([]backend.Backend{mem.New(mem.Options{})}, sandbox.Options{})
	var ae *api.Error
	if _, err := e.Create(t.Context(), api.CreateRequest{}); !errors.As(err, &ae) || ae.Code != api.CodeRungUnavailable {
		t.Errorf("auto: %v", err)
	}
	sb, err := e.Create(t.Context(), api.CreateRequest{Isolation: "mem"})
	if err != nil || sb.Boundary != "none" {
		t.Errorf("by name: %+v, %v", sb, err)
	}
	e.Close(t.Context())
}

func TestHammer(t *testing.T) {
	r := newRig(t, sandbox.Options{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 10 {
				id := r.create(t, api.Limits{})
				var inner sync.WaitGroup
				for range 3 {
					inner.Go(func() {
						res, err := r.Exec(t.Context(), id, api.ExecRequest{Args: []string{"echo", "x"}}, sandbox.Streams{})
						if err == nil && res.Ending != api.EndExit && res.Ending != api.EndKilled {
							t.Errorf("exec = %+v", res)
						}
					})
				}
				inner.Go(func() { r.Get(t.Context(), id); r.Delete(t.Context(), id) })
				inner.Wait()
			}
		})
	}
	wg.Wait()
}
