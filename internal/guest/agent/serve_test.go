package agent_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bermhq/berm/internal/guest"
	"github.com/bermhq/berm/internal/guest/agent"
)

// local returns a client of an agent in this process, and its directory.
func local(t *testing.T, opt guest.Options) (*guest.Client, string) {
	t.Helper()
	dir := t.TempDir()
	h, g := net.Pipe()
	served := make(chan error, 1)
	go func() { served <- agent.Serve(context.Background(), g, agent.NewLocal(dir)) }()
	c := guest.New(h, opt)
	t.Cleanup(func() {
		c.Close()
		select {
		case <-served:
		case <-time.After(5 * time.Second):
			t.Error("Serve did not return after the stream ended")
		}
	})
	return c, dir
}

func ctxFor(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// result runs to the end and returns both outputs.
func result(t *testing.T, c *guest.Client, s guest.Start, stdin string) (out, errs string, e guest.Exit) {
	t.Helper()
	ctx := ctxFor(t, 20*time.Second)
	p, err := c.Start(ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	if s.Stdin {
		go func() {
			io.WriteString(p, stdin)
			p.CloseStdin()
		}()
	}
	out, errs = drain(t, ctx, p)
	return out, errs, p.Exit()
}

func drain(t *testing.T, ctx context.Context, p *guest.Process) (out, errs string) {
	t.Helper()
	var o, e strings.Builder
	for {
		st, b, err := p.Read(ctx)
		if err == io.EOF {
			return o.String(), e.String()
		}
		if err != nil {
			t.Fatalf("read: %v", err)
		}
		if st == guest.Stderr {
			e.Write(b)
		} else {
			o.Write(b)
		}
	}
}

func TestLocalExec(t *testing.T) {
	c, _ := local(t, guest.Options{})
	h, err := c.Hello(ctxFor(t, time.Second))
	if err != nil || h.Version != guest.Version || h.Agent == "" || h.Boot.PID != 1 {
		t.Fatalf("Hello = %+v, %v", h, err)
	}
	big := strings.Repeat("0123456789abcdef", 200_000)
	for _, tt := range []struct {
		name, stdin, out, err string
		s                     guest.Start
		exit                  guest.Exit
	}{
		{name: "echo", s: guest.Start{Args: []string{"echo", "hi", "you"}}, out: "hi you\n"},
		{name: "stderr", s: guest.Start{Args: []string{"warn", "no"}}, err: "no\n"},
		{name: "code", s: guest.Start{Args: []string{"exit", "42"}}, exit: guest.Exit{Code: 42}},
		{name: "stdin", s: guest.Start{Args: []string{"cat"}, Stdin: true}, stdin: "in\n", out: "in\n"},
		{name: "big stdin", s: guest.Start{Args: []string{"/bin/cat"}, Stdin: true}, stdin: big, out: big},
		{name: "unread stdin", s: guest.Start{Args: []string{"true"}, Stdin: true}, stdin: big},
		{name: "magic", s: guest.Start{Args: []string{"cat"}, Stdin: true}, stdin: "a" + guest.Magic + guest.Magic, out: "a" + guest.Magic + guest.Magic},
		{name: "magic argument", s: guest.Start{Args: []string{"echo", guest.Magic}}, out: guest.Magic + "\n"},
		{name: "env", s: guest.Start{Args: []string{"env"}, Env: []string{"A=b"}}, out: "A=b\n"},
		{name: "not found", s: guest.Start{Args: []string{"nope"}}, exit: guest.Exit{NotStarted: "nope: no such file or directory", Errno: 2}},
		{name: "memory", s: guest.Start{Args: []string{"hog", "200"}, MemoryBytes: 100}, exit: guest.Exit{Signal: 9, Caps: []string{"memory"}, EndedBy: "memory", MemoryPeak: 100}},
		{name: "disk", s: guest.Start{Args: []string{"fill"}}, err: "fill: no space left on device\n", exit: guest.Exit{Code: 1, Caps: []string{"disk"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.s.ID = tt.name
			out, errs, e := result(t, c, tt.s, tt.stdin)
			if out != tt.out || errs != tt.err {
				t.Errorf("out %d bytes %.40q, err %.40q; want %d bytes %.40q, %.40q", len(out), out, errs, len(tt.out), tt.out, tt.err)
			}
			if e.NotStarted == "" && e.ElapsedNanos <= 0 {
				t.Errorf("took %d ns", e.ElapsedNanos)
			}
			e.ElapsedNanos = 0
			if x, y := e.Append(nil), tt.exit.Append(nil); !bytes.Equal(x, y) {
				t.Errorf("exit %+v, want %+v", e, tt.exit)
			}
		})
	}
}

func TestKillAndCancel(t *testing.T) {
	c, _ := local(t, guest.Options{})
	ctx := ctxFor(t, 10*time.Second)
	for _, args := range [][]string{{"sleep", "60"}, {"yes"}, {"cat"}} {
		p, err := c.Start(ctx, guest.Start{ID: "x", Args: args, Stdin: true})
		if err != nil {
			t.Fatal(err)
		}
		if args[0] == "yes" {
			p.Read(ctx)
		}
		time.Sleep(10 * time.Millisecond)
		done := make(chan error, 1)
		go func() { done <- p.Kill(ctx) }()
		drain(t, ctx, p)
		if err := <-done; err != nil {
			t.Errorf("%v: Kill: %v", args, err)
		}
		if e := p.Exit(); e.Signal != 9 || e.EndedBy != guest.EndedKilled {
			t.Errorf("%v: %+v", args, e)
		}
		if err := p.Kill(ctx); err != nil {
			t.Errorf("Kill after exit: %v", err)
		}
	}
	for range 50 { // a kill never overtakes its start
		p, _ := c.Start(ctx, guest.Start{ID: "quick", Args: []string{"sleep", "60"}})
		if err := p.Kill(ctx); err != nil {
			t.Fatal(err)
		}
		drain(t, ctx, p)
	}
	p, _ := c.Start(ctx, guest.Start{ID: "y", Args: []string{"yes"}})
	p.Read(ctx)
	p.Close()
	for u, _ := c.Usage(ctx); u.Processes > 0; u, _ = c.Usage(ctx) {
		if ctx.Err() != nil {
			t.Fatal("a closed process still runs")
		}
	}
}

// TestStall holds one stream without reading while others go on.
func TestStall(t *testing.T) {
	c, _ := local(t, guest.Options{Window: 64 << 10})
	ctx := ctxFor(t, 20*time.Second)
	p, err := c.Start(ctx, guest.Start{ID: "flood", Args: []string{"yes"}})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond)
	big := strings.Repeat("x", 1<<20)
	out, _, _ := result(t, c, guest.Start{ID: "cat", Args: []string{"cat"}, Stdin: true}, big)
	if out != big {
		t.Error("a stalled stream spoiled another")
	}
	if err := p.Kill(ctx); err != nil {
		t.Error(err)
	}
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	q, _ := c.Start(ctx, guest.Start{ID: "quiet", Args: []string{"sleep", "60"}})
	if _, _, err := q.Read(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Read past its deadline: %v", err)
	}
	q.Close()
}

func TestFiles(t *testing.T) {
	c, dir := local(t, guest.Options{})
	ctx := ctxFor(t, 20*time.Second)
	data := bytes.Repeat([]byte("berm"+guest.Magic), 100_000)
	if err := c.WriteFile(ctx, "/a/b/data", 0o640, 0, 0, bytes.NewReader(data)); err != nil {
		t.Fatal(err)
	}
	if err := c.WriteFile(ctx, "/a/empty", 0o600, 0, 0, strings.NewReader("")); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string][]byte{"/a/b/data": data, "/a/empty": {}} {
		r, err := c.ReadFile(ctx, path, 0)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(r)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, %v; want %d", path, len(got), err, len(want))
		}
		r.Close()
	}
	if _, err := c.ReadFile(ctx, "/a/b/data", 100); !errors.Is(err, syscall.EFBIG) {
		t.Errorf("too big: %v", err)
	}
	os.Symlink("/etc/passwd", filepath.Join(dir, "link"))
	syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600)
	for path, want := range map[string]error{"/link": syscall.ELOOP, "/pipe": syscall.EINVAL, "/a": syscall.EISDIR, "/none": fs.ErrNotExist, "rel": syscall.EINVAL} {
		if _, err := c.ReadFile(ctx, path, 0); !errors.Is(err, want) || !guest.IsRefusal(err) {
			t.Errorf("ReadFile %s: %v, want %v", path, err, want)
		}
	}
	fi, err := c.Stat(ctx, "/a/b/data")
	if err != nil || fi.Kind != "file" || fi.Size != int64(len(data)) || fi.Mode != 0o640 || fi.Path != "/a/b/data" {
		t.Errorf("Stat = %+v, %v", fi, err)
	}
	if fi, err := c.Stat(ctx, "/link"); err != nil || fi.Kind != "symlink" || fi.LinkTarget != "/etc/passwd" {
		t.Errorf("Stat link = %+v, %v", fi, err)
	}
	names := func(l []guest.FileInfo, err error) string {
		if err != nil {
			return err.Error()
		}
		var s []string
		for _, f := range l {
			s = append(s, f.Path)
		}
		return strings.Join(s, " ")
	}
	for _, tt := range []struct{ got, want string }{
		{names(c.List(ctx, "/", 1, 0)), "/a /link /pipe"},
		{names(c.List(ctx, "/", 5, 0)), "/a /a/b /a/b/data /a/empty /link /pipe"},
		{names(c.List(ctx, "/", 5, 2)), "/a /a/b"},
		{names(c.Glob(ctx, "/a/*", 0)), "/a/b /a/empty"},
		{names(c.Glob(ctx, "/**/d*", 0)), "/a/b/data"},
		{names(c.Glob(ctx, "/none/*", 0)), ""},
	} {
		if tt.got != tt.want {
			t.Errorf("got %q, want %q", tt.got, tt.want)
		}
	}
	if err := c.Mkdir(ctx, "/m/n", 0o755, 0, 0); err != nil {
		t.Error(err)
	}
	if err := c.Move(ctx, "/a/empty", "/m/n/e"); err != nil {
		t.Error(err)
	}
	if err := c.Remove(ctx, "/m", false); !errors.Is(err, syscall.ENOTEMPTY) {
		t.Errorf("Remove of a full directory: %v", err)
	}
	if err := c.Remove(ctx, "/m", true); err != nil {
		t.Error(err)
	}
	if err := c.Remove(ctx, "/m", true); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Remove of nothing: %v", err)
	}
}

func TestTar(t *testing.T) {
	c, dir := local(t, guest.Options{})
	ctx := ctxFor(t, 20*time.Second)
	os.MkdirAll(filepath.Join(dir, "src/sub"), 0o755)
	os.WriteFile(filepath.Join(dir, "src/sub/f"), bytes.Repeat([]byte("x"), 300_000), 0o755)
	os.Symlink("sub/f", filepath.Join(dir, "src/l"))
	r, err := c.TarOut(ctx, "/src", []string{"sub", "l"})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := c.TarIn(ctx, "/dst/new", 0, 0, r); err != nil {
		t.Fatal(err)
	}
	if fi, err := c.Stat(ctx, "/dst/new/sub/f"); err != nil || fi.Size != 300_000 || fi.Mode != 0o755 {
		t.Errorf("%+v, %v", fi, err)
	}
	if fi, err := c.Stat(ctx, "/dst/new/l"); err != nil || fi.LinkTarget != "sub/f" {
		t.Errorf("%+v, %v", fi, err)
	}
	if r, err := c.TarOut(ctx, "/src", []string{"../.."}); err == nil {
		r.Close()
		t.Error("TarOut of a name outside")
	}
}

// TestReattach leaves in the middle of a frame, as a host that dies does.
func TestReattach(t *testing.T) {
	dir := t.TempDir()
	ours, theirs, err := pair()
	if err != nil {
		t.Fatal(err)
	}
	go agent.Serve(t.Context(), theirs, agent.NewLocal(dir))
	ctx := ctxFor(t, 20*time.Second)
	first := guest.New(keep{ours}, guest.Options{Epoch: 7})
	if _, err := first.Start(ctx, guest.Start{ID: "old", Args: []string{"yes"}}); err != nil {
		t.Fatal(err)
	}
	first.Hello(ctx)
	time.Sleep(20 * time.Millisecond)
	ours.SetReadDeadline(time.Now())
	<-first.Done()
	ours.SetReadDeadline(time.Time{})
	// Half a frame of 100 kB with a marker of its own making inside.
	b := guest.AppendFrame(nil, 7, 99, guest.KindData, make([]byte, 100_000))
	ours.Write(b[:5000])
	second := guest.New(ours, guest.Options{})
	defer second.Close()
	if _, err := second.Hello(ctx); err != nil {
		t.Fatal(err)
	}
	out, _, _ := result(t, second, guest.Start{ID: "new", Args: []string{"echo", "again"}}, "")
	if out != "again\n" {
		t.Errorf("got %q", out)
	}
	if err := second.Kill(ctx, "old"); err != nil {
		t.Error(err)
	}
	if u, err := second.Usage(ctx); err != nil || u.Processes != 0 {
		t.Errorf("%+v, %v", u, err)
	}
}

// keep is a connection that its client cannot close.
type keep struct{ io.ReadWriteCloser }

func (keep) Close() error { return nil }

// pair is a connected pair of stream sockets.
func pair() (a, b *os.File, err error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	return os.NewFile(uintptr(fds[0]), "a"), os.NewFile(uintptr(fds[1]), "b"), nil
}
