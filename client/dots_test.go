package client

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
)

func TestHidden(t *testing.T) {
	for _, tt := range []struct{ pattern, path, want string }{
		{"/workspace/**", "/workspace/a/b", ""},
		{"/workspace/**", "/workspace/.env", "/workspace/.env"},
		{"/workspace/**", "/workspace/a/.cfg/x/y", "/workspace/a/.cfg"},
		{"/workspace", "/workspace/.cfg/x", "/workspace/.cfg"},
		{"/workspace/out/.cfg/*", "/workspace/out/.cfg/x", ""},
		{"/workspace/out/.cfg/*", "/workspace/out/.cfg/.x", "/workspace/out/.cfg/.x"},
		{"/workspace/out/.cfg", "/workspace/out/.cfg/a/x", ""},
		{"/workspace/out/.cfg", "/workspace/out/.cfg/a/.x", "/workspace/out/.cfg/a/.x"},
		{"/workspace/**/.cfg/**", "/workspace/a/b/.cfg/x", ""},
		{"/workspace/**/.cfg/**", "/workspace/.cfg/x", ""},
		{"/workspace/**/.cfg/**", "/workspace/.other/.cfg/x", "/workspace/.other"},
		{"/workspace/.*", "/workspace/.env", ""},
		{"/workspace/*", "/workspace/.env", "/workspace/.env"},
		{"/workspace/?env", "/workspace/.env", "/workspace/.env"},
		{"/workspace/[.]env", "/workspace/.env", "/workspace/.env"},
		{"/workspace/*", "/workspace/../a", ""},
		{"/workspace/*", "/elsewhere/.a", "/elsewhere/.a"},
		{"/", "/", ""},
		{"/home/agent/.cache/*", "/home/agent/.cache/x", ""},
	} {
		if got := hidden(tt.pattern, tt.path); got != tt.want {
			t.Errorf("hidden(%q, %q) = %q, want %q", tt.pattern, tt.path, got, tt.want)
		}
	}
	deep := strings.Repeat("/**/a", 30)
	if hidden(deep, strings.Repeat("/a", 2000)) != "" {
		t.Error("a long way")
	}
}

func TestRepository(t *testing.T) {
	for in, want := range map[string]string{
		"/workspace/.git/config": "/workspace/.git", ".GIT": ".GIT", "a/.Git/hooks/x": "a/.Git", ".g\u200cit/x": ".g\u200cit",
		"GIT~1/x": "GIT~1", ".git. /x": ".git. ", ".git::$INDEX_ALLOCATION": ".git::$INDEX_ALLOCATION",
		".gitignore": "", "a.git": "", "git": "", ".github/workflows/x": "", "": "", "..": "",
	} {
		if got := repository(in); got != want {
			t.Errorf("repository(%q) = %q, want %q", in, got, want)
		}
	}
}

// What a tool would execute unasked does not come out, and is counted.
func TestExtractDots(t *testing.T) {
	all := []string{".git/config", ".git/hooks/post-checkout", "sub/.GIT/config", ".env", ".cfg/a", ".cfg/b", "plain", "bare/HEAD", "bare/config", "bare/objects/x", "bare/refs/heads/x", "odd\u202egpj.exe"}
	src := inside{files: map[string]string{}}
	for _, n := range all {
		f := file("/workspace/" + n)
		src.files[f.Path] = "hello"
		src.list = append(src.list, f)
	}
	for _, tt := range []struct {
		pattern string
		made    []string
		rules   []string
	}{
		{"**", []string{"plain"}, []string{"out.dot", "out.dotgit", "out.dotgit", "out.dotgit", "out.dotgit", "out.dotgit", "out.dotgit", "out.path"}},
		{".cfg/*", []string{".cfg/a", ".cfg/b", "plain"}, []string{"out.dot", "out.dotgit", "out.dotgit", "out.dotgit", "out.dotgit", "out.dotgit", "out.dotgit", "out.path"}},
	} {
		dir := t.TempDir()
		t.Chdir(dir)
		h, err := Extract(t.Context(), src, "s", []Out{{tt.pattern, ""}}, 1000)
		if err != nil {
			t.Fatal(err)
		}
		var made, rules []string
		for _, a := range h.Artifacts {
			made = append(made, a.Local)
		}
		for _, d := range h.Denied {
			rules = append(rules, d.Rule)
			if d.Rule == "out.dot" && tt.pattern == "**" && (d.Reason != "2 names that start with a dot were left out" || d.Target != "**") {
				t.Errorf("%+v", d)
			}
		}
		slices.Sort(made)
		slices.Sort(rules)
		if !slices.Equal(made, tt.made) || !slices.Equal(rules, tt.rules) {
			t.Errorf("%s: made %q, rules %q", tt.pattern, made, rules)
		}
	}
	if err := (Out{Pattern: "a/.git/config"}).Check(); err == nil {
		t.Error("a pattern that names .git passed")
	}
	// A folder that would become a repository with what is there already.
	dir := t.TempDir()
	os.MkdirAll(dir+"/objects", 0o755)
	os.MkdirAll(dir+"/refs", 0o755)
	os.WriteFile(dir+"/HEAD", []byte("ref: refs/heads/x"), 0o644)
	src = inside{files: map[string]string{"/workspace/config": "x"}, list: []api.FileInfo{file("/workspace/config")}}
	if h, _ := Extract(t.Context(), src, "s", []Out{{"*", dir}}, 1000); len(h.Artifacts) != 0 || len(h.Denied) != 1 || h.Denied[0].Rule != "out.dotgit" {
		t.Errorf("%+v", h)
	}
}

func TestExtractReplaces(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	src := inside{files: map[string]string{}}
	for name, mode := range map[string]os.FileMode{"a": 0o644, "b": 0o600, "tool": 0o755, ".rc": 0o644} {
		os.WriteFile(name, []byte("mine"), mode)
		f := file("/workspace/" + name)
		src.files[f.Path], src.list = "hello", append(src.list, f)
	}
	src.list = append(src.list, file("/workspace/new"))
	read := func(name string) string { b, _ := os.ReadFile(name); return string(b) }
	h, err := Extract(t.Context(), src, "s", []Out{{"[.]*", ""}, {".rc", ""}}, 1000)
	if err != nil || !slices.Equal(h.Replaced[:2], []string{"a", "b"}) || read("a") != "hello" || read("tool") != "mine" || read(".rc") != "mine" {
		t.Errorf("%+v, %v", h, err)
	}
	h, _ = Extract(t.Context(), src, "s", []Out{{".rc", "."}}, 1000)
	if len(h.Denied) != 0 || read("tool") != "hello" || read(".rc") != "hello" {
		t.Errorf("with a place: %+v", h)
	}
	if e, _ := os.ReadDir("."); len(e) != 5 {
		t.Errorf("left behind: %v", e)
	}
}

// trickle is a file whose bytes come one at a time.
type trickle struct {
	ctx   context.Context
	every time.Duration
}

func (r trickle) Read(p []byte) (int, error) {
	select {
	case <-time.After(r.every):
		p[0] = 'x'
		return 1, nil
	case <-r.ctx.Done():
		return 0, r.ctx.Err()
	}
}

type slowly struct {
	inside
	every time.Duration
}

func (s slowly) ReadFile(ctx context.Context, _, path string, _ int64) (io.ReadCloser, error) {
	if strings.HasSuffix(path, "quick") {
		return io.NopCloser(strings.NewReader("hello")), nil
	}
	return io.NopCloser(trickle{ctx, s.every}), nil
}

func TestExtractPace(t *testing.T) {
	src := slowly{inside{list: []api.FileInfo{file("/workspace/slow"), file("/workspace/quick")}}, time.Hour}
	for _, tt := range []struct {
		pace  pace
		every time.Duration
		rule  string
		made  int
	}{
		{pace{time.Minute, 50 * time.Millisecond, 64 << 10}, time.Hour, "out.slow", 1},
		{pace{time.Minute, 50 * time.Millisecond, 64 << 10}, time.Millisecond, "out.slow", 1},
		{pace{100 * time.Millisecond, time.Minute, 64 << 10}, time.Hour, "out.slow", 1},
	} {
		src.every = tt.every
		began := time.Now()
		h, err := extract(t.Context(), src, "s", []Out{{"*", t.TempDir()}}, 1<<20, tt.pace)
		if err != nil || len(h.Denied) != 1 || h.Denied[0].Rule != tt.rule || len(h.Artifacts) != tt.made {
			t.Errorf("%+v: %+v, %v", tt.pace, h, err)
		}
		if d := time.Since(began); d > 5*time.Second {
			t.Errorf("took %v", d)
		}
	}
}

// A process that is killed while a file comes leaves no half of it.
func TestExtractLeavesNothingHalf(t *testing.T) {
	dir := t.TempDir()
	f, err := os.OpenFile(dir, os.O_WRONLY|unnamed, 0o600)
	if err != nil || unnamed == 0 {
		t.Skip("no files without a name here: ", err)
	}
	f.Close()
	for _, there := range []bool{false, true} {
		src := inside{files: map[string]string{"/workspace/a": "hello"}, list: []api.FileInfo{file("/workspace/a")}}
		src.swap = func() {
			e, _ := filepath.Glob(dir + "/.berm-*")
			if len(e) != 0 {
				t.Errorf("while it comes: %v", e)
			}
		}
		h, err := Extract(t.Context(), src, "s", []Out{{"*", dir}}, 100)
		if err != nil || len(h.Artifacts) != 1 || len(h.Replaced) != map[bool]int{true: 1}[there] {
			t.Errorf("%+v, %v", h, err)
		}
	}
}

// A draft arrives by every way that a file system may offer.
func TestDraft(t *testing.T) {
	for _, named := range []bool{false, true} {
		for _, exists := range []bool{false, true} {
			for _, surprise := range []bool{false, true} {
				dir := t.TempDir()
				root, err := os.OpenRoot(dir)
				if err != nil {
					t.Fatal(err)
				}
				defer root.Close()
				d := &draft{dir: root, name: "a", replaces: exists}
				if named {
					err = d.named()
				} else {
					err = d.create()
				}
				if err != nil {
					t.Fatal(err)
				}
				io.WriteString(d.f, "hello")
				if exists || surprise {
					os.WriteFile(dir+"/a", []byte("old"), 0o644)
				}
				if err := d.keep(0o755, func() error { return nil }); err != nil {
					t.Fatal(err)
				}
				d.drop()
				b, _ := os.ReadFile(dir + "/a")
				e, _ := os.ReadDir(dir)
				if string(b) != "hello" || len(e) != 1 {
					t.Errorf("named %v, exists %v: %q, %v", named, exists, b, e)
				}
				d = &draft{dir: root, name: "b"}
				if d.create() == nil {
					io.WriteString(d.f, "hello")
					if err := d.copy(0o644); err != nil {
						t.Error(err)
					}
					if b, _ := os.ReadFile(dir + "/" + d.tmp); string(b) != "hello" {
						t.Errorf("copied %q", b)
					}
				}
				d.drop()
				if e, _ := os.ReadDir(dir); len(e) != 1 {
					t.Errorf("left behind: %v", e)
				}
			}
		}
	}
}
