package cli_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/client"
	"github.com/bermhq/berm/internal/backend"
	"github.com/bermhq/berm/internal/backend/mem"
	"github.com/bermhq/berm/internal/cli"
	"github.com/bermhq/berm/internal/sandbox"
	"github.com/bermhq/berm/internal/server"
	"github.com/bermhq/berm/internal/testkit"
)

// world is a berm without rights: the whole path of a run, on the fake backend.
type world struct {
	t      *testing.T
	mem    *mem.Backend
	flaky  *testkit.Flaky
	opened cli.OpenOptions
	opens  int
	over   func(context.Context, cli.OpenOptions) (*cli.Session, error) // instead of open

	connect func(context.Context, cli.ConnectOptions) (*cli.Session, error)
	serve   func(context.Context, cli.ServeOptions) error
	token   string // of the daemon's admin
	dial    func(context.Context) (net.Conn, error)
}

// with is w with another way to open a session.
func (w *world) with(open func(context.Context, cli.OpenOptions) (*cli.Session, error)) *world {
	w.over = open
	return w
}

func newWorld(t *testing.T) *world {
	testkit.NoLeak(t)
	b := mem.New(mem.Options{Name: "gvisor", Boundary: api.BoundaryUserKernel, Dir: t.TempDir()})
	w := &world{t: t, mem: b, flaky: &testkit.Flaky{Backend: b}}
	t.Cleanup(func() {
		if n := b.Live(); n != 0 {
			t.Errorf("%d sandboxes are left", n)
		}
	})
	return w
}

func (w *world) open(ctx context.Context, o cli.OpenOptions) (*cli.Session, error) {
	if w.over != nil {
		return w.over(ctx, o)
	}
	w.opened = o
	w.opens++
	e := sandbox.New([]backend.Backend{w.flaky}, sandbox.Options{})
	c := client.New(client.Options{Dial: testkit.Serve(w.t, server.New(e, server.Options{}))})
	return &cli.Session{Client: c, Template: "host", Close: func() error {
		c.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		return e.Close(ctx)
	}}, nil
}

// run is one command line.
func (w *world) run(ctx context.Context, stdin string, args ...string) (code int, stdout, stderr string) {
	w.t.Helper()
	dir := w.t.TempDir()
	file := func(name, content string) *os.File {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			w.t.Fatal(err)
		}
		io.WriteString(f, content)
		f.Seek(0, io.SeekStart)
		return f
	}
	in, out, errs := file("in", stdin), file("out", ""), file("err", "")
	defer in.Close()
	code = cli.Main(ctx, cli.Env{
		Args: args, Stdin: in, Stdout: out, Stderr: errs, Open: w.open, Connect: w.connect, Serve: w.serve,
		Version: api.Version{Version: "v0", Go: "go", OS: "linux", Arch: "amd64"},
	})
	read := func(f *os.File) string {
		f.Seek(0, io.SeekStart)
		b, _ := io.ReadAll(f)
		f.Close()
		return string(b)
	}
	return code, read(out), read(errs)
}

func (w *world) json(stdin string, args ...string) api.RunReport {
	w.t.Helper()
	code, out, errs := w.run(w.t.Context(), stdin, append([]string{"run", "--json"}, args...)...)
	var r api.RunReport
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		w.t.Fatalf("%v: %q, stderr %q", err, out, errs)
	}
	if r.ExitCode != code {
		w.t.Errorf("exit code %d, in the report %d", code, r.ExitCode)
	}
	return r
}

func TestRunCommand(t *testing.T) {
	for _, tt := range []struct {
		name  string
		stdin string
		args  []string
		code  int
		out   string
	}{
		{"true", "", []string{"--", "true"}, 0, ""},
		{"false", "", []string{"--", "false"}, 1, ""},
		{"echo", "", []string{"--", "echo", "a", "b"}, 0, "a b\n"},
		{"stdin is empty by default", "secret", []string{"--", "cat"}, 0, ""},
		{"stdin", "hello\n", []string{"--stdin", "--", "cat"}, 0, "hello\n"},
		{"long stdin", strings.Repeat("0123456789abcdef", 1<<16), []string{"--stdin", "--", "cat"}, 0, strings.Repeat("0123456789abcdef", 1<<16)},
		{"not found", "", []string{"--", "no-such-command"}, 127, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			code, out, errs := w.run(t.Context(), tt.stdin, append([]string{"run"}, tt.args...)...)
			if code != tt.code || out != tt.out {
				t.Errorf("code %d, %d bytes out %.80q, stderr %q", code, len(out), out, errs)
			}
			if tt.code == 0 && errs != "" {
				t.Errorf("stderr = %q", errs)
			}
		})
	}
}

func TestRunEnvironment(t *testing.T) {
	t.Setenv("BERM_HOST_SECRET", "leaked")
	w := newWorld(t)
	_, out, _ := w.run(t.Context(), "", "run", "--env", "A=1=2", "--", "env")
	got := strings.Split(strings.TrimSpace(out), "\n")
	slices.Sort(got)
	want := []string{"A=1=2", "HOME=/home/agent", "LANG=C.UTF-8",
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/go/bin:/home/agent/.local/bin", "PWD=/workspace", "PYTHONUNBUFFERED=1", "USER=agent"}
	if !slices.Equal(got, want) {
		t.Errorf("env = %q", got)
	}
}

func TestRunReport(t *testing.T) {
	w := newWorld(t)
	r := w.json("", "--tag", "session=s1", "--memory", "1g", "--", "echo", "42")
	if r.Stdout != "42\n" || r.Stderr != "" || r.Ending != "exit" || r.ExitCode != 0 || r.Isolation != "gvisor" || r.Boundary != "user-kernel" ||
		r.Template != "host" || !api.ValidID(r.RunID) || !api.ValidID(r.SandboxID) || r.Tags["session"] != "s1" {
		t.Errorf("report = %+v", r)
	}
	want := api.Limits{TimeoutSeconds: 30, MemoryBytes: 1 << 30, CPUs: 1, Pids: 128, DiskBytes: 512 << 20, OutputBytes: 1 << 20}
	if r.Limits != want {
		t.Errorf("limits = %+v", r.Limits)
	}
	for _, part := range []string{"total", "create", "exec", "teardown"} {
		if r.TimingsMS[part] <= 0 {
			t.Errorf("timings_ms.%s = %v", part, r.TimingsMS[part])
		}
	}
	// Nothing in the report is null.
	_, out, _ := w.run(t.Context(), "", "run", "--json", "--", "true")
	if strings.Contains(out, "null") {
		t.Errorf("report = %s", out)
	}
}

func TestRunTimeout(t *testing.T) {
	w := newWorld(t)
	began := time.Now()
	r := w.json("", "--timeout", "300ms", "--", "sleep", "60")
	if r.Ending != "timeout" || r.ExitCode != 124 || !slices.Equal(r.CapsHit, []string{"timeout"}) {
		t.Errorf("report = %+v", r)
	}
	if d := time.Since(began); d > 3*time.Second {
		t.Errorf("took %v", d)
	}
	code, _, errs := w.run(t.Context(), "", "run", "--timeout", "100ms", "--", "sleep", "60")
	if code != 124 || !strings.HasPrefix(errs, "berm: timeout: still running after 100ms\ntry: ") {
		t.Errorf("%d %q", code, errs)
	}
}

func TestRunOutputKept(t *testing.T) {
	w := newWorld(t)
	r := w.json(strings.Repeat("x", 5000)+"END", "--stdin", "--output-limit", "1k", "--", "cat")
	if r.Ending != "exit" || len(r.Stdout) != 1024 || !strings.HasSuffix(r.Stdout, "END") || !r.Truncated.Stdout || r.Truncated.Stderr ||
		r.Truncated.DroppedBytes != 5003-1024 || !slices.Equal(r.CapsHit, []string{"output"}) {
		t.Errorf("%d bytes, %+v, %v", len(r.Stdout), r.Truncated, r.CapsHit)
	}
}

func TestRunFlood(t *testing.T) {
	w := newWorld(t)
	code, out, errs := w.run(t.Context(), strings.Repeat("x", 300_000), "run", "--stdin", "--output-limit", "1k", "--", "cat")
	if code != 123 || len(out) != 64<<10 || !strings.Contains(errs, "berm: output: ") {
		t.Errorf("code %d, %d bytes, %q", code, len(out), errs)
	}
}

func TestRunFiles(t *testing.T) {
	w := newWorld(t)
	t.Chdir(t.TempDir())
	os.MkdirAll("d/sub", 0o755)
	os.WriteFile("d/sub/a.txt", []byte("A"), 0o600)
	os.WriteFile("b.txt", []byte("B"), 0o644)
	r := w.json("", "--in", "d", "--in", "b.txt:c/", "--out", "d:back", "--out", "c/*.txt", "--out", "none", "--", "true")
	if r.ExitCode != 0 || len(r.Artifacts) != 2 || len(r.Denied) != 1 || r.Denied[0].Rule != "out.missing" {
		t.Fatalf("report = %+v", r)
	}
	for name, want := range map[string]string{"back/sub/a.txt": "A", "c/b.txt": "B"} {
		if got, err := os.ReadFile(name); err != nil || string(got) != want {
			t.Errorf("%s = %q, %v", name, got, err)
		}
	}
}

// A file that is replaced unasked is named; one that would be executed is not
// replaced.
func TestRunReplaces(t *testing.T) {
	w := newWorld(t)
	t.Chdir(t.TempDir())
	os.Mkdir("src", 0o755)
	for _, n := range []string{"a", "b", "tool", "src/a", "src/b", "src/tool", "src/.rc"} {
		os.WriteFile(n, []byte(n), 0o644)
	}
	os.Chmod("tool", 0o755)
	code, _, errs := w.run(t.Context(), "", "run", "--in", "src:.", "--out", ".", "--", "true")
	for _, says := range []string{"berm: out: .: 1 name that starts with a dot was left out\ntry: ", `berm: out: /workspace/tool: "tool" is already there and can be executed`,
		"berm: out: replaced 2 files that were there: a, b\n"} {
		if !strings.Contains(errs, says) {
			t.Errorf("no %q in %q", says, errs)
		}
	}
	a, _ := os.ReadFile("a")
	tool, _ := os.ReadFile("tool")
	if code != 0 || string(a) != "src/a" || string(tool) != "tool" {
		t.Errorf("%d, %q, %q", code, a, tool)
	}
}

func TestRunMissingInterpreter(t *testing.T) {
	w := newWorld(t)
	code, out, errs := w.run(t.Context(), "", "run", "--lang", "ruby", "--code", "puts 1")
	if code != 125 || out != "" || !strings.Contains(errs, "ruby: is not in template host") || !strings.Contains(errs, "try: apt-get install ruby") {
		t.Errorf("%d %q %q", code, out, errs)
	}
	_, out, _ = w.run(t.Context(), "", "run", "--json", "--lang", "ruby", "--code", "puts 1")
	var e api.Error
	if err := json.Unmarshal([]byte(out), &e); err != nil || e.Code != api.CodeInterpreterMissing {
		t.Errorf("%q, %v", out, err)
	}
}

// What is refused is refused before anything is opened.
func TestRunRefusals(t *testing.T) {
	for _, tt := range []struct {
		args []string
		says string
	}{
		{[]string{"run"}, "berm: run: no file, no --code and no command given\ntry: berm help run\n"},
		{[]string{"run", "--memory", "x", "--", "true"}, "berm: --memory x: is not a size"},
		{[]string{"run", "--isolation", "vm", "--", "true"}, "berm: --isolation vm: is not known; this host offers: auto, gvisor\n"},
		{[]string{"run", "-t", "--", "true"}, "berm: -t: your input and output are not both a terminal\n"},
		{[]string{"run", "-t", "--json", "--", "true"}, "berm: -t: gives the terminal"},
		{[]string{"run", "--nope", "--", "true"}, "berm: flag --nope: is not known\n"},
		{[]string{"rnu", "x.py"}, "berm: rnu: is not a verb of berm\ntry: berm run x.py\n"},
		{[]string{"run", "-it", "--", "sh"}, "berm: flag -it: is not known\ntry: -t\n"},
		{[]string{"run", "-i", "--", "sh"}, "berm: flag -i: is not known\ntry: --stdin, or -t"},
		{[]string{"run", "--rm", "--", "sh"}, "berm: flag --rm: is not known\ntry: leave it out"},
		{[]string{"run", "--", "echo", "a", "\xff"}, "berm: argument 2: holds bytes that are not UTF-8\ntry: pass them in a file"},
		{[]string{"run", "--lang", "sh", "--code", "\xff", "\xff"}, "berm: argument 1: holds bytes that are not UTF-8\n"},
		{[]string{"run", "--", "\xff"}, "berm: the name of what is to run: holds bytes"},
		{[]string{"run", "--env", "K=\xff", "--", "true"}, "berm: --env K: holds bytes that are not UTF-8\ntry: "},
		{[]string{"run", "--tag", "K=\xff", "--", "true"}, "berm: --tag K: holds bytes that are not UTF-8\n"},
		{[]string{"run", "--out", "\xff", "--", "true"}, "berm: --out: holds bytes that are not UTF-8\n"},
		{[]string{"run", "--out", ".git/config", "--", "true"}, "berm: --out .git/config: is what git keeps"},
		{[]string{"bench", "run", "-n", "0"}, "berm: -n 0: is not a whole number"},
		{[]string{"--nope"}, "berm: flag --nope: is not known\n"},
		{[]string{"help", "nope"}, "berm: nope: is not a verb of berm, so"},
		{[]string{"completion", "tcsh"}, "berm: completion tcsh: "},
	} {
		w := newWorld(t)
		code, out, errs := w.run(t.Context(), "", tt.args...)
		if code != 125 || (out != "") != slices.Contains(tt.args, "--json") || !strings.HasPrefix(errs, tt.says) || w.opens != 0 {
			t.Errorf("%q: %d %q %q, opened %d", tt.args, code, out, errs, w.opens)
		}
	}
}

func TestRunLimitRefusedByServer(t *testing.T) {
	w := newWorld(t)
	code, _, errs := w.run(t.Context(), "", "run", "--memory", "1m", "--", "true")
	if code != 125 || !strings.Contains(errs, "berm: memory: ") {
		t.Errorf("%d %q", code, errs)
	}
}

func TestRunBackendFails(t *testing.T) {
	w := newWorld(t)
	w.flaky.StartErr = errors.New("no room")
	code, _, errs := w.run(t.Context(), "", "run", "--", "true")
	if code != 125 || errs != "berm: start sandbox: no room\ntry: berm doctor\n" {
		t.Errorf("%d %q", code, errs)
	}
	w.flaky.StartErr = nil
	w.flaky.CheckErr = &api.Error{Code: api.CodeRungUnavailable, Message: "gvisor: needs a task cap", Hint: "--pids=unlimited"}
	code, _, errs = w.run(t.Context(), "", "run", "--", "true")
	if code != 125 || errs != "berm: gvisor: needs a task cap\ntry: --pids=unlimited\n" {
		t.Errorf("%d %q", code, errs)
	}
}

func TestRunOpenOptions(t *testing.T) {
	w := newWorld(t)
	w.run(t.Context(), "", "--state", "/s", "run", "--template", "/rootfs", "--isolation", "gvisor", "--", "true")
	if w.opened.StateDir != "/s" || w.opened.Template != "/rootfs" || w.opened.Isolation != "gvisor" {
		t.Errorf("opened = %+v", w.opened)
	}
	w.run(t.Context(), "", "run", "--state=/other", "--", "true")
	if w.opened.StateDir != "/other" {
		t.Errorf("opened = %+v", w.opened)
	}
}

func TestSmallVerbs(t *testing.T) {
	w := newWorld(t)
	for _, tt := range []struct {
		args []string
		want string
	}{
		{nil, "berm run"},
		{[]string{"help"}, "completion"},
		{[]string{"help", "run"}, "--output-limit SIZE"},
		{[]string{"run", "--help"}, "Exit code"},
		{[]string{"version"}, "berm v0"},
		{[]string{"--version"}, "berm v0"},
		{[]string{"version", "--json"}, `{"version":"v0","go":"go","os":"linux","arch":"amd64"}`},
		{[]string{"completion", "bash"}, "complete -F _berm berm"},
		{[]string{"completion", "zsh"}, "bashcompinit"},
		{[]string{"completion", "fish"}, "complete -c berm"},
	} {
		code, out, errs := w.run(t.Context(), "", tt.args...)
		if code != 0 || !strings.Contains(out, tt.want) || errs != "" {
			t.Errorf("%q: %d %q %q", tt.args, code, out, errs)
		}
	}
}
