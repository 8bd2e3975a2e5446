package sandbox_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/guest"
	"github.com/bermhq/berm/internal/sandbox"
	"github.com/bermhq/berm/internal/testkit"
)

// output follows an exec from an offset to its end.
func (r *rig) output(t *testing.T, id, exec string, offset int64, follow bool) (string, int64, api.Exec, error) {
	var out bytes.Buffer
	var gap int64
	x, err := r.Follow(t.Context(), id, exec, offset, follow, func(c api.Chunk) error {
		out.Write(c.Data)
		gap += c.Gap
		return nil
	})
	return out.String(), gap, x, err
}

// A detached command goes on by itself; its output is there for everybody, from
// any place, also after the end.
func TestSpawn(t *testing.T) {
	r, p := newDurable(t, quick)
	id := r.create(t, api.Limits{})
	ctx, cancel := context.WithCancel(t.Context())
	x, err := r.Spawn(ctx, id, api.ExecRequest{Args: []string{"cat"}, Stdin: true})
	cancel()
	if err != nil || x.State != api.ExecRunning || !x.Detached || x.Result != nil || x.ExecID == "" {
		t.Fatalf("%+v, %v", x, err)
	}
	exec := x.ExecID
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			if out, _, x, err := r.output(t, id, exec, 0, true); err != nil || out != "one\ntwo\n" || x.State != api.ExecEnded || x.Result.ExitCode != 0 {
				t.Errorf("%q, %+v, %v", out, x, err)
			}
		})
	}
	if n, err := r.WriteStdin(t.Context(), id, exec, strings.NewReader("one\n"), false); n != 4 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := r.WriteStdin(t.Context(), id, exec, strings.NewReader("two\n"), true); n != 4 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	wg.Wait()
	if out, gap, _, err := r.output(t, id, exec, 4, false); err != nil || out != "two\n" || gap != 0 {
		t.Errorf("%q, %d, %v", out, gap, err)
	}
	if _, err := r.WriteStdin(t.Context(), id, exec, strings.NewReader("x"), false); code(err) != api.CodeSandboxState {
		t.Errorf("stdin after the end: %v", err)
	}
	if err := r.SignalExec(t.Context(), id, exec, 15); code(err) != api.CodeSandboxState {
		t.Errorf("signal after the end: %v", err)
	}
	if err := r.KillExec(t.Context(), id, exec); err != nil {
		t.Errorf("kill after the end: %v", err)
	}
	if x, err := r.GetExec(t.Context(), id, exec); err != nil || x.OutputBytes != 8 || x.Result.Ending != api.EndExit {
		t.Errorf("%+v, %v", x, err)
	}
	r.exec(t, id, "true")
	l, err := r.Execs(t.Context(), id)
	if err != nil || len(l) != 2 || l[0].Args[0] != "true" || l[0].Detached || l[1].ExecID != exec {
		t.Errorf("%+v, %v", l, err)
	}
	if _, err := r.GetExec(t.Context(), id, "xnope"); code(err) != api.CodeExecNotFound {
		t.Errorf("%v", err)
	}
	if _, err := r.Follow(t.Context(), id, l[0].ExecID, 0, true, nil); code(err) != api.CodeExecConflict {
		t.Errorf("output of a plain one: %v", err)
	}
	var d struct {
		ExecID string `json:"exec_id"`
		Output int64  `json:"output_bytes"`
	}
	if ev := p.last(t, api.EventExecEnded, &d); ev.SandboxID != id {
		t.Errorf("%+v", ev)
	}
}

func TestEndsOfSpawned(t *testing.T) {
	r, _ := newDurable(t, quick)
	id := r.create(t, api.Limits{OutputBytes: 1024, Pids: 8, MemoryBytes: 64 << 20})
	for _, tt := range []struct {
		args    string
		timeout float64
		do      func(exec string) error
		ending  string
		code    int
	}{
		{"sleep 60", 0.2, nil, api.EndTimeout, 124},
		{"sleep 60", 0, func(exec string) error { return r.KillExec(t.Context(), id, exec) }, api.EndKilled, 137},
		{"sleep 60", 0, func(exec string) error { return r.SignalExec(t.Context(), id, exec, 15) }, api.EndSignal, 143},
		{"yes", 20, nil, api.EndOutput, 123},
		{"hog 1000000000", 20, nil, api.EndMemory, 137},
		{"exit 3", 20, nil, api.EndExit, 3},
		{"no-such-command", 20, nil, api.EndExit, 127},
	} {
		x, err := r.Spawn(t.Context(), id, api.ExecRequest{Args: strings.Fields(tt.args), TimeoutSeconds: tt.timeout})
		if err != nil {
			t.Fatalf("%s: %v", tt.args, err)
		}
		if tt.do != nil {
			time.Sleep(50 * time.Millisecond) // until it runs: a signal before that is lost
			if err := tt.do(x.ExecID); err != nil {
				t.Errorf("%s: %v", tt.args, err)
			}
		}
		wait(t, func() bool { x, err = r.GetExec(t.Context(), id, x.ExecID); return x.State == api.ExecEnded })
		if x.Result.Ending != tt.ending || x.Result.ExitCode != tt.code {
			t.Errorf("%s: %+v", tt.args, x.Result)
		}
	}
	if sb, err := r.Get(t.Context(), id); err != nil || sb.State != "running" {
		t.Errorf("%+v, %v", sb, err)
	}
}

// The same id is the same exec, however often and by how many it is asked for.
func TestExactlyOnce(t *testing.T) {
	r, p := newDurable(t, quick)
	id := r.create(t, api.Limits{})
	req := api.ExecRequest{Args: []string{"echo", "once"}, ExecID: api.NewID(api.KindExec)}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			var out bytes.Buffer
			res, err := r.Exec(t.Context(), id, req, sandbox.Streams{Output: func(_ sandbox.Stream, p []byte) error { out.Write(p); return nil }})
			if err != nil || res.ExitCode != 0 || res.ExecID != req.ExecID || out.String() != "once\n" {
				t.Errorf("%+v, %q, %v", res, out.String(), err)
			}
		})
	}
	wg.Wait()
	n := 0
	for _, typ := range p.types(id) {
		if typ == api.EventExecStarted {
			n++
		}
	}
	if n != 1 {
		t.Errorf("it ran %d times", n)
	}
	other := req
	other.Args = []string{"echo", "twice"}
	if _, err := r.Exec(t.Context(), id, other, sandbox.Streams{}); code(err) != api.CodeExecConflict {
		t.Errorf("another request: %v", err)
	}
	if _, err := r.Spawn(t.Context(), id, other); code(err) != api.CodeExecConflict {
		t.Errorf("another request: %v", err)
	}
	bad := req
	bad.ExecID = "x"
	if _, err := r.Exec(t.Context(), id, bad, sandbox.Streams{}); code(err) != api.CodeBadRequest {
		t.Errorf("no id: %v", err)
	}
	r.Delete(t.Context(), id)
	if res, err := r.Exec(t.Context(), id, req, sandbox.Streams{}); err != nil || res.ExitCode != 0 {
		t.Errorf("after the end: %+v, %v", res, err)
	}
}

// An exec with an id outlives a caller that comes back, and no other.
func TestComeback(t *testing.T) {
	opt := quick
	opt.Comeback = 700 * time.Millisecond
	r, _ := newDurable(t, opt)
	id := r.create(t, api.Limits{})
	// begun is a context that ends as soon as the command runs.
	begun := func(exec string) context.Context {
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			defer cancel()
			for ctx.Err() == nil {
				if x, _ := r.GetExec(ctx, id, exec); x.State == api.ExecRunning {
					return
				}
				time.Sleep(time.Millisecond)
			}
		}()
		return ctx
	}
	req := api.ExecRequest{Args: []string{"sleep", "1.4"}, ExecID: api.NewID(api.KindExec)}
	ctx := begun(req.ExecID)
	if _, err := r.Exec(ctx, id, req, sandbox.Streams{}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if res, err := r.Exec(t.Context(), id, req, sandbox.Streams{}); err != nil || res.Ending != api.EndExit {
		t.Errorf("%+v, %v", res, err)
	}
	var x api.Exec
	for { // a caller that leaves before its exec is decided leaves none behind
		req = api.ExecRequest{Args: []string{"sleep", "60"}, ExecID: api.NewID(api.KindExec)}
		r.Exec(begun(req.ExecID), id, req, sandbox.Streams{})
		if _, err := r.GetExec(t.Context(), id, req.ExecID); code(err) != api.CodeExecNotFound {
			break
		}
	}
	wait(t, func() bool { x, _ = r.GetExec(t.Context(), id, req.ExecID); return x.State == api.ExecEnded })
	if x.Result.Ending != api.EndKilled {
		t.Errorf("%+v", x.Result)
	}
}

func TestExecFields(t *testing.T) {
	r, _ := newDurable(t, quick)
	sb, err := r.Create(t.Context(), api.CreateRequest{Env: map[string]string{"A": "1", "B": "2"}})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	s := sandbox.Streams{Output: func(_ sandbox.Stream, p []byte) error { out.Write(p); return nil }}
	if _, err := r.Exec(t.Context(), sb.ID, api.ExecRequest{Args: []string{"env"}, Env: map[string]string{"B": "3"}, User: "agent", TimeoutSeconds: 300}, s); err != nil {
		t.Fatal(err)
	}
	for _, v := range []string{"A=1\n", "B=3\n", "HOME=/home/agent\n"} {
		if !strings.Contains(out.String(), v) {
			t.Errorf("no %q in %q", v, out.String())
		}
	}
	out.Reset()
	for name, do := range map[string]api.ExecRequest{"plain": {}, "kept": {ExecID: api.NewID(api.KindExec)}} {
		do.Args, do.Input = []string{"cat"}, "typed"
		out.Reset()
		if res, err := r.Exec(t.Context(), sb.ID, do, s); err != nil || res.ExitCode != 0 || out.String() != "typed" {
			t.Errorf("%s: %+v, %q, %v", name, res, out.String(), err)
		}
	}
	for name, tt := range map[string]struct {
		req  api.ExecRequest
		code string
	}{
		"root":           {api.ExecRequest{Cmd: "x", User: "root"}, api.CodeUnavailable},
		"somebody":       {api.ExecRequest{Cmd: "x", User: "bob"}, api.CodeBadRequest},
		"both":           {api.ExecRequest{Cmd: "x", Args: []string{"x"}}, api.CodeBadRequest},
		"more than life": {api.ExecRequest{Cmd: "x", TimeoutSeconds: api.DefaultTTLSeconds + 1}, api.CodeBadRequest},
	} {
		if _, err := r.Exec(t.Context(), sb.ID, tt.req, sandbox.Streams{}); code(err) != tt.code {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Only so many are remembered, and of the running ones all.
func TestManyExecs(t *testing.T) {
	r, _ := newDurable(t, quick)
	id := r.create(t, api.Limits{})
	x, err := r.Spawn(t.Context(), id, api.ExecRequest{Args: []string{"sleep", "60"}})
	if err != nil {
		t.Fatal(err)
	}
	for range 300 {
		r.exec(t, id, "true")
	}
	l, err := r.Execs(t.Context(), id)
	if err != nil || len(l) != 256 || l[255].ExecID != x.ExecID {
		t.Errorf("%d, %v", len(l), err)
	}
	if tot := r.Totals(); tot.Execs != 301 {
		t.Errorf("%+v", tot)
	}
}

// Whatever a guest does with what it keeps, no reader waits for ever, and the
// other sandboxes do not notice.
func TestHostileOutput(t *testing.T) {
	opt := quick
	opt.Listing = 200 * time.Millisecond
	r, _ := newDurable(t, opt)
	honest := r.create(t, api.Limits{})
	exit := func(s *testkit.Script, stream uint32) { replies(s, stream, guest.Exit{}) }
	for name, play := range map[string]func(s *testkit.Script){
		"never attaches": func(s *testkit.Script) { exit(s, s.Open()) },
		"silent":         func(s *testkit.Script) { s.Open() },
		"breaks off":     func(s *testkit.Script) { exit(s, s.Open()); s.Open(); s.Close() },
		"drips": func(s *testkit.Script) {
			exit(s, s.Open())
			for stream := s.Open(); s.Frame(stream, guest.KindData, nil) == nil; {
				time.Sleep(20 * time.Millisecond)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r.plays(func(s *testkit.Script) { s.Greet(); play(s) })
			id := r.create(t, api.Limits{TimeoutSeconds: 0.5})
			r.flaky.Conn = nil
			x, err := r.Spawn(t.Context(), id, api.ExecRequest{Args: []string{"x"}})
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			// One that ends with its sandbox has an end to tell instead.
			_, _, x, err = r.output(t, id, x.ExecID, 0, true)
			if as := name == "silent"; as != (err == nil) || as && x.Result.Ending != api.EndTimeout {
				t.Errorf("%+v, %v", x, err)
			}
			if d := time.Since(began); d > 5*time.Second {
				t.Errorf("took %v", d)
			}
			if _, out := r.exec(t, honest, "echo", "hi"); out != "hi\n" {
				t.Error(out)
			}
			r.Delete(t.Context(), id)
		})
	}
}
