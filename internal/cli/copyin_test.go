package cli

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestTar(t *testing.T) {
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	os.WriteFile(secret, []byte("SECRET"), 0o600)
	src := filepath.Join(dir, "src")
	os.MkdirAll(filepath.Join(src, "sub"), 0o755)
	os.WriteFile(filepath.Join(src, "sub", "a"), []byte("A"), 0o755)
	os.Symlink(secret, filepath.Join(src, "link"))
	os.Symlink("..", filepath.Join(src, "up"))
	syscall.Mkfifo(filepath.Join(src, "pipe"), 0o644)

	var buf bytes.Buffer
	var warned []string
	w := &tarWriter{tw: tar.NewWriter(&buf), root: "/workspace", seen: map[string]string{}, warn: func(s string) { warned = append(warned, s) }}
	for _, c := range []copyIn{
		{local: src, dest: "/workspace/src"},
		{local: filepath.Join(src, "sub", "a"), dest: "/workspace/src/sub/a"}, // again, from the same place
		{data: []byte("print()"), dest: "/workspace/main.py", mode: 0o644},
	} {
		if err := w.add(c); err != nil {
			t.Fatal(err)
		}
	}
	w.tw.Close()
	if strings.Contains(buf.String(), "SECRET") {
		t.Error("a symlink was followed")
	}
	var got []string
	for tr := tar.NewReader(&buf); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(tr)
		got = append(got, h.Name+"|"+h.Linkname+"|"+string(b))
		if age := time.Since(h.ModTime); age < -time.Second || age > time.Hour {
			t.Errorf("%s: is of %v", h.Name, h.ModTime)
		}
		if h.Mode&^0o777 != 0 || h.Uid != 0 || h.Uname != "" {
			t.Errorf("%s: mode %o, owner %d %q", h.Name, h.Mode, h.Uid, h.Uname)
		}
	}
	want := []string{"src/||", "src/link|" + secret + "|", "src/sub/||", "src/sub/a||A", "src/up|..|", "main.py||print()"}
	if !slices.Equal(got, want) {
		t.Errorf("tar = %q\nwant %q", got, want)
	}
	if len(warned) != 1 || !strings.Contains(warned[0], "pipe") {
		t.Errorf("warned = %q", warned)
	}
	if err := w.add(copyIn{data: []byte("x"), dest: "/workspace/src/sub/a"}); err == nil {
		t.Error("one path from two places")
	}
}

// What has no size, or another one than it says, goes in with its true size.
func TestTarSizes(t *testing.T) {
	dir := t.TempDir()
	empty, big := filepath.Join(dir, "empty"), filepath.Join(dir, "big")
	os.WriteFile(empty, nil, 0o644)
	os.WriteFile(big, bytes.Repeat([]byte("x"), 3*maxUntold), 0o644)
	send := func(local string) ([]byte, error) {
		var buf bytes.Buffer
		w := &tarWriter{tw: tar.NewWriter(&buf), root: "/workspace", seen: map[string]string{}}
		if err := w.add(copyIn{local: local, dest: "/workspace/x"}); err != nil {
			return nil, err
		}
		w.tw.Close()
		tr := tar.NewReader(&buf)
		if _, err := tr.Next(); err != nil {
			t.Fatal(err)
		}
		return io.ReadAll(tr)
	}
	version, err := os.ReadFile("/proc/version")
	if err != nil || len(version) == 0 {
		t.Skip("needs /proc")
	}
	for name, want := range map[string]int{empty: 0, big: 3 * maxUntold, "/proc/version": len(version)} {
		if b, err := send(name); err != nil || len(b) != want {
			t.Errorf("%s: %d bytes, %v", name, len(b), err)
		}
	}
	// One that shrinks and one that grows while it is read.
	for name, change := range map[string]func(f *os.File){
		"shorter": func(f *os.File) { f.Truncate(10) },
		"longer":  func(f *os.File) { f.WriteAt([]byte("more"), 3*maxUntold) },
	} {
		os.WriteFile(big, bytes.Repeat([]byte("x"), 3*maxUntold), 0o644)
		f, err := os.OpenFile(big, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		w := &tarWriter{tw: tar.NewWriter(writerFunc(func(p []byte) (int, error) { change(f); return len(p), nil })), root: "/workspace", seen: map[string]string{}}
		if err := w.add(copyIn{local: big, dest: "/workspace/x"}); err == nil || !strings.Contains(err.Error(), "became "+name) {
			t.Errorf("%s: %v", name, err)
		}
		f.Close()
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
