package here

import (
	"archive/tar"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func (d *desk) diff(r *Run, opt DiffOptions, paths ...string) string {
	d.t.Helper()
	list, err := r.Select(paths)
	if err != nil {
		d.t.Fatal(err)
	}
	var b bytes.Buffer
	if err := r.Diff(&b, list, opt); err != nil {
		d.t.Fatal(err)
	}
	return b.String()
}

func TestDiff(t *testing.T) {
	d := newDesk(t, map[string]string{"a.txt": "1\n2\n3\n", "bin": "x\x00y", "gone": "bye", "l": "-> a.txt", "m": "#!/bin/sh\n", "t": "was a file"})
	r := d.run(member{name: "a.txt", data: "1\nzwei\x1b[2J\u202e\n3\n"}, member{name: "bin", data: "x\x00z"}, member{name: ".wh.gone"},
		member{name: "l", kind: tar.TypeSymlink, link: "m"}, member{name: "m", data: "#!/bin/sh\n", mode: 0o755}, member{name: "t", kind: tar.TypeSymlink, link: "m"},
		member{name: "n/e\x1bw", data: "new"}, member{name: "empty/", kind: tar.TypeDir, mode: 0o755}, member{name: "cr", data: "a\r\nb\rc\n"})
	got := d.diff(r, DiffOptions{})
	for _, want := range []string{
		"diff --git a/a.txt b/a.txt\n--- a/a.txt\n+++ b/a.txt\n@@ -1,3 +1,3 @@\n 1\n-2\n+zwei\\x1b[2J\\u202e\n 3\n",
		"Binary files a/bin and b/bin differ\n", "deleted file mode 100644\n--- a/gone\n+++ /dev/null\n@@ -1,1 +0,0 @@\n-bye\n\\ No newline at end of file\n",
		"-a.txt\n", "+m\n", "old mode 100644\nnew mode 100755\n", "new file mode 120000", `+++ "b/n/e\033w"`, "+a\\x0d\n+b\\x0dc\n", "new file mode 040755",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if strings.ContainsAny(got, "\x1b\r\u202e") {
		t.Errorf("a terminal would obey: %q", got)
	}
	if raw := d.diff(r, DiffOptions{Raw: true}); !strings.Contains(raw, "zwei\x1b[2J\u202e\n") {
		t.Errorf("raw: %q", raw)
	}
	if got := d.diff(r, DiffOptions{Format: NameStatus}); got != "M\ta.txt\nM\tbin\nA\tcr\nA\tempty/\nD\tgone\nM\tl\nM\tm\nA\t\"n/e\\033w\"\nT\tt\n" {
		t.Errorf("names: %q", got)
	}
	if got := d.diff(r, DiffOptions{Format: Stat}, "a.txt", "m"); got != " a.txt | 2 +-\n m | 0 mode 644 -> 755\n 2 files changed, 1 insertion(+), 1 deletion(-)\n" {
		t.Errorf("stat: %q", got)
	}
	os.RemoveAll(d.dir) // what was kept is enough
	os.Mkdir(d.dir, 0o755)
	if again := d.diff(r, DiffOptions{}); again != got {
		t.Errorf("without the tree: %s", again)
	}
}

// TestDiffIsAPatch: git applies what --raw prints.
func TestDiffIsAPatch(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("needs git")
	}
	d := newDesk(t, map[string]string{"a": "1\n2\n3\n4\n5\n6\n7\n8\n9\n", "b": "x", "m": "m\n", "gone": "g\n", "o": "utf \xff\n"})
	r := d.run(member{name: "a", data: "1\n2\n3\nvier\n5\n6\n7\n8\n9\nzehn"}, member{name: "b", data: "y\n"}, member{name: "m", data: "m\n", mode: 0o755},
		member{name: ".wh.gone"}, member{name: "s p/ä", data: "new\n"}, member{name: "l", kind: tar.TypeSymlink, link: "a"}, member{name: "o", data: "utf \xfe\r\n"})
	patch := filepath.Join(t.TempDir(), "p")
	os.WriteFile(patch, []byte(d.diff(r, DiffOptions{Raw: true})), 0o644)
	git(t, d.dir, "init", "-q")
	git(t, d.dir, "apply", patch)
	os.RemoveAll(filepath.Join(d.dir, ".git"))
	a := d.apply(r, ApplyOptions{})
	if len(a.Done)+len(a.Conflicts)+len(a.Refused) > 0 {
		t.Errorf("git made something else of it: %+v", a)
	}
}

func TestOutsideGit(t *testing.T) {
	out, n := OutsideGit([]*Change{{Path: ".git/index"}, {Path: "a"}, {Path: "sub/.git/config"}, {Path: ".gitignore"}})
	if n != 2 || len(out) != 2 || out[0].Path != "a" || out[1].Path != ".gitignore" {
		t.Errorf("%d, %v", n, out)
	}
}
