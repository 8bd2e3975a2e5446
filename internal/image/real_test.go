package image

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestRealHost builds the template of the machine the test runs on and checks
// what must hold on any.
func TestRealHost(t *testing.T) {
	if testing.Short() {
		t.Skip("writes an image of a GB or so")
	}
	s := Open(t.TempDir())
	img, err := s.Resolve(t.Context(), Host, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d MiB, left out %v", img.Bytes>>20, img.LeftOut)
	if img.Bytes > DefaultMaxHostBytes {
		t.Errorf("%d bytes", img.Bytes)
	}
	got := readImage(t, img.Path, 4)
	follow := func(p string) (string, bool) { return followSeen(got, p) }
	for _, p := range []string{"/bin/sh", "/usr/bin/env", "/workspace", "/etc/passwd", "/proc", "/tmp"} {
		if _, ok := follow(p); !ok {
			t.Errorf("no %s", p)
		}
	}
	for p, n := range got {
		for _, no := range []string{"/home/", "/root/", "/opt/", "/srv/", "/proc/", "/dev/", "/run/", "/tmp/", "/etc/ssl/private", "/etc/shadow"} {
			if strings.HasPrefix(p, no) && p != "/home/agent" && p != tmpMark {
				t.Errorf("%s is in the image", p)
			}
		}
		if n.mode&0o6000 != 0 {
			t.Errorf("%s has mode %o", p, n.mode)
		}
	}
	// Everything a program loads is there, in the image as on the host.
	root, err := os.OpenRoot("/")
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	link := newLinker(root)
	for p, n := range got {
		if n.mode&typeMask != typeFile || string(n.content) != "\x7fELF" {
			continue
		}
		info, err := os.Lstat(p)
		if err != nil {
			t.Errorf("%s: %v", p, err)
			continue
		}
		for _, lib := range link.needs(root, p, info) {
			if _, ok := follow(lib); !ok {
				t.Errorf("%s needs %s, which is not in the image", p, lib)
			}
		}
	}
}

// followSeen resolves symlinks inside an image.
func followSeen(img map[string]seen, p string) (string, bool) {
	for range maxHops {
		n, ok := img[p]
		if ok && n.mode&typeMask != typeLink {
			return p, true
		}
		moved := false
		for at, rest := p, ""; at != "/"; at, rest = path.Dir(at), path.Join(path.Base(at), rest) {
			if n, ok := img[at]; ok && n.mode&typeMask == typeLink {
				if p = path.Join(path.Dir(at), n.target, rest); path.IsAbs(n.target) {
					p = path.Join(n.target, rest)
				}
				moved = true
				break
			}
		}
		if !moved {
			return p, false
		}
	}
	return p, false
}

// TestKernelReads mounts an image and compares it with its source.
func TestKernelReads(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	src := fakeHost(t, smallHost)
	for i := range 600 {
		name := filepath.Join(src, "usr/many", strings.Repeat("n", 1+i%200)+string(rune('a'+i%26))+strings.Repeat("m", i/26))
		os.MkdirAll(filepath.Dir(name), 0o755)
		if err := os.WriteFile(name, bytes.Repeat([]byte{byte(i)}, i*37), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	os.Symlink(strings.Repeat("t/", 2020), filepath.Join(src, "long"))
	os.Link(filepath.Join(src, "usr/bin/bash"), filepath.Join(src, "usr/bin/rbash"))
	os.Mkdir(filepath.Join(src, "empty"), 0o711)
	img, err := Open(t.TempDir()).Resolve(t.Context(), src, Options{})
	if err != nil {
		t.Fatal(err)
	}
	at := t.TempDir()
	if out, err := exec.Command("mount", "-t", "erofs", "-o", "loop,ro", img.Path, at).CombinedOutput(); err != nil {
		t.Skipf("this host mounts no EROFS: %s", out)
	}
	defer func() {
		if out, err := exec.Command("umount", at).CombinedOutput(); err != nil {
			t.Errorf("umount: %s", out)
		}
	}()
	generated := map[string]bool{
		".": true, "etc": true, "etc/passwd": true, "proc": true, "sys": true, "dev": true, "run": true, "tmp": true,
		"var": true, "home": true, "root": true,
	}
	count := 0
	err = filepath.WalkDir(src, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(src, p)
		if generated[name] {
			return nil
		}
		count++
		compareFiles(t, p, filepath.Join(at, name))
		return nil
	})
	if err != nil || count < 600 {
		t.Errorf("%d files compared: %v", count, err)
	}
}

func compareFiles(t *testing.T, want, got string) {
	t.Helper()
	var a, b syscall.Stat_t
	if err := syscall.Lstat(want, &a); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Lstat(got, &b); err != nil {
		t.Errorf("%s: %v", got, err)
		return
	}
	if a.Mode != b.Mode || a.Uid != b.Uid || a.Gid != b.Gid || a.Nlink != b.Nlink || a.Mtim != b.Mtim {
		t.Errorf("%s: %+v, want %+v", got, b, a)
	}
	switch a.Mode & typeMask {
	case typeFile:
		x, _ := os.ReadFile(want)
		y, err := os.ReadFile(got)
		if err != nil || !bytes.Equal(x, y) {
			t.Errorf("%s: content differs, %v", got, err)
		}
	case typeLink:
		x, _ := os.Readlink(want)
		if y, err := os.Readlink(got); x != y {
			t.Errorf("%s: %.80q, %v", got, y, err)
		}
	}
}

func BenchmarkResolveHostHit(b *testing.B) {
	dir := os.Getenv("IMAGE_BENCH_STORE") // to build the image once for many runs
	if dir == "" {
		dir = b.TempDir()
	}
	s := Open(dir)
	if _, err := s.Resolve(b.Context(), Host, Options{}); err != nil {
		b.Skip(err)
	}
	for b.Loop() {
		if _, err := s.Resolve(b.Context(), Host, Options{}); err != nil {
			b.Fatal(err)
		}
	}
}
