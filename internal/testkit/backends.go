package testkit

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/backend"
	"github.com/bermhq/berm/internal/guest"
)

// A Suite says how to test one backend. New and Image are required where the
// backend needs an image.
type Suite struct {
	New   func(t *testing.T) backend.Backend
	Image string
	// Upper and Track are those of each instance, see backend.Spec.
	Upper []string
	Track bool
	// Layers is what is in them: a file of the top one, a file that the top one
	// hides, and a directory of which the top one hides all but one file.
	Layers *Layers
	// Limits of each instance; the zero value is the defaults.
	Limits api.Limits
	// Dir is a writable folder inside.
	Dir string
	// UID and GID run the commands.
	UID, GID uint32
	// Commands replaces commands, as "sleep": {"busybox", "sleep"}; an empty list
	// says that the image has none, and its cases are skipped. The suite uses
	// true, false, echo, cat, sleep, env, exit3, which exits with 3, and spin, tree
	// and threads, which do nothing but work, in one loop, in ever new processes,
	// and in threads.
	Commands map[string][]string
	// Restart is the sudden death of the process that a backend is in, and the
	// backend of the next one; nil: its instances end with it.
	Restart func(t *testing.T, dead backend.Backend) backend.Backend
	// Link is set where instances can have a link.
	Link *Link
	// Leaks is called after each case, when all instances are stopped, and
	// says what is left on the host.
	Leaks func(t *testing.T) []string
}

// Backends runs the conformance suite.
func Backends(t *testing.T, s Suite) {
	for _, c := range []struct {
		name string
		run  func(*testing.T, *bench)
	}{
		{"hello", testHello},
		{"exit codes", testExitCodes},
		{"pipelined start", testPipelined},
		{"output", testOutput},
		{"stdin", testStdin},
		{"environment is only what was passed", testEnv},
		{"not found", testNotFound},
		{"kill", testKill},
		{"files", testFiles},
		{"changes", testChanges},
		{"changes of everything", testChangesAll},
		{"layers", testLayers},
		{"root", testRoot},
		{"caps of root", testRootCaps},
		{"instances do not share files", testApart},
		{"a kept command", testKept},
		{"watch", testWatch},
		{"ports", testPorts},
		{"stop is idempotent and ends waits", testStop},
		{"stop while a command runs", testStopBusy},
		{"attach", testAttach},
		{"deadline", testDeadline},
		{"a deadline moves", testDeadlineMoves},
		{"no deadline is past the last", testDeadlineBound},
		{"cancelled start leaves nothing", testCancelled},
		{"usage", testUsage},
		{"pause", testPause},
		{"a paused one uses no processor", testPauseBusy},
		{"stop while paused", testPauseStop},
		{"deadline while paused", testPauseDeadline},
		{"attach after the engine died", testRestart},
		{"an end that no engine heard", testRestartEnded},
		{"paused when the engine died", testRestartPaused},
		{"bound to the engine that died", testRestartBound},
		{"no link", testNoLink},
		{"a link", testLink},
		{"the end of a link", testLinkEnds},
		{"many links", testLinkRounds},
		{"a link of a paused one", testLinkPaused},
		{"a link when the engine died", testRestartLink},
	} {
		t.Run(c.name, func(t *testing.T) {
			NoLeak(t)
			if s.Leaks != nil {
				t.Cleanup(func() {
					left := s.Leaks(t)
					for end := time.Now().Add(slowly(5 * time.Second)); len(left) > 0 && time.Now().Before(end); left = s.Leaks(t) {
						time.Sleep(10 * time.Millisecond) // what nobody waited for may be under way
					}
					for _, l := range left {
						t.Errorf("left on the host: %s", l)
					}
				})
			}
			c.run(t, &bench{Suite: s, be: s.New(t)})
		})
	}
}

// A bench is a backend on test.
type bench struct {
	Suite
	be backend.Backend
}

var caseTime = slowly(30 * time.Second)

func (b *bench) spec() backend.Spec {
	return backend.Spec{ID: api.NewID(api.KindSandbox), Image: b.Image, Upper: b.Upper, Track: b.Track, Hostname: "berm", Limits: b.limits()}
}

// limits are those of each instance. Tests fill disks, and a slow machine has a
// small one.
func (b *bench) limits() api.Limits {
	l := b.Limits
	if l.DiskBytes == 0 && slowness() > 1 {
		l.DiskBytes = 64 << 20
	}
	return l.WithDefaults()
}

// start starts an instance that is stopped when the test ends.
func (b *bench) start(t *testing.T, s backend.Spec) (backend.Instance, *guest.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), caseTime)
	t.Cleanup(cancel)
	i, err := b.be.Start(ctx, s)
	if err != nil {
		t.Fatalf("Start: %v", err)
	}
	t.Cleanup(func() { b.stop(t, i) })
	conn, err := i.Agent(ctx)
	if err != nil {
		t.Fatalf("Agent: %v", err)
	}
	c := guest.New(conn, guest.Options{})
	t.Cleanup(func() { c.Close() })
	return i, c
}

func (b *bench) command(t *testing.T, name string, args ...string) guest.Start {
	cmd := []string{name}
	if name == "exit3" {
		cmd = []string{"sh", "-c", "exit 3"}
	}
	if c, ok := b.Commands[name]; ok {
		if len(c) == 0 {
			t.Skipf("this image has no %s", name)
		}
		cmd = c
	}
	dir := b.Dir
	if dir == "" {
		dir = api.Workspace
	}
	return guest.Start{
		ID: api.NewID(api.KindExec), Args: append(slices.Clone(cmd), args...), Dir: dir, UID: b.UID, GID: b.GID,
		Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin", "BERM_TEST=1"},
	}
}

// finish reads a process to its end.
func finish(t *testing.T, p *guest.Process) (stdout, stderr string, exit guest.Exit) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), caseTime)
	defer cancel()
	var out, errs bytes.Buffer
	for {
		s, chunk, err := p.Read(ctx)
		if err == io.EOF {
			return out.String(), errs.String(), p.Exit()
		}
		if err != nil {
			t.Fatalf("Read: %v", err)
		}
		if s == guest.Stderr {
			errs.Write(chunk)
		} else {
			out.Write(chunk)
		}
	}
}

func run(t *testing.T, c *guest.Client, s guest.Start) (stdout string, exit guest.Exit) {
	t.Helper()
	p, err := c.Start(t.Context(), s)
	if err != nil {
		t.Fatalf("Start %v: %v", s.Args, err)
	}
	stdout, _, exit = finish(t, p)
	return stdout, exit
}

func testHello(t *testing.T, b *bench) {
	_, c := b.start(t, b.spec())
	h, err := c.Hello(t.Context())
	if err != nil || h.Version == 0 {
		t.Errorf("Hello = %+v, %v", h, err)
	}
	if info := b.be.Info(); info.Name == "" || info.Boundary == "" {
		t.Errorf("Info = %+v", info)
	}
}

func testExitCodes(t *testing.T, b *bench) {
	_, c := b.start(t, b.spec())
	for name, want := range map[string]int{"true": 0, "false": 1} {
		if _, x := run(t, c, b.command(t, name)); x.Code != want || x.Signal != 0 || x.NotStarted != "" {
			t.Errorf("%s: %+v, want %d", name, x, want)
		}
	}
	t.Run("own", func(t *testing.T) {
		if _, x := run(t, c, b.command(t, "exit3")); x.Code != 3 {
			t.Errorf("exit 3: %+v", x)
		}
	})
}

func testPipelined(t *testing.T, b *bench) {
	_, c := b.start(t, b.spec())
	p, err := c.Start(t.Context(), b.command(t, "echo", "early")) // nobody said hello yet
	if err != nil {
		t.Fatal(err)
	}
	if out, _, x := finish(t, p); out != "early\n" || x.Code != 0 {
		t.Errorf("out = %q, %+v", out, x)
	}
}

func testOutput(t *testing.T, b *bench) {
	_, c := b.start(t, b.spec())
	long := strings.Repeat("0123456789abcdef", 2048) // more than a frame of some, less than an argument may have
	if out, _ := run(t, c, b.command(t, "echo", long)); out != long+"\n" {
		t.Errorf("%d bytes came, want %d", len(out), len(long)+1)
	}
}

func testStdin(t *testing.T, b *bench) {
	_, c := b.start(t, b.spec())
	s := b.command(t, "cat")
	s.Stdin = true
	p, err := c.Start(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	in := strings.Repeat("line\n", 200_000) // more than any window
	go func() {
		io.WriteString(p, in)
		p.CloseStdin()
	}()
	if out, _, x := finish(t, p); out != in || x.Code != 0 {
		t.Errorf("%d bytes came back of %d, %+v", len(out), len(in), x)
	}
	// Without stdin there is nothing to read, and reading ends at once.
	if out, x := run(t, c, b.command(t, "cat")); out != "" || x.Code != 0 {
		t.Errorf("no stdin: %q, %+v", out, x)
	}
}

func testEnv(t *testing.T, b *bench) {
	t.Setenv("BERM_HOST_SECRET", "leaked")
	_, c := b.start(t, b.spec())
	out, _ := run(t, c, b.command(t, "env"))
	if !strings.Contains(out, "BERM_TEST=1\n") || strings.Contains(out, "BERM_HOST_SECRET") {
		t.Errorf("env = %q", out)
	}
}

func testNotFound(t *testing.T, b *bench) {
	_, c := b.start(t, b.spec())
	p, err := c.Start(t.Context(), b.command(t, "no-such-command"))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, x := finish(t, p); x.NotStarted == "" || x.Errno != 2 {
		t.Errorf("exit = %+v, want ENOENT", x)
	}
}

func testKill(t *testing.T, b *bench) {
	_, c := b.start(t, b.spec())
	s := b.command(t, "cat")
	s.Stdin = true
	p, err := c.Start(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), caseTime)
	defer cancel()
	io.WriteString(p, "alive\n")
	if _, b, err := p.Read(ctx); err != nil || string(b) != "alive\n" {
		t.Fatalf("Read = %q, %v", b, err)
	}
	if err := p.Kill(ctx); err != nil {
		t.Fatalf("Kill: %v", err)
	}
	if _, _, x := finish(t, p); x.Signal == 0 && x.EndedBy != guest.EndedKilled {
		t.Errorf("exit = %+v", x)
	}
}

func testFiles(t *testing.T, b *bench) {
	_, c := b.start(t, b.spec())
	dir := b.command(t, "true").Dir
	data := bytes.Repeat([]byte("data\n"), 100_000)
	if err := c.WriteFile(t.Context(), dir+"/f.txt", 0o644, b.UID, b.GID, bytes.NewReader(data)); err != nil {
		t.Fatal(err)
	}
	fi, err := c.Stat(t.Context(), dir+"/f.txt")
	if err != nil || fi.Kind != guest.KindFile || fi.Size != int64(len(data)) || fi.Mode != 0o644 {
		t.Errorf("Stat = %+v, %v", fi, err)
	}
	list, err := c.Glob(t.Context(), dir+"/*.txt", 10)
	if err != nil || len(list) != 1 || list[0].Path != dir+"/f.txt" {
		t.Errorf("Glob = %+v, %v", list, err)
	}
	r, err := c.ReadFile(t.Context(), dir+"/f.txt", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(r)
	r.Close()
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("ReadFile: %d bytes, %v", len(got), err)
	}
	if _, err := c.Stat(t.Context(), dir+"/none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Stat of nothing: %v", err)
	}
}

func testApart(t *testing.T, b *bench) {
	_, one := b.start(t, b.spec())
	_, two := b.start(t, b.spec())
	dir := b.command(t, "true").Dir
	if err := one.WriteFile(t.Context(), dir+"/mine", 0o644, b.UID, b.GID, strings.NewReader("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := two.Stat(t.Context(), dir+"/mine"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the other instance sees it: %v", err)
	}
}
