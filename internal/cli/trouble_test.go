package cli_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/cli"
)

// A full device is not success.
func TestRunOutputCannotBeWritten(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	for _, tt := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"run", "--json", "--", "echo", "x"}, 125, "berm: standard output: no space left on device\ntry: send it to a place that takes it\n"},
		{[]string{"run", "--", "echo", "x"}, 137, "berm: killed: the output could not be written: no space left on device\n"},
		{[]string{"version", "--json"}, 125, "berm: standard output: no space left on device\ntry: send it to a place that takes it\n"},
	} {
		w := newWorld(t)
		errs, err := os.Create(filepath.Join(t.TempDir(), "err"))
		if err != nil {
			t.Fatal(err)
		}
		code := cli.Main(t.Context(), cli.Env{Args: tt.args, Stdin: os.Stdin, Stdout: full, Stderr: errs, Open: w.open})
		errs.Close()
		if b, _ := os.ReadFile(errs.Name()); code != tt.code || string(b) != tt.says {
			t.Errorf("%q: %d %q", tt.args, code, b)
		}
	}
}

func TestRunNotStarted(t *testing.T) {
	w := newWorld(t)
	code, _, errs := w.run(t.Context(), "", "run", "--", "nosuch")
	if code != 127 || strings.Count(errs, "nosuch:") != 1 || !strings.Contains(errs, "\ntry: install nosuch") {
		t.Errorf("%d %q", code, errs)
	}
	r := w.json("", "--", "nosuch")
	if r.ExitCode != 127 || r.Ending != "exit" || !strings.HasPrefix(r.Reason, "nosuch: ") {
		t.Errorf("report = %+v", r)
	}
	t.Chdir(t.TempDir())
	os.WriteFile("mine.sh", []byte("echo"), 0o755)
	if _, _, errs = w.run(t.Context(), "", "run", "--", "./mine.sh", "1"); !strings.Contains(errs, "\ntry: berm run ./mine.sh 1\n") {
		t.Errorf("%q", errs)
	}
}

// Before anything was executed an interruption is a refusal; after that the
// program was killed.
func TestRunInterrupted(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT} {
		w := newWorld(t)
		slow := func(ctx context.Context, _ cli.OpenOptions) (*cli.Session, error) {
			syscall.Kill(syscall.Getpid(), sig)
			<-ctx.Done()
			return nil, ctx.Err()
		}
		var e api.Error
		code, out, errs := w.with(slow).run(t.Context(), "", "run", "--json", "--", "true")
		if err := json.Unmarshal([]byte(out), &e); err != nil || code != 125 || e.Code != api.CodeInterrupted || errs != "berm: run: interrupted, nothing was executed\n" {
			t.Errorf("%v: %d %q %q", sig, code, out, errs)
		}
		w = newWorld(t)
		time.AfterFunc(400*time.Millisecond, func() { syscall.Kill(syscall.Getpid(), sig) })
		if r := w.json("", "--", "sleep", "60"); r.Ending != "killed" || r.ExitCode != 137 || r.Reason != "interrupted" {
			t.Errorf("%v: %+v", sig, r)
		}
	}
}

// What did not come back is in the report, with its folder and the reason.
func TestRunOutTrouble(t *testing.T) {
	w := newWorld(t)
	t.Chdir(t.TempDir())
	os.WriteFile("in", []byte("x"), 0o644)
	os.Symlink("nowhere", "link")
	for _, tt := range []struct {
		out, says string
	}{
		{"x:/proc/foo", `berm: --out x:/proc/foo: "/proc" cannot be written on this host: `},
		{"[", "berm: --out '[': is not a glob"},
		{"../*", "berm: --out '../*': the path inside has a .. in it"},
		{"x:in/y", `berm: --out x:in/y: "in" cannot be written on this host: in is not a folder`},
	} {
		code, out, errs := w.run(t.Context(), "", "run", "--json", "--out", tt.out, "--", "true")
		if code != 125 || !strings.HasPrefix(errs, tt.says) || !strings.Contains(errs, "\ntry: ") || !strings.Contains(out, "request.invalid") || w.opens != 0 {
			t.Errorf("%s: %d %q %q, opened %d", tt.out, code, out, errs, w.opens)
		}
	}
	// What could still be done when it began.
	r := w.json("", "--in", "in", "--in", "in:d", "--out", "in:link", "--out", "d:back/", "--", "true")
	if len(r.Denied) != 1 || r.Denied[0].Kind != "artifact" || r.Denied[0].Rule != "out.symlink" || len(r.Artifacts) != 1 {
		t.Errorf("report = %+v %+v", r.Denied, r.Artifacts)
	}
}

// A flag that stands where it is the program's is named when that went wrong.
func TestRunLateFlag(t *testing.T) {
	w := newWorld(t)
	t.Chdir(t.TempDir())
	os.WriteFile("tool", []byte("#!false\n"), 0o644)
	for _, tt := range []struct{ args, says string }{
		{"tool --json", "berm: --json: stands after tool, so the program got it and berm did not\ntry: berm run --json tool\n"},
		{"tool x --memory 1g", "try: berm run --memory SIZE tool\n"},
		{"tool -- --json", ""},
		{"tool --own", ""},
	} {
		_, _, errs := w.run(t.Context(), "", append([]string{"run"}, strings.Fields(tt.args)...)...)
		if got := strings.Contains(errs, "stands after"); got != (tt.says != "") || !strings.Contains(errs, tt.says) {
			t.Errorf("%q: %q", tt.args, errs)
		}
	}
}

// A pipe that nobody reads keeps neither a signal nor the end of time.
func TestRunUnread(t *testing.T) {
	for _, tt := range []struct {
		name   string
		signal bool
		code   int
		says   string
	}{
		{"signal", true, 137, "berm: killed: interrupted\nberm: output: nobody read it; up to "},
		{"time", false, 124, "berm: timeout: still running after 500ms\ntry: berm run --timeout 2s\nberm: output: nobody read it; up to "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			r, pw, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			pw.Fd() // blocking, as standard output is
			in, err := os.Open("/dev/zero")
			if err != nil {
				t.Fatal(err)
			}
			defer in.Close()
			errs, err := os.Create(filepath.Join(t.TempDir(), "err"))
			if err != nil {
				t.Fatal(err)
			}
			defer errs.Close()
			timeout := "500ms"
			if tt.signal {
				timeout = "1m"
				time.AfterFunc(500*time.Millisecond, func() { syscall.Kill(syscall.Getpid(), syscall.SIGTERM) })
			}
			began := time.Now()
			code := cli.Main(t.Context(), cli.Env{Args: []string{"run", "--timeout", timeout, "--stdin", "--", "cat"}, Stdin: in, Stdout: pw, Stderr: errs, Open: w.open})
			took := time.Since(began)
			if b, _ := os.ReadFile(errs.Name()); code != tt.code || !strings.HasPrefix(string(b), tt.says) {
				t.Errorf("%d %q", code, b)
			}
			if tt.signal && took > 2500*time.Millisecond || took > 12*time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
}
