package here

import (
	"archive/tar"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// A desk is a tree that went in, and a way to make runs that changed it.
type desk struct {
	t     *testing.T
	dir   string
	state *State
	in    []Entry
	n     int
}

func newDesk(t *testing.T, files map[string]string) *desk {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	d := &desk{t: t, dir: filepath.Join(dir, "tree")}
	os.Mkdir(d.dir, 0o755)
	put(t, d.dir, files)
	st, err := OpenState(filepath.Join(dir, "state"))
	if err != nil {
		t.Fatal(err)
	}
	d.state = st
	d.in = syncTree(t, d.dir, filepath.Join(dir, "state"), newFake(), Options{}).Entries
	return d
}

func (d *desk) run(ms ...member) *Run {
	d.t.Helper()
	tree, err := Open(d.dir, Options{})
	if err != nil {
		d.t.Fatal(err)
	}
	defer tree.Close()
	d.n++
	info := Info{ID: fmt.Sprintf("r%030d", d.n), Tree: tree.Dir, Ended: time.Now().Add(time.Duration(d.n) * time.Second)}
	if _, err := d.state.Keep(info, tree, d.in, bytes.NewReader(tarOf(d.t, ms...)), Limits{}); err != nil {
		d.t.Fatal(err)
	}
	r, err := d.state.Find(info.ID, "/")
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(r.Close)
	return r
}

func (d *desk) apply(r *Run, opt ApplyOptions, paths ...string) *Applied {
	d.t.Helper()
	list, err := r.Select(paths)
	if err != nil {
		d.t.Fatal(err)
	}
	a, err := r.Apply(list, paths, opt)
	if err != nil {
		d.t.Fatal(err)
	}
	return a
}

func (d *desk) is(want map[string]string) {
	d.t.Helper()
	got := onDisk(d.t, d.dir)
	for p, w := range want {
		if w == "" {
			if g, ok := got[p]; ok {
				d.t.Errorf("%s is there: %q", p, g)
			}
		} else if !strings.HasSuffix(got[p], w) || got[p] == "" {
			d.t.Errorf("%s is %q, want %q", p, got[p], w)
		}
	}
	for p := range got {
		if strings.Contains(p, tmpPrefix) {
			d.t.Errorf("%s was left behind", p)
		}
	}
}

func TestApply(t *testing.T) {
	d := newDesk(t, map[string]string{"a": "one", "d/x": "1", "d/y": "2", "keep": "k", "f": "file", "g/in": "g", "l": "-> a", "mode": "m"})
	r := d.run(member{name: "a", data: "ONE"}, member{name: "new/deep/n", data: "n"}, member{name: ".wh.d"},
		member{name: "f/", kind: tar.TypeDir, mode: 0o755}, member{name: "f/sub", data: "s"}, member{name: "g", data: "now a file"},
		member{name: "l", kind: tar.TypeSymlink, link: "keep"}, member{name: "mode", data: "m", mode: 0o4755}, member{name: "t", kind: tar.TypeSymlink, link: "new/deep"})
	check := d.apply(r, ApplyOptions{Check: true})
	d.is(map[string]string{"a": "one", "d/x": "1", "f": "file"})
	a := d.apply(r, ApplyOptions{})
	if len(a.Conflicts)+len(a.Refused)+len(a.Git) > 0 || len(a.Done) != len(check.Done) {
		t.Errorf("%+v", a)
	}
	d.is(map[string]string{"a": "644 ONE", "new/deep/n": "644 n", "d": "", "d/x": "", "f/sub": "s", "g": "now a file", "l": "l 777 keep", "mode": "f 755 m", "t": "new/deep", "keep": "k"})
	if fi, _ := os.Stat(filepath.Join(d.dir, "mode")); fi.Mode()&os.ModeSetuid != 0 {
		t.Error("setuid was taken over")
	}
	again := d.apply(r, ApplyOptions{})
	if len(again.Done)+len(again.Conflicts) > 0 {
		t.Errorf("a second time: %d done, %v", len(again.Done), again.Conflicts)
	}
}

func TestApplyPaths(t *testing.T) {
	d := newDesk(t, map[string]string{"a": "1", "s/b": "2", "s/c.txt": "3"})
	r := d.run(member{name: "a", data: "A"}, member{name: "s/b", data: "B"}, member{name: "s/c.txt", data: "C"}, member{name: "n/m/o", data: "O"})
	d.apply(r, ApplyOptions{}, "s/b", "n/m/o")
	d.is(map[string]string{"a": "1", "s/b": "B", "s/c.txt": "3", "n/m/o": "O"})
	d.apply(r, ApplyOptions{}, "s/*.txt", filepath.Join(d.dir, "a"))
	d.is(map[string]string{"a": "A", "s/c.txt": "C"})
	for _, p := range []string{"none", "/etc/passwd", "../tree/a/x", "[", "a/b"} {
		if _, err := r.Select([]string{p}); err == nil {
			t.Errorf("%s was changed", p)
		}
	}
}

func TestApplyConflicts(t *testing.T) {
	d := newDesk(t, map[string]string{"a": "one", "b": "two", "gone": "x", "del": "y", "dir/f": "z"})
	r := d.run(member{name: "a", data: "ONE"}, member{name: "b", data: "TWO"}, member{name: "gone", data: "X"}, member{name: ".wh.del"},
		member{name: "added", data: "A"}, member{name: ".wh.dir"})
	put(t, d.dir, map[string]string{"a": "mine", "del": "mine", "added": "mine", "dir/mine": "mine"})
	os.Remove(filepath.Join(d.dir, "gone"))
	a := d.apply(r, ApplyOptions{})
	var names []string
	for _, c := range a.Conflicts {
		names = append(names, c.Path)
	}
	if !slices.Equal(names, []string{"a", "added", "del", "gone"}) || len(a.Done) > 0 {
		t.Errorf("conflicts: %v, done %d", names, len(a.Done))
	}
	d.is(map[string]string{"a": "mine", "b": "two", "added": "mine", "del": "mine", "dir/f": "z"})
	var b bytes.Buffer
	if err := r.ShowConflict(&b, &a.Conflicts[0], false); err != nil || !strings.Contains(b.String(), "-mine") || !strings.Contains(b.String(), "+ONE") {
		t.Errorf("%v %q", err, b.String())
	}
	d.apply(r, ApplyOptions{}, "b", "dir")
	d.is(map[string]string{"a": "mine", "b": "TWO", "dir/f": "", "dir/mine": "mine"})
	d.apply(r, ApplyOptions{Force: true})
	d.is(map[string]string{"a": "ONE", "added": "A", "del": "", "gone": "X", "dir/mine": "mine"})
}

func TestApplyRefuses(t *testing.T) {
	d := newDesk(t, map[string]string{"a": "one", "out": "-> /etc", "sub/up": "-> ..", ".git/config": "[core]\n", ".git/hooks/x": "h", "plain": "p"})
	r := d.run(
		member{name: "abs", kind: tar.TypeSymlink, link: "/etc/passwd"}, member{name: "far", kind: tar.TypeSymlink, link: "../x"},
		member{name: "s1/l", kind: tar.TypeSymlink, link: "../../x"}, member{name: "via", kind: tar.TypeSymlink, link: "sub/up/../x"},
		member{name: "via2", kind: tar.TypeSymlink, link: "out/passwd"}, member{name: "ok", kind: tar.TypeSymlink, link: "sub/none/yet"},
		member{name: "s1/ok", kind: tar.TypeSymlink, link: "../a"}, member{name: "esc\x1b[31m", data: "x"}, member{name: "bidi\u202e", data: "x"},
		member{name: ".git/hooks/pre-commit", data: "evil"}, member{name: ".git/config", data: "[core]\n\tsshCommand = evil\n"}, member{name: "x/.GIT/config", data: "evil"},
		member{name: "bare/HEAD", data: "ref: x"}, member{name: "bare/config", data: "evil"}, member{name: "bare/objects/a", data: "x"}, member{name: "bare/refs/a", data: "x"}, member{name: "linked/HEAD", data: "ref: x"}, member{name: "linked/commondir", data: "../s1"},
		member{name: "plain", data: "P"}, member{name: ".vscode/tasks.json", data: "{}"}, member{name: "out/passwd", data: "x"},
	)
	a := d.apply(r, ApplyOptions{}, "abs", "far", "s1", "via", "via2", "ok", "esc*", "bidi*", ".git", "x", "bare", "linked", "plain", ".vscode")
	var refused []string
	for _, l := range a.Refused {
		refused = append(refused, l.Path)
	}
	if want := []string{"abs", "bidi\u202e", "esc\x1b[31m", "far", "s1/l", "via", "via2"}; !slices.Equal(refused, want) {
		t.Errorf("refused: %q", refused)
	}
	if want := []string{".git/config", ".git/hooks/pre-commit", "bare/HEAD", "bare/config", "bare/objects/a", "bare/refs/a", "linked/HEAD", "linked/commondir", "x/.GIT/config"}; !slices.Equal(a.Git, want) {
		t.Errorf("git: %q", a.Git)
	}
	if len(a.Warnings) != 1 || a.Warnings[0].Path != ".vscode/tasks.json" {
		t.Errorf("warnings: %v", a.Warnings)
	}
	d.is(map[string]string{"abs": "", "far": "", "s1/l": "", "via": "", "via2": "", "ok": "sub/none/yet", "s1/ok": "../a", "plain": "P", ".git/hooks/pre-commit": "", ".git/config": "[core]\n", "bare/config": ""})
	if a := d.apply(r, ApplyOptions{Git: true}); len(a.Git) != 9 {
		t.Errorf("--git without a name: %v left out", a.Git)
	}
	if a := d.apply(r, ApplyOptions{Git: true}, ".git/hooks"); len(a.Done) != 1 {
		t.Errorf("--git .git/hooks: %+v", a)
	}
	d.is(map[string]string{".git/hooks/pre-commit": "evil", ".git/config": "[core]\n"})
}

// TestApplyThroughLinks: a folder of the tree that became a symlink is not gone
// through, whatever is forced.
func TestApplyThroughLinks(t *testing.T) {
	d := newDesk(t, map[string]string{"sub/f": "1", "sub/g": "2", "e/f": "3"})
	outside := t.TempDir()
	put(t, outside, map[string]string{"f": "1", "g": "2"})
	r := d.run(member{name: "sub/f", data: "evil"}, member{name: "sub/.wh.g"}, member{name: "sub/new", data: "evil"}, member{name: "sub/n/m", data: "evil"}, member{name: "e/f", data: "E"})
	os.RemoveAll(filepath.Join(d.dir, "sub"))
	os.Symlink(outside, filepath.Join(d.dir, "sub"))
	a := d.apply(r, ApplyOptions{})
	if len(a.Conflicts) < 4 || len(a.Done) > 0 {
		t.Errorf("%+v", a)
	}
	d.apply(r, ApplyOptions{Force: true})
	got := onDisk(t, outside)
	if len(got) != 2 || got["f"] != "f 644 1" || got["g"] != "f 644 2" {
		t.Errorf("outside: %v", got)
	}
}

// TestApplyRace: somebody swaps folders of the tree for symlinks to the outside
// and back, all the time; nothing is ever written there.
func TestApplyRace(t *testing.T) {
	for _, old := range []bool{false, true} {
		files := map[string]string{}
		var ms []member
		for i := range 20 {
			files[fmt.Sprintf("s/d%d/f", i%4)] = "1"
			files[fmt.Sprintf("s/d%d/g%d", i%4, i)] = "1"
			ms = append(ms, member{name: fmt.Sprintf("s/d%d/g%d", i%4, i), data: "evil"}, member{name: fmt.Sprintf("s/d%d/n%d", i%4, i), data: "evil"},
				member{name: fmt.Sprintf("s/d%d/k%d/x", i%4, i), data: "evil"})
		}
		ms = append(ms, member{name: "s/d1/.wh.f"}, member{name: "s/d2/.wh.f"})
		d := newDesk(t, files)
		outside := t.TempDir()
		put(t, outside, files)
		for p, text := range files {
			put(t, outside, map[string]string{strings.TrimPrefix(p, "s/"): text, filepath.Base(p): text})
		}
		before := onDisk(t, outside)
		r := d.run(ms...)
		noOpenat2.Store(old) // the way of kernels without the call, too
		t.Cleanup(func() { noOpenat2.Store(false) })
		var over atomic.Bool
		done := make(chan int)
		go func() {
			n := 0
			for ; !over.Load(); n++ {
				p := filepath.Join(d.dir, "s")
				if n%2 == 1 {
					p = filepath.Join(p, fmt.Sprint("d", n%4))
				}
				if os.Rename(p, p+".away") == nil {
					os.Symlink(outside, p)
					os.Remove(p)
					os.Rename(p+".away", p)
				}
			}
			done <- n
		}()
		end := time.Now().Add(1500 * time.Millisecond)
		tried := 0
		for ; time.Now().Before(end); tried++ {
			list, _ := r.Select(nil)
			r.Apply(list, nil, ApplyOptions{Force: true})
		}
		over.Store(true)
		swaps := <-done
		after := onDisk(t, outside)
		sameTrees(t, after, before)
		t.Logf("%d times applied, %d swaps (without openat2: %v)", tried, swaps, old)
	}
}
