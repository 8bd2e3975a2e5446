package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bermhq/berm/attack"
)

// needs makes sure that sandboxes can run here and returns a state directory.
func needs(t *testing.T) (state, blobs string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: the caps of a weak build are judged by cgroups")
	}
	blobs, err := filepath.Abs("../berm/blobs")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(blobs, "sandbox.gz")); err != nil {
		t.Skip("needs the packed programs (try: make build)")
	}
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("needs python3, which most cases are written in")
	}
	if state = os.Getenv("BERM_STATE"); state == "" {
		state = t.TempDir()
	}
	return state, blobs
}

// whole is the berm that has all its walls.
func whole(t *testing.T) string {
	t.Helper()
	berm := os.Getenv("BERM_BIN")
	if berm == "" {
		berm = "../../bin/berm"
	}
	if _, err := os.Stat(berm); err != nil {
		t.Skip("needs bin/berm (try: make build)")
	}
	return berm
}

// buildWeak builds the other one.
func buildWeak(t *testing.T) string {
	t.Helper()
	weak := filepath.Join(t.TempDir(), "berm-weak")
	build := exec.Command("go", "build", "-tags", "weak", "-trimpath", "-o", weak, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return weak
}

// makeRoot makes the template in which the guest's root is granted.
func makeRoot(t *testing.T, state, name string) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "Dockerfile")
	if err := os.WriteFile(file, []byte("FROM host\nUSER root\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(whole(t), "--state", state, "template", "build", name, "--replace", "--file", file, dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("template: %v\n%s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command(whole(t), "--state", state, "template", "rm", name).CombinedOutput(); err != nil {
			t.Errorf("template rm: %v\n%s", err, out)
		}
	})
}

// run attacks with cmd and returns the report and the exit code.
func run(t *testing.T, cmd *exec.Cmd) (attack.Report, int) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var ee *exec.ExitError
	if err != nil && !errors.As(err, &ee) {
		t.Fatal(err)
	}
	var r attack.Report
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatalf("no report: %v\n%s", err, errs.String())
	}
	return r, cmd.ProcessState.ExitCode()
}

// bystanders are quick cases, of each family some, so that for every wall one of
// each is left that has nothing to do with it: it must stay contained.
var bystanders = []string{
	"egress-none-udp", "egress-none-tcp", "credentials-ssh", "credentials-env", "exhaustion-output-flood", "exhaustion-zombies",
	"escape-kernel-settings", "escape-tar-dotdot", "api-policy-wider", "api-tenant-read",
}

// beside are the bystanders of w, one per family and not of w.
func beside(w wall, all []attack.Case) (out []string) {
	taken := map[string]bool{}
	for _, id := range bystanders {
		i := slices.IndexFunc(all, func(c attack.Case) bool { return c.ID == id })
		if i >= 0 && all[i].Wall != w.name && !taken[all[i].Family] && (w.quiet == nil || !w.quiet(all[i])) {
			taken[all[i].Family] = true
			out = append(out, id)
		}
	}
	return out
}

// sample is every eighth case that is not of w, beginning with another for each
// wall: all of them for all walls would take an hour. BERM_PROOF=all takes it.
func sample(w wall, turn int, all []attack.Case) (out []string) {
	step := 8
	if os.Getenv("BERM_PROOF") == "all" {
		step = 1
	}
	for i, c := range all {
		if i%step == turn%step && c.Wall != w.name && c.Waits == "" && (w.quiet == nil || !w.quiet(c)) {
			out = append(out, c.ID)
		}
	}
	return out
}

// TestWeak takes out one wall after the other. The cases of that wall must go
// red and no others: of both, in the short form, the quickest, in the long form
// all of the wall and a sample of the others. The build with all its walls must
// be contained throughout.
func TestWeak(t *testing.T) {
	state, blobs := needs(t)
	all, err := attack.Cases()
	if err != nil {
		t.Fatal(err)
	}
	weak := buildWeak(t)
	long := os.Getenv("BERM_PROOF") != ""
	var asked []string
	for turn, w := range walls {
		red := w.red()
		others := beside(w, all)
		if long {
			others = sample(w, turn, all)
		} else {
			red = red[:1]
		}
		if w.forget {
			others = nil // a session that is never closed is seen in every case
		}
		asked = append(asked, red...)
		t.Run(w.name, func(t *testing.T) {
			if w.template != "" {
				makeRoot(t, state, w.template)
			}
			only := append(slices.Clone(red), others...)
			cmd := exec.Command(weak, "attack", "--json", "--only", strings.Join(only, ","))
			cmd.Env = append(os.Environ(), "BERM_WEAK_WALL="+w.name, "BERM_WEAK_BLOBS="+blobs, "BERM_STATE="+state)
			r, code := run(t, cmd)
			if code != 1 || len(r.Cases) != len(only) {
				t.Errorf("without %s: exit code %d, %d cases of %d", w.name, code, len(r.Cases), len(only))
			}
			shown := 0
			for _, c := range r.Cases {
				isRed := slices.Contains(red, c.ID)
				switch {
				case c.Verdict == attack.NotApplicable:
					t.Logf("%s: %s", c.ID, c.Evidence)
				case isRed && c.Verdict == attack.Breached:
					shown++
				case isRed:
					t.Errorf("without %s: %s is %s: it does not see that the wall is missing: %s", w.name, c.ID, c.Verdict, c.Evidence)
				case c.Verdict != attack.Contained || c.Seen != nil && !*c.Seen:
					t.Errorf("without %s: %s is %s, and has nothing to do with it: %s", w.name, c.ID, c.Verdict, c.Evidence)
				}
			}
			if shown == 0 {
				t.Errorf("without %s nothing goes red", w.name)
			}
			t.Logf("%d red, %d others contained", shown, len(r.Cases)-len(red))
		})
	}
	if !long {
		return // scripts/test.sh attacks the whole one beside this
	}
	t.Run("all walls up", func(t *testing.T) {
		cmd := exec.Command(whole(t), "attack", "--json", "--only", strings.Join(asked, ","))
		cmd.Env = append(os.Environ(), "BERM_STATE="+state)
		r, code := run(t, cmd)
		if code != 0 || len(r.Cases) != len(asked) {
			t.Errorf("exit code %d, %d cases of %d", code, len(r.Cases), len(asked))
		}
		for _, c := range r.Cases {
			if c.Verdict != attack.Contained && c.Verdict != attack.NotApplicable || c.Seen != nil && !*c.Seen {
				t.Errorf("%s is %s: %s", c.ID, c.Verdict, c.Evidence)
			}
		}
	})
}

// TestTooNarrow runs programs that do normal work behind walls that are too
// narrow for some: those are false blocks and counted, the others are not.
func TestTooNarrow(t *testing.T) {
	state, blobs := needs(t)
	blocked := []string{"benign-disk", "benign-http", "benign-output", "benign-threads", "benign-memory", "benign-environment"}
	fine := []string{"benign-pipeline", "benign-exit-code", "benign-artifacts"}
	cmd := exec.Command(buildWeak(t), "attack", "--json", "--only", strings.Join(append(slices.Clone(blocked), fine...), ","))
	cmd.Env = append(os.Environ(), "BERM_WEAK_WALL="+narrow.name, "BERM_WEAK_BLOBS="+blobs, "BERM_STATE="+state)
	r, code := run(t, cmd)
	if code != 1 || r.Summary.FalseBlocks != len(blocked) || len(r.Benign) != len(blocked)+len(fine) {
		t.Errorf("exit code %d, %d false blocks, %d programs", code, r.Summary.FalseBlocks, len(r.Benign))
	}
	for _, b := range r.Benign {
		if b.Hindered != slices.Contains(blocked, b.ID) {
			t.Errorf("%s: hindered is %v: %s", b.ID, b.Hindered, b.Evidence)
		}
	}
}
