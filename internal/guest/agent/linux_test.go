package agent_test

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bermhq/berm/internal/guest"
)

// real builds the agent and runs it on this machine, over a socket.
func real(t testing.TB) *guest.Client {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: the agent gives each process the rights of another user")
	}
	bin := filepath.Join(t.TempDir(), "berm-agent")
	build := exec.Command("go", "build", "-o", bin, "github.com/bermhq/berm/cmd/berm-agent")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return runs(t, bin)
}

// runs runs an agent that was built.
func runs(t testing.TB, bin string) *guest.Client {
	ours, theirs, err := pair()
	if err != nil {
		t.Fatal(err)
	}
	const resolv = "/etc/resolv.conf"
	before, _ := os.ReadFile(resolv)
	t.Cleanup(func() { // whoever runs an agent by hand keeps their name servers
		if after, _ := os.ReadFile(resolv); string(after) != string(before) {
			t.Errorf("%s was %q, and is %q", resolv, before, after)
		}
	})
	cmd := exec.Command(bin)
	cmd.Stdin, cmd.Stderr, cmd.Env = theirs, os.Stderr, []string{"SECRET=leak"}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	c := guest.New(ours, guest.Options{})
	t.Cleanup(func() {
		c.Close()
		gone := make(chan error, 1)
		go func() { gone <- cmd.Wait() }()
		select {
		case err := <-gone:
			t.Log(err)
		case <-time.After(5 * time.Second):
			cmd.Process.Kill()
			t.Error("the agent outlived its stream")
		}
	})
	return c
}

func user(id string, args ...string) guest.Start {
	return guest.Start{ID: id, Args: args, Env: []string{"PATH=/usr/bin:/bin"}, Dir: "/tmp", UID: 1000, GID: 1000}
}

func TestLinuxExec(t *testing.T) {
	c := real(t)
	for _, tt := range []struct {
		name, script, stdin, out, err string
		exit                          guest.Exit
	}{
		{name: "echo", script: "echo hi", out: "hi\n"},
		{name: "both", script: "echo no >&2; exit 3", err: "no\n", exit: guest.Exit{Code: 3}},
		{name: "signal", script: "kill -TERM $$", exit: guest.Exit{Signal: 15}},
		{name: "stdin", script: "cat", stdin: "some\n", out: "some\n"},
		{name: "dir", script: "pwd", out: "/tmp\n"},
		{name: "user", script: "id -u; id -g", out: "1000\n1000\n"},
		{name: "env", script: `echo "[$SECRET]"`, out: "[]\n"},
		{name: "rights", script: "grep -E 'NoNewPrivs|Cap(Prm|Eff|Bnd|Amb)' /proc/self/status | tr -d '\\t\\n'",
			out: "CapPrm:0000000000000000CapEff:0000000000000000CapBnd:0000000000000000CapAmb:0000000000000000NoNewPrivs:1"},
		{name: "descriptors", script: "ls /proc/self/fd | tr '\\n' ' '", out: "0 1 2 3 "},
		{name: "session", script: "[ $(ps -o sid= -p $$) = $$ ] && echo own", out: "own\n"},
		{name: "limits", script: "grep -E 'processes|core' /proc/self/limits | tr -s ' '", out: "Max core file size 0 0 bytes \nMax processes 100 100 processes \n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := user(tt.name, "sh", "-c", tt.script)
			s.Stdin = tt.stdin != ""
			if tt.name == "limits" {
				s.Pids = 100
			}
			out, errs, e := result(t, c, s, tt.stdin)
			if out != tt.out || errs != tt.err || e.Code != tt.exit.Code || e.Signal != tt.exit.Signal || e.EndedBy != "" || e.Background {
				t.Errorf("%q, %q, %+v; want %q, %q, %+v", out, errs, e, tt.out, tt.err, tt.exit)
			}
		})
	}
	for _, tt := range []struct {
		name  string
		args  []string
		dir   string
		errno syscall.Errno
	}{
		{"missing", []string{"no-such-command"}, "", syscall.ENOENT},
		{"missing path", []string{"/no/such"}, "", syscall.ENOENT},
		{"not executable", []string{"/etc/passwd"}, "", syscall.EACCES},
		{"directory", []string{"/etc"}, "", syscall.EACCES},
		{"no shebang", []string{script(t, "echo hi\n")}, "", syscall.ENOEXEC},
		{"no interpreter", []string{script(t, "#!/no/such\n")}, "", syscall.ENOENT},
		{"no directory", []string{"true"}, "/no/such", syscall.ENOTDIR},
	} {
		s := user(tt.name, tt.args...)
		if tt.dir != "" {
			s.Dir = tt.dir
		}
		if _, _, e := result(t, c, s, ""); e.NotStarted == "" || syscall.Errno(e.Errno) != tt.errno {
			t.Errorf("%s: %+v, want errno %d", tt.name, e, tt.errno)
		}
	}
}

func script(t *testing.T, text string) string {
	dir, err := os.MkdirTemp("/tmp", "berm-test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	os.Chmod(dir, 0o755)
	name := filepath.Join(dir, "script")
	os.WriteFile(name, []byte(text), 0o755)
	os.Chmod(name, 0o755)
	return name
}

// TestLinuxKill ends sleepers that left the session and lost their parents.
func TestLinuxKill(t *testing.T) {
	c := real(t)
	ctx := ctxFor(t, 20*time.Second)
	const deep = `setsid sh -c '(setsid sleep 987 &) ; sleep 987' & (sleep 987 &) ; echo ready; `
	p, err := c.Start(ctx, user("tree", "sh", "-c", deep+"sleep 987"))
	if err != nil {
		t.Fatal(err)
	}
	if _, b, err := p.Read(ctx); err != nil || string(b) != "ready\n" {
		t.Fatalf("%q, %v", b, err)
	}
	time.Sleep(100 * time.Millisecond)
	if err := p.Kill(ctx); err != nil {
		t.Fatal(err)
	}
	drain(t, ctx, p)
	if e := p.Exit(); e.Signal != 9 || e.EndedBy != guest.EndedKilled {
		t.Errorf("%+v", e)
	}
	if n := sleepers(t); n != 0 {
		t.Errorf("%d sleepers left", n)
	}

	// The same left behind in the background: the exit does not wait for them.
	began := time.Now()
	p, _ = c.Start(ctx, user("left", "sh", "-c", deep))
	drain(t, ctx, p)
	if e := p.Exit(); e.Code != 0 || !e.Background {
		t.Errorf("%+v", e)
	}
	if d := time.Since(began); d > 2*time.Second {
		t.Errorf("exit took %v", d)
	}
	time.Sleep(100 * time.Millisecond)
	if n := sleepers(t); n == 0 {
		t.Error("the background was ended with the process")
	}
	if err := p.Kill(ctx); err != nil {
		t.Error(err)
	}
	if n := sleepers(t); n != 0 {
		t.Errorf("%d sleepers left after the exit", n)
	}
}

func sleepers(t *testing.T) (n int) {
	t.Helper()
	names, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range names {
		b, _ := os.ReadFile(name)
		if strings.HasPrefix(string(b), "sleep\x00987") {
			n++
		}
	}
	return n
}

func TestLinuxTTY(t *testing.T) {
	c := real(t)
	ctx := ctxFor(t, 20*time.Second)
	s := user("tty", "sh", "-c", "stty size; read x; stty size; echo got $x; sleep 60")
	s.TTY, s.Rows, s.Cols = true, 33, 77
	p, err := c.Start(ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	seen := ""
	expect := func(want string) {
		t.Helper()
		for !strings.Contains(seen, want) {
			_, b, err := p.Read(ctx)
			if err != nil {
				t.Fatalf("waiting for %q after %q: %v", want, seen, err)
			}
			seen += string(b)
		}
	}
	expect("33 77")
	p.Resize(44, 88)
	io.WriteString(p, "word\n")
	expect("44 88")
	expect("got word")
	time.Sleep(200 * time.Millisecond) // a shell about to fork keeps a signal to itself
	p.Signal(int(syscall.SIGINT))
	drain(t, ctx, p)
	if e := p.Exit(); e.Signal != 2 && e.Code != 130 {
		t.Errorf("%+v", e)
	}
}

// TestLinuxLots makes sure that what was written before the exit arrives whole.
func TestLinuxLots(t *testing.T) {
	c := real(t)
	for i := range 20 {
		n := 1000 + i*50_000
		out, _, e := result(t, c, user(strconv.Itoa(i), "head", "-c", strconv.Itoa(n), "/dev/zero"), "")
		if len(out) != n || e.Code != 0 {
			t.Fatalf("%d of %d bytes, %+v", len(out), n, e)
		}
	}
}
