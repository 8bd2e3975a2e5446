package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
)

// hereTree makes a tree of many files: 50,000 with BERM_PROOF, else 5,000.
func hereTree(t *testing.T) string {
	t.Helper()
	n := 5000
	if os.Getenv("BERM_PROOF") != "" {
		n = 50000
	}
	dir := t.TempDir()
	for i := range n {
		p := filepath.Join(dir, fmt.Sprintf("node_modules/pkg%d/lib/mod%d", i/200, i/20%10))
		if i%20 == 0 {
			if err := os.MkdirAll(p, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		text := strings.Repeat("line of a file that is like others\n", i%60) + fmt.Sprint(i)
		if err := os.WriteFile(filepath.Join(p, fmt.Sprintf("file%d.js", i)), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestHereBig: a run in a tree that did not change sends nothing and begins
// soon after one without a tree, with a daemon and without; a change costs what
// changed.
func TestHereBig(t *testing.T) {
	bin, state := binary(t)
	tree := hereTree(t)
	time.Sleep(2100 * time.Millisecond) // what is younger is read again
	daemon := serve(t)
	for _, where := range []struct {
		name string
		args []string
	}{
		{"without a daemon", []string{"--state", state, "run", "--no-daemon"}},
		{"with a daemon", []string{"--state", daemon.state, "run"}},
	} {
		run := func(args ...string) (api.RunReport, time.Duration) {
			t.Helper()
			cmd := exec.Command(bin, slices.Concat(where.args, []string{"--json"}, args)...)
			cmd.Dir = tree
			began := time.Now()
			out, err := cmd.Output()
			took := time.Since(began)
			var r api.RunReport
			if err != nil || json.Unmarshal(out, &r) != nil {
				t.Fatalf("%s: %v: %v: %s", where.name, args, err, out)
			}
			return r, took
		}
		first, took := run("--here", "--", "true")
		if first.Here == nil || first.Here.Uploaded == 0 {
			t.Fatalf("%s: the first run: %+v", where.name, first.Here)
		}
		t.Logf("%s: first run %v, %d entries, %d bytes", where.name, took, first.Here.Files, first.Here.Uploaded)
		run("--here", "--", "true")
		var with, without []time.Duration
		for range 7 {
			r, d := run("--here", "--", "true")
			if r.Here.Uploaded != 0 || r.Here.Changed+r.Here.Added+r.Here.Removed != 0 {
				t.Errorf("%s: an unchanged tree: %+v", where.name, r.Here)
			}
			with = append(with, d)
			_, d = run("--", "true")
			without = append(without, d)
		}
		slices.Sort(with)
		slices.Sort(without)
		t.Logf("%s: with --here %v, without %v (medians)", where.name, with[3], without[3])
		if with[3]-without[3] > 5*time.Second { // a second on an idle machine; see docs/specification.md
			t.Errorf("%s: --here adds %v", where.name, with[3]-without[3])
		}
		if err := os.WriteFile(filepath.Join(tree, "changed.txt"), []byte("now "+where.name), 0o644); err != nil {
			t.Fatal(err)
		}
		r, _ := run("--here", "--", "sh", "-c", "cat changed.txt; rm -r node_modules/pkg1")
		if want := int64(len("now " + where.name)); r.Here.Uploaded != want || !strings.HasPrefix(r.Stdout, "now") || r.Here.Removed != 200 {
			t.Errorf("%s: after a change: %+v, %q", where.name, r.Here, r.Stdout)
		}
		os.Remove(filepath.Join(tree, "changed.txt"))
	}
}

// TestHereEnds: what a program changed is kept also when berm was told to stop.
func TestHereEnds(t *testing.T) {
	bin, state := binary(t)
	tree := t.TempDir()
	cmd := exec.Command(bin, "--state", state, "run", "--no-daemon", "--here", "--", "sh", "-c", "echo x > late; echo ready; sleep 60")
	cmd.Dir = tree
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	cmd.Process.Signal(os.Interrupt)
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 137 {
		t.Errorf("exit code %d", code)
	}
	diff := exec.Command(bin, "--state", state, "diff", "last", "--name-status")
	diff.Dir = tree
	if got, err := diff.CombinedOutput(); err != nil || string(got) != "A\tlate\n" {
		t.Errorf("%v: %s", err, got)
	}
	if names, _ := os.ReadDir(tree); len(names) > 0 {
		t.Errorf("the tree was written to: %v", names)
	}
}
