package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestOrphan: a process that lost its parent is still seen, and gone once it is.
func TestOrphan(t *testing.T) {
	if err := reaper(); err != nil {
		t.Fatal(err)
	}
	before := mustLook(t, "")
	pid, err := syscall.ForkExec("/bin/sh", []string{"sh", "-c", "setsid sleep 0.4 & exit 0"}, &syscall.ProcAttr{Env: os.Environ()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := syscall.Wait4(pid, nil, 0, nil); err != nil {
		t.Fatal(err)
	}
	diff, _, err := settle("", before, 0)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(diff, func(s string) bool { return strings.HasPrefix(s, "processes: new:") }) {
		t.Errorf("the orphan is not seen: %v", diff)
	}
	if diff, _, err = settle("", before, 5*time.Second); err != nil || len(diff) > 0 {
		t.Errorf("after its end: %v, %v", diff, err)
	}
}

// TestStateDirectory: a file more, a file less and a file that grew are differences.
func TestStateDirectory(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("grows", "1")
	write("goes", "1")
	before := view{"state directory": entries(dir)}
	write("grows", "22")
	write("new", "")
	if err := os.Remove(filepath.Join(dir, "goes")); err != nil {
		t.Fatal(err)
	}
	diff := compare(before, view{"state directory": entries(dir)})
	if len(diff) != 4 {
		t.Errorf("differences: %s", strings.Join(diff, "\n"))
	}
}
