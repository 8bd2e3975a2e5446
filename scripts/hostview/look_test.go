package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
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
	w := mustBegin(t, "")
	pid, err := syscall.ForkExec("/bin/sh", []string{"sh", "-c", "setsid sleep 0.4 & exit 0"}, &syscall.ProcAttr{Env: os.Environ()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := syscall.Wait4(pid, nil, 0, nil); err != nil {
		t.Fatal(err)
	}
	ours, _, _, err := w.settle(0)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(ours, func(c change) bool { return c.kind == "processes" && !c.gone }) {
		t.Errorf("the orphan is not seen: %v", ours)
	}
	if ours, _, _, err = w.settle(5 * time.Second); err != nil || len(ours) > 0 {
		t.Errorf("after its end: %v, %v", ours, err)
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
	w := mustBegin(t, dir)
	write("grows", "22")
	write("new", "")
	if err := os.Remove(filepath.Join(dir, "goes")); err != nil {
		t.Fatal(err)
	}
	ours, _, _, err := w.settle(0)
	ours = slices.DeleteFunc(ours, func(c change) bool { return c.kind != "state directory" })
	if err != nil || len(ours) != 4 {
		t.Errorf("%v, differences: %v", err, ours)
	}
}

// TestGroups: whose a new cgroup is. The tree is a folder of the test's own.
func TestGroups(t *testing.T) {
	state, tree := t.TempDir(), t.TempDir()
	child := exec.Command("sleep", "60")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = child.Process.Kill(); _ = child.Wait() }()
	mine, other := os.Getpid(), child.Process.Pid
	mkdir := func(parts ...string) string {
		dir := filepath.Join(parts...)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	group := func(name string, procs ...int) string {
		dir := mkdir(tree, "memory", name)
		text := strings.Trim(strings.ReplaceAll(fmt.Sprint(procs), " ", "\n"), "[]")
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	gone := group("berm-before")
	// The child stands for us, so this test and its parents are the others.
	h := host{state: state, cgroups: tree, root: other}
	w, err := begin(h)
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	if err := os.RemoveAll(gone); err != nil {
		t.Fatal(err)
	}
	mkdir(state, "runs", "sours")
	time.Sleep(50 * time.Millisecond)
	if err := os.RemoveAll(filepath.Join(state, "runs")); err != nil { // the record alone is gone
		t.Fatal(err)
	}
	want := map[string]bool{
		gone:                            false, // not of this run
		group("docker"):                 false, // speaks of somebody else
		group("berm-empty"):             true,  // in doubt
		group("berm-dead", 1<<30):       true,  // the process is not to be found
		group("berm-in", other):         true,  // holds one of ours
		group("berm-both", mine, other): true,  // holds one of ours too
		group("berm-out", mine):         false, // holds another's
		group("berm-namespace", 0):      false, // holds one of another pid namespace
		group("berm-sours"):             true,  // its record was seen
		group("berm-sours/a", mine):     true,  // below it
	}
	judge := func() map[string]bool {
		ours, others, _, err := w.settle(0)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]bool{}
		for _, c := range append(ours, others...) {
			if c.kind == "cgroups" {
				got[c.what] = slices.Contains(ours, c)
			}
		}
		return got
	}
	got := judge()
	for dir, ours := range want {
		if is, seen := got[dir]; !seen || is != ours {
			t.Errorf("%s: seen %v, ours %v, want %v", dir, seen, is, ours)
		}
	}
	// What another held a moment ago is still its own when it is being removed.
	if dir := group("berm-out"); judge()[dir] {
		t.Errorf("%s became ours", dir)
	}
}

// TestSockets: a socket with a name counts if one of ours holds it.
func TestSockets(t *testing.T) {
	child := exec.Command("sleep", "60")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = child.Process.Kill(); _ = child.Wait() }()
	name := fmt.Sprintf("@berm-hostview-test-%d", os.Getpid())
	for _, root := range []int{os.Getpid(), child.Process.Pid} {
		h := thisHost("")
		h.root = root
		w, err := begin(h)
		if err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("unix", name)
		if err != nil {
			t.Fatal(err)
		}
		ours, others, _, err := w.settle(0)
		if err != nil {
			t.Fatal(err)
		}
		is := func(c change) bool { return strings.HasPrefix(c.what, name+" ") }
		if mine := root == os.Getpid(); slices.ContainsFunc(ours, is) != mine || slices.ContainsFunc(others, is) == mine {
			t.Errorf("held by us: %v; ours %v, others %v", mine, ours, others)
		}
		l.Close()
		w.close()
	}
}

// TestNames: mounts and devices of others are told apart by what they name.
func TestNames(t *testing.T) {
	w := &watch{host: host{state: "/srv/state"}}
	for text, want := range map[string]bool{
		"90 1 0:50 / /var/lib/docker/overlay2/x/merged rw - overlay overlay rw": false,
		"90 1 0:50 / /mnt rw - ext4 /srv/state/templates/a rw":                  true,
		"90 1 0:50 / /mnt/x rw - tmpfs berm-ctl rw":                             true,
	} {
		if got := w.isOurs(change{"mounts", text, false}, nil, nil); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
	if w.isOurs(change{"network devices", "tun0", false}, nil, nil) || !w.isOurs(change{"network devices", "berm0", false}, nil, nil) {
		t.Error("devices")
	}
}

// TestVerdict: a wrong exit code and a host that differs are two things.
func TestVerdict(t *testing.T) {
	left := []change{{"processes", "7 (sleep)", false}}
	for _, tt := range []struct {
		want, code int
		ours       []change
		says       []string
	}{
		{-1, 3, nil, nil},
		{137, 137, nil, nil},
		{137, 1, nil, []string{"x: exit code 1, not 137"}},
		{137, 137, left, []string{"x: the host differs afterwards (differences: 1): processes: new: 7 (sleep)"}},
		{0, 1, left, []string{"x: exit code 1, not 0", "x: the host differs afterwards (differences: 1): processes: new: 7 (sleep)"}},
	} {
		if got := verdict(options{want: tt.want, name: "x"}, tt.code, tt.ours); !slices.Equal(got, tt.says) {
			t.Errorf("%+v: %q", tt, got)
		}
	}
}
