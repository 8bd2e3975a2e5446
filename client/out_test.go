package client

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/bermhq/berm/api"
)

// inside is a sandbox that says whatever it likes.
type inside struct {
	files map[string]string
	list  []api.FileInfo
	swap  func() // called while a file is being read

	readErr error
}

func (s inside) Glob(context.Context, string, string) (api.FileList, error) {
	return api.FileList{Files: s.list}, nil
}

func (s inside) List(context.Context, string, string) (api.FileList, error) {
	return api.FileList{Files: s.list}, nil
}

func (s inside) ReadFile(_ context.Context, _, path string, _ int64) (io.ReadCloser, error) {
	if s.swap != nil {
		s.swap()
	}
	if s.readErr != nil {
		return nil, s.readErr
	}
	return io.NopCloser(strings.NewReader(s.files[path])), nil
}

func file(path string) api.FileInfo { return api.FileInfo{Path: path, Kind: "file", Mode: 0o6755} }

func TestExtract(t *testing.T) {
	for _, tt := range []struct {
		name  string
		out   Out // Local is below the target folder
		list  []api.FileInfo
		limit int64
		made  string // relative local path, "" for none
		rule  string // of the one denial
	}{
		{name: "plain", out: Out{"a.txt", "d/"}, list: []api.FileInfo{file("/workspace/a.txt")}, made: "d/a.txt"},
		{name: "new name", out: Out{"a.txt", "b.txt"}, list: []api.FileInfo{file("/workspace/a.txt")}, made: "b.txt"},
		{name: "glob", out: Out{"o/*.txt", "d"}, list: []api.FileInfo{file("/workspace/o/a.txt")}, made: "d/a.txt"},
		{name: "deep", out: Out{"*", "d"}, list: []api.FileInfo{file("/workspace/x/y/a.txt")}, made: "d/x/y/a.txt"},
		{name: "dots", out: Out{"*", "d"}, list: []api.FileInfo{file("/workspace/../../a.txt")}, rule: "out.path"},
		{name: "elsewhere", out: Out{"*", "d"}, list: []api.FileInfo{file("/etc/passwd")}, rule: "out.path"},
		{name: "escape code", out: Out{"*", "d"}, list: []api.FileInfo{file("/workspace/\x1b[2J")}, rule: "out.path"},
		{name: "zero", out: Out{"*", "d"}, list: []api.FileInfo{file("/workspace/a\x00b")}, rule: "out.path"},
		{name: "folder itself", out: Out{"*", "d"}, list: []api.FileInfo{file("/workspace/")}, rule: "out.path"},
		{name: "symlink", out: Out{"*", "d"}, list: []api.FileInfo{{Path: "/workspace/a", Kind: "symlink"}}, rule: "out.symlink"},
		{name: "device", out: Out{"*", "d"}, list: []api.FileInfo{{Path: "/workspace/a", Kind: "other"}}, rule: "out.special"},
		{name: "local symlink", out: Out{"*", "d"}, list: []api.FileInfo{file("/workspace/link/a.txt")}, rule: "out.symlink"},
		{name: "local symlink file", out: Out{"*", "d"}, list: []api.FileInfo{file("/workspace/flink")}, rule: "out.symlink"},
		{name: "local inner symlink", out: Out{"*", "d"}, list: []api.FileInfo{file("/workspace/inner/a.txt")}, rule: "out.symlink"},
		{name: "lied size", out: Out{"a", "d"}, list: []api.FileInfo{file("/workspace/a")}, limit: 3, rule: "out.limit"},
		{name: "nothing", out: Out{"a", "d"}, rule: "out.missing"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			top := t.TempDir()
			target, outside := filepath.Join(top, "t"), filepath.Join(top, "outside")
			for _, d := range []string{filepath.Join(target, "d", "real"), outside} {
				if err := os.MkdirAll(d, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			os.Symlink(outside, filepath.Join(target, "d", "link"))
			os.Symlink("real", filepath.Join(target, "d", "inner"))
			os.Symlink(filepath.Join(outside, "victim"), filepath.Join(target, "d", "flink"))
			if tt.limit == 0 {
				tt.limit = 1 << 20
			}
			src := inside{files: map[string]string{}, list: tt.list}
			for _, f := range tt.list {
				src.files[f.Path] = "hello"
			}
			out := tt.out
			out.Local = target + "/" + out.Local
			h, err := Extract(t.Context(), src, "s", []Out{out}, tt.limit)
			if err != nil {
				t.Fatal(err)
			}
			if tt.rule != "" && (len(h.Artifacts) != 0 || len(h.Denied) != 1 || h.Denied[0].Rule != tt.rule) {
				t.Errorf("haul = %+v, want rule %s", h, tt.rule)
			}
			if tt.made != "" {
				b, err := os.ReadFile(filepath.Join(target, tt.made))
				fi, _ := os.Stat(filepath.Join(target, tt.made))
				if err != nil || string(b) != "hello" || fi.Mode() != 0o755 {
					t.Errorf("made %q: %q, %v, %v; %+v", tt.made, b, err, fi, h)
				}
			}
			if e, _ := os.ReadDir(outside); len(e) != 0 {
				t.Errorf("something was made outside: %v", e)
			}
		})
	}
}

func TestExtractSwappedSymlink(t *testing.T) {
	top := t.TempDir()
	target, outside := filepath.Join(top, "t"), filepath.Join(top, "outside")
	os.MkdirAll(filepath.Join(target, "d"), 0o755)
	os.MkdirAll(outside, 0o755)
	src := inside{files: map[string]string{"/workspace/d/a": "x"}, list: []api.FileInfo{file("/workspace/d/a")}}
	src.swap = func() { // after the listing, before the write: the folder becomes a way out
		os.Remove(filepath.Join(target, "d"))
		os.Symlink(outside, filepath.Join(target, "d"))
	}
	h, err := Extract(t.Context(), src, "s", []Out{{"*", target}}, 100)
	if err != nil || len(h.Denied) != 1 {
		t.Errorf("haul = %+v, %v", h, err)
	}
	if e, _ := os.ReadDir(outside); len(e) != 0 {
		t.Errorf("something was made outside: %v", e)
	}
}

func TestExtractCollisionAndBudget(t *testing.T) {
	target := t.TempDir()
	sized := func(path string, n int64) api.FileInfo { f := file(path); f.Size = n; return f }
	src := inside{
		files: map[string]string{"/workspace/a": "12345", "/workspace/b": "123456"},
		list:  []api.FileInfo{sized("/workspace/a", 5), sized("/workspace/a", 5), sized("/workspace/b", 6)},
	}
	h, err := Extract(t.Context(), src, "s", []Out{{"*", target}}, 10)
	if err != nil {
		t.Fatal(err)
	}
	if len(h.Artifacts) != 1 || len(h.Denied) != 1 || h.Denied[0].Rule != "out.limit" {
		t.Errorf("haul = %+v", h)
	}
	if h, _ := Extract(t.Context(), src, "s", []Out{{"a", t.TempDir() + "/n"}}, 100); len(h.Denied) != 1 || h.Denied[0].Rule != "out.collision" {
		t.Errorf("two files under one name: %+v", h)
	}
	if h.Artifacts[0].SHA256 != "5994471abb01112afcc18159f6cc74b4f511b99806da59b3caf5a9c173cacfc5" {
		t.Errorf("sha256 = %s", h.Artifacts[0].SHA256)
	}
	if e, _ := os.ReadDir(target); len(e) != 1 {
		t.Errorf("left behind: %v", e)
	}
}

// Nothing that did not come is passed over in silence.
func TestExtractSaysWhatDidNotCome(t *testing.T) {
	var links []api.FileInfo
	for i := range maxDenied + 61 {
		links = append(links, api.FileInfo{Path: fmt.Sprintf("/workspace/l%d", i), Kind: "symlink"})
	}
	h, err := Extract(t.Context(), inside{list: links}, "s", []Out{{"*", t.TempDir()}}, 10)
	if err != nil || len(h.Denied) != maxDenied+1 || h.Denied[maxDenied].Target != "61 more" || h.Denied[maxDenied].Rule != "out.more" {
		t.Errorf("%d denied, last %+v, %v", len(h.Denied), h.Denied[len(h.Denied)-1], err)
	}
	for _, tt := range []struct {
		name  string
		err   error
		local string
		rule  string
		says  string
	}{
		{"ended", &api.Error{Code: api.CodeSandboxEnded, Message: "sandbox s0 is ended"}, "", "out.ended", "had already ended"},
		{"broken", io.ErrUnexpectedEOF, "", "out.ended", "unexpected EOF"},
		{"one file", &api.Error{Code: api.CodeFileTooLarge, Message: "grew"}, "", "out.too-large", "grew"},
		{"folder gone", nil, "/proc/nowhere/x", "out.host", `"/proc/nowhere`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.local == "" {
				tt.local = t.TempDir() + "/"
			}
			src := inside{list: []api.FileInfo{file("/workspace/a")}, readErr: tt.err}
			h, err := Extract(t.Context(), src, "s", []Out{{"a", tt.local}, {"a", tt.local}}, 10)
			if err != nil || len(h.Denied) != 2 || h.Denied[0].Rule != tt.rule || !strings.Contains(h.Denied[0].Reason, tt.says) || strings.Contains(h.Denied[0].Reason, ".berm-") {
				t.Errorf("%+v, %v", h.Denied, err)
			}
		})
	}
}

func TestExtractMany(t *testing.T) {
	src := inside{files: map[string]string{}}
	for i := range 500 {
		f := file(fmt.Sprintf("/workspace/d%d/f%d", i%7, i))
		src.files[f.Path] = "hello"
		src.list = append(src.list, f)
	}
	h, err := Extract(t.Context(), src, "s", []Out{{"*", t.TempDir()}}, 2500)
	if err != nil || len(h.Artifacts) != 500 || len(h.Denied) != 0 {
		t.Fatalf("%d artifacts, %+v, %v", len(h.Artifacts), h.Denied, err)
	}
	for i, a := range h.Artifacts {
		if a.Path != src.list[i].Path {
			t.Fatalf("artifact %d is %s", i, a.Path)
		}
	}
}

func TestCheck(t *testing.T) {
	dir := t.TempDir()
	os.WriteFile(dir+"/plain", nil, 0o644)
	os.Symlink("nowhere", dir+"/dangling")
	for _, tt := range []struct {
		out  Out
		says string // "" means allowed
	}{
		{Out{"a", ""}, ""}, {Out{"a", dir + "/new/deep/b"}, ""}, {Out{"*", dir + "/new"}, ""}, {Out{"a", dir + "/plain"}, ""},
		{Out{"[", dir}, "is not a glob"}, {Out{"a[", dir}, "is not a glob"}, {Out{"../*", dir}, "has a .. in it"},
		{Out{"a", dir + "/plain/b"}, "cannot be written"}, {Out{"*", dir + "/plain"}, "is not a folder"},
		{Out{"a", "/proc/foo"}, "cannot be written"}, {Out{"*", dir + "/dangling"}, "symlink to nowhere"},
	} {
		err := tt.out.Check()
		if (err == nil) != (tt.says == "") || err != nil && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%+v: %v", tt.out, err)
		}
	}
	if e, _ := os.ReadDir(dir); len(e) != 2 {
		t.Errorf("left behind: %v", e)
	}
}

// FuzzExtract: whatever the sandbox lists and streams, nothing appears outside
// the target, and what was outside stays as it was.
func FuzzExtract(f *testing.F) {
	f.Add("/workspace/a", "file", "x", "d", uint32(0o4777), "*")
	f.Add("/workspace/../a", "file", "x", "..", uint32(0), "a/*")
	f.Add("/workspace/link/a", "file", "x", "link", uint32(0), "link")
	f.Add("/workspace//a", "dir", "x", "/", uint32(0), "/")
	f.Add("/", "symlink", "x", "\x00", uint32(0), "../..")
	f.Add("/workspace/.git/config", "file", "x", ".git", uint32(0), "**")
	f.Add("/workspace/a/.GIT/hooks/x", "file", "x", "x", uint32(0o755), ".*/**")
	f.Add("/workspace/.env", "file", "x", "x", uint32(0o755), "*")
	f.Add("/workspace/refs/x", "file", "x", "HEAD", uint32(0o755), "**")
	f.Fuzz(func(t *testing.T, path, kind, content, swap string, mode uint32, pattern string) {
		top := t.TempDir()
		target, outside := filepath.Join(top, "t"), filepath.Join(top, "outside")
		os.Mkdir(target, 0o755)
		os.Mkdir(outside, 0o755)
		os.WriteFile(filepath.Join(outside, "victim"), []byte("safe"), 0o600)
		os.Symlink(outside, filepath.Join(target, "link"))
		src := inside{
			files: map[string]string{path: content},
			list:  []api.FileInfo{{Path: path, Kind: kind, Mode: mode}, file("/workspace/link/victim"), file(path)},
		}
		var once sync.Mutex
		src.swap = func() {
			once.Lock()
			defer once.Unlock()
			if SafePath(swap) == nil && !strings.Contains(swap, "/") {
				os.RemoveAll(filepath.Join(target, swap))
				os.Symlink(outside, filepath.Join(target, swap))
			}
		}
		Extract(t.Context(), src, "s", []Out{{pattern, target}}, 64)
		es, err := os.ReadDir(top)
		if err != nil || len(es) != 2 {
			t.Fatalf("beside the target: %v, %v", es, err)
		}
		es, err = os.ReadDir(outside)
		if err != nil || len(es) != 1 {
			t.Fatalf("outside the target: %v, %v", es, err)
		}
		if b, _ := os.ReadFile(filepath.Join(outside, "victim")); string(b) != "safe" {
			t.Fatalf("victim was changed to %q", b)
		}
		var size int64
		filepath.WalkDir(target, func(p string, d os.DirEntry, err error) error {
			if rel, _ := filepath.Rel(target, p); d.Type()&os.ModeSymlink == 0 && (repository(rel) != "" || anyDotted(rel) && !anyDotted(pattern)) {
				t.Errorf("%s came out for %q", rel, pattern)
			}
			if err == nil && d.Type().IsRegular() {
				fi, _ := d.Info()
				size += fi.Size()
				if m := fi.Mode(); m != 0o644 && m != 0o755 {
					t.Errorf("%s has mode %v", p, m)
				}
			}
			return nil
		})
		if size > 64 {
			t.Errorf("%d bytes came out", size)
		}
	})
}
