package keeper

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bermhq/berm/internal/jail"
)

// A daemon dies and the next one has all that the first had.
func TestServeAdopts(t *testing.T) {
	r := serve(t, Config{}, ModeUnit)
	first := r.dial()
	id, run := r.launch(first)
	echo(t, run, "hello")
	run.Agent.WriteString("unread")
	first.Close()
	run.Agent.Close()
	until(t, "the first is cut", cut(first))
	select {
	case <-run.Gone:
		t.Error("a daemon that is cut says that its sandboxes are gone")
	default:
	}
	if err := first.Stop(t.Context(), id); !errors.Is(err, ErrCut) {
		t.Errorf("Stop over a connection that is lost: %v", err)
	}

	next := r.dial()
	held, past, err := next.List(t.Context())
	if err != nil || len(held) != 1 || held[0].ID != id || held[0].PID != run.PID || len(past) != 0 {
		t.Fatalf("List = %+v, %+v, %v", held, past, err)
	}
	again, err := next.Attach(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 6)
	if n, err := again.Agent.Read(b); err != nil || string(b[:n]) != "unread" {
		t.Errorf("what was not read is %q, %v", b[:n], err)
	}
	echo(t, again, "on")
	if again.Control == nil {
		t.Error("no connection to its control server")
	}
	if st, err := again.Gauge.Stat(); err != nil || st.Tasks == 0 {
		t.Errorf("figures: %+v, %v", st, err)
	}
	if _, err := again.Upper.Stat(); err != nil {
		t.Error(err)
	}
	if f, err := next.Control(t.Context(), id); err != nil {
		t.Error(err)
	} else {
		f.Close()
	}
	again.Agent.WriteString("x")
	if e := gone(t, again); e.Code != 7 || e.Cause != "" {
		t.Errorf("it ended as %+v", e)
	}
	if _, err := next.Attach(t.Context(), id); !errors.Is(err, ErrGone) {
		t.Errorf("Attach after the end: %v", err)
	}
	if _, err := next.Control(t.Context(), id); !errors.Is(err, ErrGone) {
		t.Errorf("Control after the end: %v", err)
	}
}

// Deadlines hold without a daemon, and its end is kept until it is noted.
func TestServeKeepsEnds(t *testing.T) {
	r := serve(t, Config{}, ModeUnit)
	c := r.dial()
	id, _ := r.launch(c)
	other, run := r.launch(c)
	if err := c.SetDeadline(t.Context(), id, time.Now().Add(200*time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	c.Close()
	run.Agent.Close()
	c = r.dial()
	until(t, "the deadline came", func() bool {
		held, past, err := c.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return len(held) == 1 && held[0].ID == other && len(past) == 1 && past[0].ID == id && past[0].Cause == CauseDeadline
	})
	var ended *EndedError
	if _, err := c.Attach(t.Context(), id); !errors.As(err, &ended) || ended.Exited.Cause != CauseDeadline || !errors.Is(err, ErrGone) {
		t.Errorf("Attach: %v", err)
	}
	if err := c.Forget(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if _, past, err := c.List(t.Context()); err != nil || len(past) != 0 {
		t.Errorf("forgotten: %+v, %v", past, err)
	}
	if _, err := c.Attach(t.Context(), id); !errors.Is(err, ErrGone) || errors.As(err, &ended) {
		t.Errorf("Attach to what is forgotten: %v", err)
	}
}

// What is bound to a daemon ends with its connection, however that ends, even
// while it comes up; the rest goes on.
func TestServeBound(t *testing.T) {
	for name, part := range map[string]func(*rig, *Client){
		"closed":   func(_ *rig, c *Client) { c.Close() },
		"replaced": func(r *rig, _ *Client) { r.dial() },
	} {
		t.Run(name, func(t *testing.T) {
			r := serve(t, Config{}, ModeUnit)
			c := r.dial()
			free, _ := r.launch(c)
			bound := fakeLaunch(r.id())
			bound.Bound = true
			if _, err := c.Launch(t.Context(), bound, devNull()); err != nil {
				t.Fatal(err)
			}
			slow := fakeLaunch(r.id(), "slow=60000")
			slow.Bound = true
			go c.Launch(context.Background(), slow, devNull())
			runs := func() int { left, _ := filepath.Glob(r.dir + "/runs/*"); return len(left) }
			until(t, "the third is known", func() bool { return runs() == 3 })
			began := time.Now()
			part(r, c)
			until(t, "what was bound is gone", func() bool { return runs() == 1 })
			if took := time.Since(began); took > 2*time.Second {
				t.Errorf("that took %v", took)
			}
			next := r.dial()
			var held []Held
			var past []Exited
			until(t, "it is told", func() (told bool) {
				var err error
				if held, past, err = next.List(t.Context()); err != nil {
					t.Fatal(err)
				}
				return len(held) == 1 && slices.ContainsFunc(past, func(e Exited) bool { return e.ID == bound.ID })
			})
			if held[0].ID != free {
				t.Errorf("List = %+v", held)
			}
			for _, e := range past {
				if e.Cause != CauseOwner || e.EndedMS < began.UnixMilli() {
					t.Errorf("it ended as %+v", e)
				}
			}
		})
	}
}

// Ends outlive the keeper itself, once.
func TestPastIsSaved(t *testing.T) {
	k := &Keeper{cfg: Config{StateDir: t.TempDir()}, mode: ModeUnit}
	file := filepath.Join(k.cfg.StateDir, pastFile)
	again := func() []Exited {
		n := &Keeper{cfg: k.cfg, mode: ModeUnit}
		n.loadPast()
		return n.past
	}
	want := Exited{ID: testID, Cause: CauseDeadline, Code: 137, Stat: jail.Stat{CPU: time.Second}}
	k.past = []Exited{want, {ID: "../x"}}
	k.savePast()
	if got := again(); len(got) != 1 || got[0] != want {
		t.Errorf("%+v", got)
	}
	if fi, err := os.Stat(file); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", fi, err)
	}
	k.past = nil
	k.savePast()
	if left, _ := os.ReadDir(k.cfg.StateDir); len(left) > 0 {
		t.Errorf("with nothing to say: %v", left)
	}
	for _, junk := range []string{"", "{", `[{"id":5}]`, `{"id":"x"}`} {
		os.WriteFile(file, []byte(junk), 0o600)
		if got := again(); len(got) > 0 {
			t.Errorf("%q: %+v", junk, got)
		}
	}
	os.Remove(file)
	os.Symlink("/etc/passwd", file)
	if got := again(); len(got) > 0 {
		t.Errorf("through a link: %+v", got)
	}
}

func TestPages(t *testing.T) {
	k := &Keeper{mode: ModeUnit, running: map[string]*sandbox{}, stir: make(chan struct{}, 1)}
	for n := range maxPast + 10 {
		id := strconv.Itoa(1_000_000 + n)
		k.running[id] = &sandbox{id: id, up: n%2 == 0}
		k.drop(&sandbox{id: "none"}, &Exited{ID: id})
	}
	seen := map[string]bool{}
	for after, more := "", true; more; {
		var held []Held
		held, more = k.list(after)
		if len(held) > page {
			t.Fatalf("%d in one answer", len(held))
		}
		for _, h := range held {
			seen[h.ID], after = true, h.ID
		}
	}
	if len(seen) != (maxPast+10)/2 {
		t.Errorf("%d listed", len(seen))
	}
	seen = map[string]bool{}
	for after, more := "", true; more; {
		var past []Exited
		past, more = k.ended(after)
		for _, e := range past {
			seen[e.ID], after = true, e.ID
		}
	}
	if len(seen) != maxPast || seen["1000000"] || !seen["1000010"] {
		t.Errorf("%d ends are kept; the oldest go first", len(seen))
	}
}

func TestServeVersions(t *testing.T) {
	r := serve(t, Config{}, ModeUnit)
	c := r.dial()
	for _, q := range []request{
		{Seq: 1, Op: "hello", Version: 99, Oldest: 98},
		{Seq: 1, Op: "hello", Version: 0},
		{Seq: 1, Op: "list"},
		{Seq: 1, Op: "shutdown"},
	} {
		conn := dialTo(r.path)
		if err := send(conn, q); err != nil {
			t.Fatal(err)
		}
		var a reply
		if _, err := receive(conn, make([]byte, maxMessage), &a); err != nil || a.Err == nil || a.Err.Hint == "" {
			t.Errorf("%+v: %+v, %v", q, a, err)
		} else if q.Version == 99 && !strings.Contains(a.Err.Message, "protocol 1 to 1, and this berm 98 to 99") {
			t.Errorf("refused with %q", a.Err.Message)
		}
		if _, err := receive(conn, make([]byte, maxMessage), &a); err == nil {
			t.Errorf("%+v: not cut", q)
		}
		conn.Close()
	}
	// One of the next version that still speaks ours is served.
	k := &Keeper{mode: ModeUnit}
	if h, err := k.greet(request{Version: Version + 1, Oldest: Version}); err != nil || h.Version != Version {
		t.Errorf("the next version: %+v, %v", h, err)
	}
	if _, _, err := c.List(t.Context()); err != nil { // and the daemon that was there noticed nothing
		t.Error(err)
	}
}

// Garbage, a flood and an end without a word cost the daemon its connection
// and the sandboxes nothing.
func TestServeCuts(t *testing.T) {
	r := serve(t, Config{perSec: 300}, ModeUnit)
	c := r.dial()
	id, _ := r.launch(c)
	for name, bad := range map[string]func(c *Client){
		"garbage": func(c *Client) { c.conn.Write([]byte("{")) },
		"too long": func(c *Client) {
			c.conn.SetWriteBuffer(1 << 20)
			c.conn.Write(make([]byte, maxMessage+1))
		},
		"flood": func(c *Client) {
			go func() {
				for !cut(c)() {
					send(c.conn, request{Op: "forget", ID: "none"})
				}
			}()
		},
		"descriptors": func(c *Client) {
			f := devNull()
			defer f.Close()
			for range 100 {
				send(c.conn, request{Op: "facts"}, f, f, f, f)
			}
			c.conn.Write([]byte("x"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := r.dial()
			bad(c)
			until(t, "it is cut", cut(c))
		})
	}
	c = r.dial()
	run, err := c.Attach(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	echo(t, run, "still here")
}

func TestServeNewest(t *testing.T) {
	r := serve(t, Config{}, ModeUnit)
	old := r.dial()
	_, run := r.launch(old)
	r.dial()
	until(t, "the older one is cut", cut(old))
	echo(t, run, "its child is not")
}

// Only root, the keeper's own user and the daemon's may connect.
func TestServeStrangers(t *testing.T) {
	r := serve(t, Config{DaemonUID: 54321}, ModeUnit)
	os.Chmod(r.path, 0o777)
	for p := r.dir; len(p) > len("/tmp"); p = filepath.Dir(p) {
		os.Chmod(p, 0o755)
	}
	// The test binary is where others may not look, so they get it opened.
	as := func(uid uint32) string {
		exe, err := os.Open("/proc/self/exe")
		if err != nil {
			t.Fatal(err)
		}
		defer exe.Close()
		cmd := exec.Command("/proc/self/fd/3", r.path, r.prefix()+strings.Repeat("u", 20))
		cmd.Args[0] = "keeper-client"
		cmd.ExtraFiles = []*os.File{exe}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 3)
		n, _ := out.Read(b)
		cmd.Process.Kill()
		cmd.Wait()
		return string(b[:n])
	}
	if got := as(12345); got != "" {
		t.Errorf("a stranger is %q", got)
	}
	if got := as(54321); got != "up\n" {
		t.Errorf("the daemon's own user hears %q", got)
	}
}

// A daemon is killed while it launches. Each launch comes to something that the
// next one sees, or to nothing.
func TestServeKilledMidLaunch(t *testing.T) {
	r := serve(t, Config{}, ModeUnit)
	for round := range 8 {
		prefix := r.prefix() + strconv.Itoa(10+round)
		cmd := exec.Command("/proc/self/exe", r.path, prefix+strings.Repeat("k", 24-len(prefix)))
		cmd.Args[0] = "keeper-client"
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if b := make([]byte, 3); !func() bool { n, _ := out.Read(b); return n == 3 }() {
			t.Fatal("the daemon does not come up")
		}
		time.Sleep(time.Duration(13*round) * time.Millisecond) // whatever it is doing then
		cmd.Process.Kill()
		cmd.Wait()
		c := r.dial()
		h, _ := jail.FindHierarchy()
		groups := func() map[string]bool {
			out := map[string]bool{}
			for _, d := range h.Named("berm-" + prefix) {
				out[strings.TrimPrefix(filepath.Base(d), "berm-")] = true
			}
			return out
		}
		until(t, "all that is there is listed", func() bool {
			before := groups()
			held, _, err := c.List(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range held {
				delete(before, s.ID)
			}
			return len(before) == 0
		})
		held, _, _ := c.List(t.Context())
		for _, s := range held {
			run, err := c.Attach(t.Context(), s.ID)
			if err != nil {
				t.Fatalf("Attach: %v", err)
			}
			echo(t, run, "orphan")
			if err := c.Stop(t.Context(), s.ID); err != nil {
				t.Error(err)
			}
		}
		if left := groups(); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
		c.Close()
	}
}

func TestServeLingers(t *testing.T) {
	r := serve(t, Config{Linger: 300 * time.Millisecond}, ModeLinger)
	c := r.dial()
	id, run := r.launch(c)
	c.Close()
	run.Agent.Close()
	select {
	case <-r.done:
		t.Fatal("it ended while a sandbox ran")
	case <-time.After(600 * time.Millisecond):
	}
	c = r.dial()
	if err := c.Stop(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	select {
	case <-r.done:
		t.Fatal("it ended while a daemon was connected")
	case <-time.After(600 * time.Millisecond):
	}
	c.Close()
	r.ends()
}

func TestServeShutdown(t *testing.T) {
	r := serve(t, Config{Linger: time.Hour}, ModeLinger)
	c := r.dial()
	_, run := r.launch(c)
	if err := c.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if e := gone(t, run); e.Cause != CauseOwner {
		t.Errorf("it ended as %+v", e)
	}
	r.ends()

	r = serve(t, Config{}, ModeUnit)
	c = r.dial()
	_, run = r.launch(c)
	if err := c.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	gone(t, run)
	_, run = r.launch(c) // a unit is ended by whoever started it
	echo(t, run, "again")
	r.l.Close()
	r.ends()
	if err := Serve(Config{}, r.l, ModeOwner); err == nil {
		t.Error("a keeper with an owner served")
	}
}

func TestServePause(t *testing.T) {
	for _, kind := range []string{"", "deaf"} {
		t.Run(kind, func(t *testing.T) {
			r := serve(t, Config{ask: 300 * time.Millisecond}, ModeUnit)
			c := r.dial()
			id, run := r.launch(c, "spin", kind)
			cpu := func() time.Duration {
				st, err := run.Gauge.Stat()
				if err != nil {
					t.Fatal(err)
				}
				return st.CPU
			}
			until(t, "it works", func() bool { return cpu() > 100*time.Millisecond })
			if err := c.Pause(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			from := cpu()
			time.Sleep(100 * time.Millisecond)
			if used := cpu() - from; used > 2*time.Millisecond { // what it used before may be booked late
				t.Errorf("paused, it used %v", used)
			}
			if held, _, err := c.List(t.Context()); err != nil || len(held) != 1 || !held[0].Paused {
				t.Errorf("List = %+v, %v", held, err)
			}
			err := c.Resume(t.Context(), id)
			if kind == "" {
				if err != nil {
					t.Fatal(err)
				}
				echo(t, run, "on")
				err = c.Pause(t.Context(), id)
			}
			if (err == nil) != (kind == "") {
				t.Errorf("%q: %v", kind, err)
			}
			if err := c.Stop(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			if e := gone(t, run); e.Cause != CauseStopped {
				t.Errorf("it ended as %+v", e)
			}
			if err := c.Pause(t.Context(), id); err == nil {
				t.Error("Pause after the end: no error")
			}
		})
	}
}

// A daemon of another build runs the program that it brought, if nobody else
// could have changed that.
func TestServeRuntime(t *testing.T) {
	r := serve(t, Config{}, ModeUnit)
	c := r.dial()
	name := strings.Repeat("d", 64)
	dir := filepath.Join(r.dir, "runtimes", name)
	file := filepath.Join(dir, "sandbox")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	spec := devNull()
	defer spec.Close()
	for _, tt := range []struct {
		name  string
		spoil func()
		want  string
	}{
		{"no such", func() {}, "no such file"},
		{"whole", func() { os.WriteFile(file, self, 0o755) }, ""},
		{"writable", func() { os.Chmod(file, 0o777) }, "somebody else"},
		{"somebody's", func() { os.Chmod(file, 0o755); os.Chown(file, 12345, 0) }, "somebody else"},
		{"somebody's folder", func() { os.Chown(file, 0, 0); os.Chown(dir, 12345, 0) }, "somebody else"},
		{"a link", func() { os.Chown(dir, 0, 0); os.Rename(file, file+"2"); os.Symlink("sandbox2", file) }, "symbolic links"},
		{"a folder", func() { os.Remove(file); os.Mkdir(file, 0o755) }, "not a file"},
		{"a name with a path", func() { name = "../" + name[:61] }, "not the name"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.spoil()
			l := fakeLaunch(r.id())
			l.Runtime = name
			run, err := c.Launch(t.Context(), l, spec)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("Launch = %v, want %q", err, tt.want)
			}
			if err != nil {
				return
			}
			echo(t, run, "hello")
			if held, _, err := c.List(t.Context()); err != nil || len(held) != 1 || held[0].Runtime != name {
				t.Errorf("List = %+v, %v", held, err)
			}
			c.Stop(t.Context(), l.ID)
		})
	}
}

// The next keeper, that of a berm run say, leaves alone what this one holds.
func TestServeIsNotSwept(t *testing.T) {
	r := serve(t, Config{}, ModeUnit)
	_, run := r.launch(r.dial())
	stale, err := Sweep(filepath.Join(r.dir, "runs"), false)
	if err != nil || len(stale) > 0 {
		t.Errorf("swept %+v, %v", stale, err)
	}
	echo(t, run, "alive")
}
