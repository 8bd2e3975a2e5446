package store

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/audit"
)

// The test binary is also the process that TestKill kills.
func TestMain(m *testing.M) {
	if dir := os.Getenv("BERM_STORE_TEST_CHILD"); dir != "" {
		child(dir)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// child writes as fast as it can, and says on stdout what was acknowledged.
func child(dir string) {
	s, err := Open(dir, Options{SegmentBytes: 64 << 10, MaxBytes: 16 << 20})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	var out sync.Mutex
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for i := 0; ; i++ {
				id := api.NewID(api.KindEvent)
				e := event("exec.started", "", fmt.Sprintf(`{"worker":%d,"i":%d}`, worker, i))
				e.ID = id
				if err := s.Append(context.Background(), e); err != nil {
					fmt.Fprintln(os.Stderr, err)
					return
				}
				head := s.Head()
				key := fmt.Sprintf("k%d", worker)
				if i%16 == 0 {
					if err := s.Bucket("b").Put(key, i); err != nil {
						fmt.Fprintln(os.Stderr, err)
						return
					}
				}
				_ = s.Note(event("exec.ended", "", ""))
				line, _ := json.Marshal(said{ID: id, Head: head, Key: key, I: i - i%16})
				out.Lock()
				os.Stdout.Write(append(line, '\n'))
				out.Unlock()
			}
		})
	}
	wg.Wait()
}

type said struct {
	ID   string
	Head api.Head
	Key  string
	I    int
}

// TestKill kills a process that writes, many times over one directory: what it
// said to be on disk is there, and the log verifies against the last head that
// it told.
func TestKill(t *testing.T) {
	dir := t.TempDir()
	rounds := 6
	if os.Getenv("BERM_PROOF") != "" {
		rounds = 100
	}
	ids := map[string]bool{}
	var head api.Head
	for round := range rounds {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "BERM_STORE_TEST_CHILD="+dir)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		pipe, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewReader(pipe)
		values := map[string]int{}
		killed := false
		for n := 0; ; n++ {
			if n == 100+37*round%400 {
				killed = true
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
			line, err := lines.ReadBytes('\n')
			if err != nil {
				break
			}
			var s said
			if err := json.Unmarshal(line, &s); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			ids[s.ID] = true
			values[s.Key] = max(values[s.Key], s.I)
			if s.Head.Seq > head.Seq {
				head = s.Head
			}
		}
		_ = cmd.Wait()
		if !killed {
			t.Fatalf("the child ended by itself: %s", &stderr)
		}
		s, err := Open(dir, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if v, err := s.Verify(context.Background(), &head); err != nil || !v.OK {
			t.Fatalf("round %d: %+v, %v", round, v, err)
		}
		seen := map[string]bool{}
		for _, e := range all(t, s.log, Query{Types: []string{"exec.started"}, Limit: MaxEvents}) {
			seen[e.ID] = true
		}
		for id := range ids {
			if !seen[id] {
				t.Fatalf("round %d: %s was acknowledged and is lost", round, id)
			}
		}
		for key, least := range values {
			var v int
			if ok, err := s.Bucket("b").Get(key, &v); err != nil || !ok || v < least {
				t.Fatalf("round %d: %s is %d (%v, %v), %d was acknowledged", round, key, v, ok, err, least)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d events acknowledged over %d kills", len(ids), rounds)
}

func mustOpen(t *testing.T, dir string, o Options) *Store {
	t.Helper()
	s, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// TestDescriptor: a directory that is only known by its descriptor will do.
func TestDescriptor(t *testing.T) {
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	path := fmt.Sprintf("/proc/self/fd/%d", dir.Fd())
	s := mustOpen(t, path, Options{})
	if err := s.Append(context.Background(), event("a.b", "", "")); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path, Options{}); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("opened twice: %v", err)
	}
	for _, name := range []string{"lock", "state.db", "audit/000001.log", "audit/key", "audit/reserve"} {
		info, err := os.Stat(filepath.Join(dir.Name(), name))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Append(context.Background(), event("a.b", "", "")); err == nil {
		t.Error("append to a closed store")
	}
	mustOpen(t, path, Options{})
}

// TestOutside: an export is checked without the store, and what somebody does
// to the files shows.
func TestOutside(t *testing.T) {
	dir := t.TempDir()
	ctx := context.Background()
	s := mustOpen(t, dir, Options{SegmentBytes: 2 << 10, MaxBytes: 512 << 10})
	for i := range 40 {
		if err := s.Append(ctx, event("a.b", "s", fmt.Sprintf(`{"i":%d}`, i))); err != nil {
			t.Fatal(err)
		}
	}
	head := s.Head()
	var out bytes.Buffer
	if err := s.Export(ctx, &out); err != nil {
		t.Fatal(err)
	}
	if v, err := audit.Verify(&out, &head); err != nil || !v.OK || v.TailUnproven {
		t.Errorf("%+v, %v", v, err)
	}
	gone, stop := context.WithCancel(ctx)
	stop()
	if err := s.Export(gone, io.Discard); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	name := filepath.Join(dir, "audit", "000003.log")
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func() error{
		"a byte":       func() error { c := bytes.Clone(data); c[len(c)/2] ^= 1; return os.WriteFile(name, c, 0o600) },
		"cut":          func() error { return os.Truncate(name, int64(len(data)/2)) },
		"more at last": func() error { return os.WriteFile(name, append(bytes.Clone(data), "{}\n"...), 0o600) },
		"gone":         func() error { return os.Remove(name) },
	} {
		if err := change(); err != nil {
			t.Fatal(err)
		}
		if v, err := s.Verify(ctx, &head); err != nil || v.OK {
			t.Errorf("%s: %+v, %v", what, v, err)
		}
		var e *api.Error
		if _, err := s.Report(ctx, "default", "s"); what == "gone" && (!errors.As(err, &e) || e.Code != api.CodeAuditFailed) {
			t.Errorf("a report without a file that is gone: %v", err)
		}
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if v, err := s.Verify(ctx, &head); err != nil || !v.OK {
		t.Errorf("%+v, %v", v, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func() error{
		"a segment is gone": func() error { return os.Remove(name) },
		"the key is gone":   func() error { return os.Remove(filepath.Join(dir, "audit", "key")) },
	} {
		key, _ := os.ReadFile(filepath.Join(dir, "audit", "key"))
		if err := change(); err != nil {
			t.Fatal(err)
		}
		var e *api.Error
		if _, err := Open(dir, Options{}); !errors.As(err, &e) || e.Hint == "" {
			t.Errorf("%s: %v", what, err)
		}
		if err := errors.Join(os.WriteFile(name, data, 0o600), os.WriteFile(filepath.Join(dir, "audit", "key"), key, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTorn: the end of a record that is not whole is cut off, kept beside the
// log, and that is in the log.
func TestTorn(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, Options{})
	if err := s.Append(context.Background(), event("a.b", "s", "")); err != nil {
		t.Fatal(err)
	}
	head := s.Head()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "audit", "000001.log"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"prev":"torn`); err != nil {
		t.Fatal(err)
	}
	f.Close()
	s = mustOpen(t, dir, Options{})
	got, _, err := s.Events(Query{Types: []string{api.EventAuditRepaired}})
	if err != nil || len(got) != 1 || !strings.Contains(string(got[0].Data), `"bytes":13`) {
		t.Errorf("%+v, %v", got, err)
	}
	if cut, err := os.ReadFile(filepath.Join(dir, "audit", "cut")); err != nil || string(cut) != `{"prev":"torn` {
		t.Errorf("%q, %v", cut, err)
	}
	if v, err := s.Verify(context.Background(), &head); err != nil || !v.OK {
		t.Errorf("%+v, %v", v, err)
	}
}

func TestWait(t *testing.T) {
	s := mustOpen(t, t.TempDir(), Options{})
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	after := s.Head().Seq
	got := make(chan error, 1)
	go func() { got <- s.Wait(ctx, after) }()
	if err := s.Append(ctx, event("a.b", "", "")); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Fatal(err)
	}
	short, stop := context.WithCancel(ctx)
	go func() { got <- s.Wait(short, after+1) }()
	stop()
	if err := <-got; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	go func() { got <- s.Wait(ctx, after+1) }()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err == nil {
		t.Error("a follower of a closed store waits on")
	}
}

func TestState(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, Options{})
	b := s.Bucket("sandboxes")
	type rec struct{ A, B int }
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			if err := b.Put(fmt.Sprintf("k%03d", i), rec{i, 1}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	var r rec
	if ok, err := b.Get("k007", &r); !ok || err != nil || r.A != 7 {
		t.Error(ok, err, r)
	}
	if ok, err := b.Get("none", &r); ok || err != nil {
		t.Error(ok, err)
	}
	if ok, err := s.Bucket("none").Get("none", &r); ok || err != nil {
		t.Error(ok, err)
	}
	if err := errors.Join(b.Delete("k008"), b.Delete("none"), s.Bucket("none").Delete("x"), b.Delete("")); err != nil {
		t.Error(err)
	}
	if b.Put("", 1) == nil || b.Put("x", make(chan int)) == nil || b.Put("x", strings.Repeat("x", maxRecord)) == nil {
		t.Error("taken")
	}
	won := make(chan bool, 50)
	for range cap(won) { // one of all changes it
		wg.Go(func() {
			ok, err := b.CompareAndSet("k007", rec{7, 1}, rec{7, 2})
			if err != nil {
				t.Error(err)
			}
			won <- ok
		})
	}
	wg.Wait()
	close(won)
	n := 0
	for ok := range won {
		if ok {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d of %d won", n, cap(won))
	}
	if ok, err := b.CompareAndSet("new", nil, 1); !ok || err != nil {
		t.Error(ok, err)
	}
	if ok, err := b.CompareAndSet("new", nil, 2); ok || err != nil {
		t.Error(ok, err)
	}
	if ok, err := b.CompareAndSet("new", 1, nil); !ok || err != nil {
		t.Error(ok, err)
	}
	// After a failure the database is opened again.
	s.state.reset()
	if err := b.Put("again", 1); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := b.Put("x", 1); err == nil {
		t.Error("put into a closed store")
	}
	s = mustOpen(t, dir, Options{})
	var keys []string
	err := s.Bucket("sandboxes").Each(func(key string, value json.RawMessage) error {
		keys = append(keys, key)
		return nil
	})
	if err != nil || len(keys) != 200 || keys[0] != "again" || keys[1] != "k000" {
		t.Error(len(keys), keys[:2], err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "state.db"), bytes.Repeat([]byte("x"), 64<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, Options{}); err == nil {
		t.Error("a damaged database is opened")
	}
}

func TestReport(t *testing.T) {
	s := mustOpen(t, t.TempDir(), Options{})
	ctx := context.Background()
	e := func(kind, data string) api.Event {
		return api.Event{Type: kind, Tenant: "acme", Actor: "t1", SandboxID: "s1", RunID: "r1", Session: "day 1",
			Tags: map[string]string{"run_id": "my run", "session": "day 1"}, Data: json.RawMessage(data)}
	}
	other := e("exec.started", `{"exec_id":"x9","args":["r1"]}`)
	other.SandboxID, other.RunID, other.Session, other.Tags = "s2", "r2", "r1 no", nil
	foreign := e("exec.started", `{"exec_id":"x8"}`)
	foreign.Tenant = "other"
	err := s.Append(ctx, e("sandbox.created", `{"template":"base","template_resolved":"host","isolation":"gvisor","boundary":"user-kernel","limits":{"pids":5},"ttl_seconds":60}`),
		e("sandbox.started", ""), e("exec.started", `{"exec_id":"x1","args":["true"],"cwd":"/workspace","user":"agent","timeout_seconds":3}`), other, foreign,
		e("exec.ended", `{"exec_id":"x1","exit_code":3,"ending":"exit","caps_hit":["output"],"output_bytes":7,"timings_ms":{"exec":1.5}}`),
		e("exec.started", `{"exec_id":"x2","args":"not a list"}`),
		e("file.written", `{"path":"/a","bytes":3,"sha256":"ab"}`), e("file.read", `{"path":"/b","bytes":4}`),
		e("cap.hit", `{"cap":"disk","exec_id":"x1"}`), e("access.denied", `{"target":"POST /x","reason":"role"}`), e("access.denied", `{"target":"POST /x","count":5}`),
		e("egress.allowed", `{"kind":"dns","target":"example.com","verdict":"allowed"}`),
		e("egress.allowed", `{"kind":"tls","target":"example.com:443","verdict":"allowed","egress_bytes":5}`), e("egress.allowed", `{"kind":"tls","target":"example.com:443","verdict":"allowed"}`),
		e("egress.denied", `{"kind":"tcp","target":"192.0.2.1:22","verdict":"denied","reason":"no-rule","text":"nothing allows it","fix":"192.0.2.1:22"}`), e("egress.denied", `{"kind":"tcp","target":"192.0.2.1:22","reason":"no-rule","text":"nothing allows it","count":9}`),
		e("egress.denied", `{"kind":"dns","target":"192.0.2.1:22","verdict":"denied","reason":"no-rule"}`),
		e("sandbox.ended", `{"ending":"killed","caps_hit":["disk"],"usage":{"cpu_seconds":1.5,"pids_peak":4,"egress_bytes":9,"ingress_bytes":8}}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, subject := range []string{"s1", "r1", "day 1", "my run"} {
		r, err := s.Report(ctx, "acme", subject)
		if err != nil {
			t.Fatal(subject, err)
		}
		switch {
		case r.Sandbox.SandboxID != "s1" || r.Sandbox.Template != "base" || r.Sandbox.Limits.Pids != 5 || r.Sandbox.State != "ended" || r.Sandbox.Ending != "killed",
			r.Ending != "killed" || fmt.Sprint(r.CapsHit) != "[output disk]" || r.Usage.PidsPeak != 4 || r.Usage.EgressBytes != 9 || r.Usage.IngressBytes != 8 || r.Events != 17,
			len(r.Commands) != 2 || r.Commands[0].Result == nil || r.Commands[0].Result.ExitCode != 3 || r.Commands[0].OutputBytes != 7 || r.Commands[1].State != api.ExecRunning,
			len(r.FilesIn) != 1 || r.FilesIn[0].SHA256 != "ab" || len(r.FilesOut) != 1 || r.FilesOut[0].Bytes != 4,
			len(r.Denied) != 3 || r.Denied[0].Target != "POST /x" || r.Denied[1] != (api.Denial{Kind: "egress", Target: "192.0.2.1:22", Rule: "end", Reason: "nothing allows it", Code: "no-rule", Fix: "192.0.2.1:22"}) || r.Denied[2].Reason != "no-rule",
			fmt.Sprint(r.Hosts) != "[example.com:443]":
			raw, _ := json.MarshalIndent(r, "", " ")
			t.Errorf("%s: %s", subject, raw)
		}
	}
	for _, c := range [][2]string{{"other", "r9"}, {"nobody", "s1"}, {"acme", ""}, {"acme", "x1"}, {"acme", strings.Repeat("x", 5000)}} {
		var e *api.Error
		if _, err := s.Report(ctx, c[0], c[1]); !errors.As(err, &e) || e.Code != api.CodeSandboxNotFound {
			t.Errorf("%q: %v", c, err)
		}
	}
}

func BenchmarkAppend(b *testing.B) {
	for _, callers := range []int{1, 16, 100} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			s, err := Open(b.TempDir(), Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			e := event("exec.started", "", `{"exec_id":"x0123456789","args":["python3","-c","print(1)"],"cwd":"/workspace","timeout_seconds":30}`)
			b.ResetTimer()
			var wg sync.WaitGroup
			next := make(chan struct{}, b.N)
			for range b.N {
				next <- struct{}{}
			}
			close(next)
			for range callers {
				wg.Go(func() {
					for range next {
						if err := s.Append(context.Background(), e); err != nil {
							b.Error(err)
						}
					}
				})
			}
			wg.Wait()
		})
	}
}
