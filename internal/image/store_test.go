package image

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
)

func TestResolveNotFound(t *testing.T) {
	s := Open(filepath.Join(t.TempDir(), "none"))
	sock := filepath.Join(t.TempDir(), "pipe")
	for ref, code := range map[string]string{
		"python": api.CodeTemplateNotFound, "/no/such/dir": api.CodeTemplateNotFound, "/dev/null": api.CodeTemplateInvalid,
		sock: api.CodeTemplateNotFound,
	} {
		_, err := s.Resolve(t.Context(), ref, Options{})
		var e *api.Error
		if !errors.As(err, &e) || e.Code != code || e.Hint == "" {
			t.Errorf("%s: %+v, want %s", ref, err, code)
		}
	}
}

func TestDirectory(t *testing.T) {
	root := fakeHost(t, map[string]string{
		"/bin/sh": "sh", "/etc/passwd": "->/etc/real", "/etc/real": "u:x:1000:1000::/home/u:/bin/sh\n", "/home/u/file": "!mine",
		"/abs": "->/etc/hostname", "/keep/out": "x",
	})
	if err := os.Link(filepath.Join(root, "bin/sh"), filepath.Join(root, "bin/ash")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(root, "bin/sh"), 0o775|os.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	s := Open(filepath.Join(root, "store")) // inside: must not copy itself
	os.Mkdir(s.dir, 0o700)
	opt := Options{Exclude: []string{"/keep"}}
	img, err := s.Resolve(t.Context(), root, opt)
	if err != nil || !img.Built {
		t.Fatalf("%+v, %v", img, err)
	}
	got := readImage(t, img.Path, 1<<20)
	if n := got["/bin/sh"]; n.mode != typeFile|0o775 || n.nlink != 2 || got["/bin/ash"].nid != n.nid {
		t.Errorf("sh: %+v", n)
	}
	if n := got["/home/u/file"]; n.mode != typeFile|0o600 || int(n.uid) != os.Getuid() || string(n.content) != "mine" {
		t.Errorf("file: %+v", n)
	}
	if n := got["/etc/passwd"]; string(n.content) != "u:x:1000:1000::/home/u:/bin/sh\n" {
		t.Errorf("passwd: %+v %q", n, n.content)
	}
	for _, p := range []string{"/store", "/keep"} {
		if _, ok := got[p]; ok {
			t.Errorf("%s is in the image", p)
		}
	}
	if img, err = s.Resolve(t.Context(), root+"/.", opt); err != nil || img.Built {
		t.Errorf("again: %+v, %v", img, err)
	}
	if err := os.WriteFile(filepath.Join(root, "home/u/file"), []byte("more"), 0o600); err != nil {
		t.Fatal(err)
	}
	if img, err = s.Resolve(t.Context(), root, opt); err != nil || !img.Built {
		t.Errorf("changed: %+v, %v", img, err)
	}
}

func TestConcurrentBuildsOnce(t *testing.T) {
	root, dir := fakeHost(t, smallHost), t.TempDir()
	var wg sync.WaitGroup
	var mu sync.Mutex
	built, names := 0, map[string]bool{}
	for range 8 {
		wg.Go(func() {
			img, err := Open(dir).Resolve(t.Context(), Host, Options{HostRoot: root})
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
			}
			if names[img.Name] = true; img.Built {
				built++
			}
		})
	}
	wg.Wait()
	if built != 1 || len(names) != 1 {
		t.Errorf("built %d times, names %v", built, names)
	}
	locks, _ := os.ReadDir(filepath.Join(dir, "locks"))
	if len(locks) != 0 {
		t.Errorf("left: %v", locks)
	}
}

func TestWaiterGivesUp(t *testing.T) {
	root, s := fakeHost(t, smallHost), Open(t.TempDir())
	opt := Options{HostRoot: root}
	key, _ := hostKey(opt)
	os.MkdirAll(filepath.Join(s.dir, "locks"), 0o700)
	unlock, err := lockFile(t.Context(), filepath.Join(s.dir, "locks", key), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	waited := false
	opt.Progress = func(p Progress) { waited = waited || p.Phase == PhaseWait }
	if _, err := s.Resolve(ctx, Host, opt); !errors.Is(err, context.DeadlineExceeded) || !waited {
		t.Errorf("%v, waited %v", err, waited)
	}
}

func TestCancelledBuildLeavesNothing(t *testing.T) {
	root, s := fakeHost(t, smallHost), Open(t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	opt := Options{HostRoot: root, Progress: func(p Progress) {
		if p.Phase == PhaseCopy {
			cancel()
		}
	}}
	if _, err := s.Resolve(ctx, Host, opt); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	for _, sub := range []string{"tmp", "index", "locks"} {
		if left, _ := os.ReadDir(filepath.Join(s.dir, sub)); len(left) > 0 {
			t.Errorf("left in %s: %v", sub, left)
		}
	}
}

func TestSweepAfterCrash(t *testing.T) {
	s := Open(t.TempDir())
	tmp := filepath.Join(s.dir, "tmp")
	os.MkdirAll(tmp, 0o700)
	stale := filepath.Join(tmp, "new-stale")
	os.WriteFile(stale, []byte("half an image"), 0o600)
	busy, err := s.temp()
	if err != nil {
		t.Fatal(err)
	}
	defer busy.discard()
	if _, err := s.Resolve(t.Context(), Host, Options{HostRoot: fakeHost(t, smallHost)}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(stale); err == nil {
		t.Error("the file of a dead builder is still there")
	}
	if _, err := os.Stat(busy.Name()); err != nil {
		t.Error("the file of a living builder is gone")
	}
}

func TestBlobAndGC(t *testing.T) {
	s := Open(t.TempDir())
	if err := Open(filepath.Join(s.dir, "none")).GC(nil); err != nil {
		t.Errorf("GC of nothing: %v", err)
	}
	files := map[string]File{"/agent": {Content: []byte("program"), Mode: 0o755}, "/etc/conf": {Content: []byte("x")}}
	one, err := s.Blob(t.Context(), files)
	if err != nil || !one.Built {
		t.Fatalf("%+v, %v", one, err)
	}
	got := readImage(t, one.Path, 1<<20)
	if n := got["/agent"]; string(n.content) != "program" || n.mode != typeFile|0o755 || len(got) != 4 {
		t.Errorf("%+v in %d entries", n, len(got))
	}
	if again, err := s.Blob(t.Context(), files); err != nil || again.Built || again.Name != one.Name || again.Path != one.Path {
		t.Errorf("again: %+v, %v", again, err)
	}
	files["/agent"] = File{Content: []byte("newer"), Mode: 0o755}
	two, err := s.Blob(t.Context(), files)
	if err != nil || two.Name == one.Name {
		t.Fatalf("%+v, %v", two, err)
	}
	open, err := os.Open(one.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	if err := s.GC(func(name string) bool { return name == two.Name }); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(one.Path); err == nil {
		t.Error("an image nobody wants is still there")
	}
	if _, err := open.ReadAt(make([]byte, 100), superAt); err != nil {
		t.Errorf("open image: %v", err)
	}
	if index, _ := os.ReadDir(filepath.Join(s.dir, "index")); len(index) != 1 {
		t.Errorf("index: %v", index)
	}
	if _, err := s.Manifest(two.Name); err != nil {
		t.Error(err)
	}
	if _, err := s.Manifest("../x"); err == nil {
		t.Error("a manifest outside")
	}
}

func BenchmarkBlobHit(b *testing.B) {
	s := Open(b.TempDir())
	files := map[string]File{"/agent": {Content: make([]byte, 4<<20), Mode: 0o755, Digest: "known"}}
	for b.Loop() {
		if _, err := s.Blob(b.Context(), files); err != nil {
			b.Fatal(err)
		}
	}
}
