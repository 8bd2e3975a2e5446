package main

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// proof says that the long form of the tests was asked for (`make proof`).
var proof = os.Getenv("BERM_PROOF") != ""

// reaper is the one becomeReaper of this test binary.
var reaper = sync.OnceValue(becomeReaper)

// realBerm returns the binary to test and its state directory, with the
// template and the runtimes already in place, or skips.
func realBerm(t *testing.T) (bin, state string) {
	t.Helper()
	bin = os.Getenv("BERM_BIN")
	if bin == "" {
		t.Skip("needs bin/berm: make test builds it and names it in BERM_BIN")
	}
	if os.Getuid() != 0 {
		t.Skip("needs root, to cap sandboxes and to see all of the host")
	}
	state = cmp.Or(os.Getenv("BERM_STATE"), filepath.Join(t.TempDir(), "state"))
	t.Setenv("BERM_STATE", state)
	if err := reaper(); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(bin, "run", "--", "true").CombinedOutput(); err != nil {
		t.Fatalf("a first run, which prepares the template: %v\n%s", err, out)
	}
	return bin, state
}

// mustBegin takes a first look or ends the test.
func mustBegin(t *testing.T, state string) *watch {
	t.Helper()
	w, err := begin(thisHost(state))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.close)
	return w
}

// mustSettle fails the test if anything of ours still differs after the grace.
func mustSettle(t *testing.T, w *watch) {
	t.Helper()
	began := time.Now()
	ours, _, _, err := w.settle(grace)
	if err != nil {
		t.Fatal(err)
	}
	if len(ours) > 0 {
		t.Fatalf("left behind after %v:\n%v", time.Since(began).Round(time.Millisecond), ours)
	}
}

// started starts berm in its own process group. What it printed is logged if
// the test fails.
func started(t *testing.T, bin string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(bin, args...)
	// Files, not pipes: Wait must not wait for whoever inherited the other end.
	f, err := os.CreateTemp(t.TempDir(), "out")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd.Stdout, cmd.Stderr = f, f
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		data, _ := os.ReadFile(f.Name())
		if t.Failed() && len(data) > 0 {
			t.Logf("%s printed:\n%s", strings.Join(args, " "), data)
		}
	})
	return cmd
}
