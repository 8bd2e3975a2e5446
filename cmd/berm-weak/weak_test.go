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

// bystander is a case of no wall that can be taken out here: it must stay
// contained whatever is missing.
const bystander = "escape-kernel-doors"

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

type report struct {
	Cases []struct {
		ID, Verdict, Evidence string
		Seen                  *bool
	}
}

// run attacks with cmd and returns the report and the exit code.
func run(t *testing.T, cmd *exec.Cmd) (report, int) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var ee *exec.ExitError
	if err != nil && !errors.As(err, &ee) {
		t.Fatal(err)
	}
	var r report
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatalf("no report: %v\n%s", err, errs.String())
	}
	return r, cmd.ProcessState.ExitCode()
}

// TestWeak takes out one wall after the other. The cases of that wall must go
// red and no others; the build with all its walls must be contained throughout.
func TestWeak(t *testing.T) {
	state, blobs := needs(t)
	weak := filepath.Join(t.TempDir(), "berm-weak")
	build := exec.Command("go", "build", "-trimpath", "-o", weak, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	long := os.Getenv("BERM_PROOF") != ""
	asked := []string{bystander}
	for _, w := range walls {
		red := w.red()
		if !long {
			red = red[:1]
		}
		asked = append(asked, red...)
		t.Run(w.name, func(t *testing.T) {
			only := append([]string{bystander}, red...)
			if w.forget {
				only = red // a session that is never closed is seen in every case
			}
			cmd := exec.Command(weak, "attack", "--json", "--only", strings.Join(only, ","))
			cmd.Env = append(os.Environ(), "BERM_WEAK_WALL="+w.name, "BERM_WEAK_BLOBS="+blobs, "BERM_STATE="+state)
			r, code := run(t, cmd)
			if code != 1 || len(r.Cases) != len(only) {
				t.Errorf("without %s: exit code %d, %d cases", w.name, code, len(r.Cases))
			}
			for _, c := range r.Cases {
				want := "contained"
				if slices.Contains(red, c.ID) {
					want = "breached"
				}
				if c.Verdict != want {
					t.Errorf("without %s: %s is %s, not %s: %s", w.name, c.ID, c.Verdict, want, c.Evidence)
				}
			}
		})
	}
	t.Run("all walls up", func(t *testing.T) {
		berm := os.Getenv("BERM_BIN")
		if berm == "" {
			berm = "../../bin/berm"
		}
		if _, err := os.Stat(berm); err != nil {
			t.Skip("needs bin/berm (try: make build)")
		}
		cmd := exec.Command(berm, "attack", "--json", "--only", strings.Join(asked, ","))
		cmd.Env = append(os.Environ(), "BERM_STATE="+state)
		r, code := run(t, cmd)
		if code != 0 || len(r.Cases) != len(asked) {
			t.Errorf("exit code %d, %d cases of %d", code, len(r.Cases), len(asked))
		}
		for _, c := range r.Cases {
			if c.Verdict != "contained" || c.Seen != nil && !*c.Seen {
				t.Errorf("%s is %s: %s", c.ID, c.Verdict, c.Evidence)
			}
		}
	})
}

// TestEveryAttackCanFail: where a wall can be taken out here, each case that
// names it turns red without it, or says why it does not.
func TestEveryAttackCanFail(t *testing.T) {
	all, err := attack.Cases()
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range walls {
		if len(w.red()) == 0 || attack.Walls[w.name] == "" {
			t.Errorf("wall %s has no case, or is none of attack.Walls", w.name)
		}
	}
	for _, c := range all {
		if c.Bare != "" && c.Stays != "" {
			t.Errorf("%s says twice why it cannot fail", c.ID)
		}
	}
}

// TestRefusesWithoutAWall: nobody gets a weak berm without having named how.
func TestRefusesWithoutAWall(t *testing.T) {
	for _, name := range []string{"", "all", "none", "env,files"} {
		if _, ok := find(name); ok {
			t.Errorf("%q names a wall", name)
		}
	}
	seen := map[string]bool{}
	for _, w := range walls {
		if seen[w.name] || w.without == "" || len(w.red()) == 0 {
			t.Errorf("wall %q is there twice, or does not say what must see that it is missing", w.name)
		}
		seen[w.name] = true
		if !w.out() {
			t.Errorf("wall %q is not taken out", w.name)
		}
	}
}
