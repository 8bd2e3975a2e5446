package here

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestIgnore(t *testing.T) {
	for _, tt := range []struct {
		lines string
		yes   []string // a slash at the end is a folder
		no    []string
	}{
		{"*.o", []string{"a.o", "x/y.o", "d.o/"}, []string{"a.oo"}},
		{"/a", []string{"a", "a/"}, []string{"x/a"}},
		{"a/b", []string{"a/b"}, []string{"x/a/b"}},
		{"build/", []string{"build/", "x/build/"}, []string{"build"}},
		{"**/t", []string{"t", "x/t", "x/y/t"}, nil},
		{"a/**", []string{"a/x", "a/x/y"}, []string{"a/"}},
		{"a/**/b", []string{"a/b", "a/x/b", "a/x/y/b"}, []string{"ab"}},
		{"*.log\n!keep.log", []string{"x.log"}, []string{"keep.log"}},
		{"[a-c]x\n[!d]y\nz[]]", []string{"bx", "ey", "z]"}, []string{"dx", "dy", "z["}},
		{"[[:digit:]]?", []string{"1a"}, []string{"aa", "1"}},
		{"# c\n\n\\#x\n\\!y\nsp\\ \ntr  ", []string{"#x", "!y", "sp ", "tr"}, []string{"# c", "c", "sp", "tr  "}},
		{"a**b", []string{"axxb"}, []string{"a/b"}},
		{"[", nil, []string{"["}},
		{"\\", nil, []string{"\\"}},
		{"ä?", []string{"äx", "äö"}, []string{"ä"}},
	} {
		r := parseIgnore([]byte(tt.lines), "", "")
		for _, set := range []struct {
			names []string
			want  bool
		}{{tt.yes, true}, {tt.no, false}} {
			for _, n := range set.names {
				if got, _ := r.match(strings.TrimSuffix(n, "/"), strings.HasSuffix(n, "/")); got != set.want {
					t.Errorf("%q: %q is ignored: %v", tt.lines, n, got)
				}
			}
		}
	}
}

func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v: %s", args, err, out)
	}
	return string(out)
}

// TestIgnoreAsGit compares what goes in with what git lists, for patterns and
// trees at random.
func TestIgnoreAsGit(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("needs git, to compare with")
	}
	rng := rand.New(rand.NewPCG(7, 24))
	names := []string{"a", "b", "ab", "a.o", "b.c", "build", "x y", "[z]"}
	atoms := []string{"a", "b", "*", "?", "**", "/", "/", "*.o", "build", "[ab]", "[!a]", "[^b]", "!", "\\[z\\]", ".c", " ", "**/", "/**", "[a-z]*"}
	rounds := 60
	if testing.Short() {
		rounds = 15
	}
	for round := range rounds {
		dir := t.TempDir()
		git(t, dir, "init", "-q")
		pick := func() string { return names[rng.IntN(len(names))] }
		for range 40 {
			p := pick()
			for range rng.IntN(4) {
				p += "/" + pick()
			}
			if os.MkdirAll(filepath.Join(dir, filepath.Dir(p)), 0o755) == nil {
				os.WriteFile(filepath.Join(dir, p), nil, 0o644)
			}
		}
		write := func(p string) {
			var b strings.Builder
			for range 1 + rng.IntN(4) {
				for range 1 + rng.IntN(4) {
					b.WriteString(atoms[rng.IntN(len(atoms))])
				}
				b.WriteByte('\n')
			}
			os.WriteFile(filepath.Join(dir, p), []byte(strings.ReplaceAll(b.String(), "//", "/")), 0o644) // nobody writes two
		}
		write(".gitignore")
		write("a/.gitignore")
		write("build/a/.gitignore")
		write(".git/info/exclude")
		want := strings.Split(strings.TrimSuffix(git(t, dir, "ls-files", "-z", "--others", "--exclude-standard"), "\x00"), "\x00")
		tree, err := Open(dir, Options{NoIgnored: true})
		if err != nil {
			t.Fatal(err)
		}
		s, err := tree.scan(nil)
		tree.Close()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range s.entries {
			if e.Kind == File && !inGit(e.Path) {
				got = append(got, e.Path)
			}
		}
		slices.Sort(want)
		want = slices.DeleteFunc(want, func(s string) bool { return s == "" })
		if !slices.Equal(got, want) {
			lines := ""
			for _, f := range []string{".git/info/exclude", ".gitignore", "a/.gitignore", "build/a/.gitignore"} {
				data, _ := os.ReadFile(filepath.Join(dir, f))
				lines += fmt.Sprintf("%s: %q\n", f, data)
			}
			for _, g := range got {
				if !slices.Contains(want, g) {
					lines += "goes in, git ignores it: " + g + "\n"
				}
			}
			for _, w := range want {
				if !slices.Contains(got, w) {
					lines += "stays out, git knows it: " + w + "\n"
				}
			}
			t.Fatalf("round %d\n%s", round, lines)
		}
	}
}
