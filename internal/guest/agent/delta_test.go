package agent

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// pieced is content with holes: where pieces are, there is something.
func pieced(size int64, at ...int64) []byte {
	b := make([]byte, size)
	for _, a := range at {
		copy(b[a:], "something")
	}
	return b
}

// archived is the layer of a few files, the last with a further name.
func archived(t *testing.T, name string, mtime time.Time, content []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	d := newDelta(t.Context(), &out)
	for n, do := range []func() error{
		func() error {
			return d.put(&item{name: "before", kind: tar.TypeReg, mode: 0o600, size: 3}, strings.NewReader("abc"))
		},
		func() error {
			i := &item{name: name, kind: tar.TypeReg, mode: 0o4755, uid: 1000, gid: 1 << 30, mtime: mtime, size: int64(len(content)), ino: 7, nlink: 2}
			return d.put(i, bytes.NewReader(content))
		},
		func() error { return d.put(&item{name: "other", kind: tar.TypeReg, ino: 7, nlink: 2}, nil) },
		func() error { return d.gone("dir/x") },
		func() error { return d.emptied(".") },
		d.close,
	} {
		if err := do(); err != nil {
			t.Fatalf("%d: %v", n, err)
		}
	}
	return out.Bytes()
}

func TestDelta(t *testing.T) {
	for what, c := range map[string]struct {
		name    string
		content []byte
		most    int // bytes of the archive; 0: any
	}{
		"small":          {"f", []byte("content"), 0},
		"empty":          {"f", nil, 0},
		"no holes":       {"f", bytes.Repeat([]byte("x"), 3<<20), 0},
		"only a hole":    {"f", pieced(64<<20 + 5), 16 << 10},
		"holes":          {"f", pieced(64<<20, 0, 1<<20, 33<<20-4, 64<<20-9), 1 << 20},
		"a hole, last":   {"f", pieced(20<<20, 5), 200 << 10},
		"a hole, first":  {"f", pieced(20<<20, 20<<20-9), 200 << 10},
		"a long name":    {strings.Repeat("long/", 100) + "f", pieced(20<<20, 9), 200 << 10},
		"no text at all": {"\xff\xfe=\n ", pieced(20<<20, 9), 200 << 10},
	} {
		t.Run(what, func(t *testing.T) {
			mtime := time.Unix(1_700_000_000, 250_000_000)
			b := archived(t, c.name, mtime, c.content)
			if c.most > 0 && len(b) > c.most {
				t.Errorf("%d bytes were sent", len(b))
			}
			tr := tar.NewReader(bytes.NewReader(b))
			want := []string{"before", c.name, "other", "dir/.wh.x", ".wh..wh..opq"}
			for _, name := range want {
				h, err := tr.Next()
				if err != nil || h.Name != name {
					t.Fatalf("got %+v, %v; want %q", h, err, name)
				}
				switch name {
				case c.name:
					got, err := io.ReadAll(tr)
					if err != nil || !bytes.Equal(got, c.content) || h.Uid != 1000 || h.Gid != 1<<30 || h.Mode != 0o4755 || !h.ModTime.Equal(mtime) {
						t.Errorf("%d bytes of %d, %+v, %v", len(got), len(c.content), h, err)
					}
				case "other":
					if h.Typeflag != tar.TypeLink || h.Linkname != c.name {
						t.Errorf("%+v", h)
					}
				}
			}
			if _, err := tr.Next(); err != io.EOF {
				t.Errorf("the end: %v", err)
			}
		})
	}
}

// What others read is the same.
func TestDeltaTar(t *testing.T) {
	if _, err := osexec.LookPath("tar"); err != nil {
		t.Skip("needs tar")
	}
	dir := t.TempDir()
	content := pieced(30<<20, 0, 1<<20, 29<<20)
	cmd := osexec.Command("tar", "-xf", "-", "-C", dir, "--no-same-owner", "d/f")
	cmd.Stdin = bytes.NewReader(archived(t, "d/f", time.Unix(1_700_000_000, 0), content))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	got, err := os.ReadFile(filepath.Join(dir, "d/f"))
	if err != nil || !bytes.Equal(got, content) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

func TestDeltaRefuses(t *testing.T) {
	d := newDelta(t.Context(), io.Discard)
	if err := d.put(&item{name: "a/.wh.b", kind: tar.TypeReg}, strings.NewReader("")); err == nil {
		t.Error("a file that looks like a deletion")
	}
	if err := d.put(&item{name: "short", kind: tar.TypeReg, size: 10}, strings.NewReader("x")); err == nil {
		t.Error("a file that became shorter")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := newDelta(ctx, io.Discard).put(&item{name: "x", kind: tar.TypeDir}, nil); err == nil {
		t.Error("nobody listens")
	}
}

// FuzzDelta: whatever files are called and hold, the archive says just that.
func FuzzDelta(f *testing.F) {
	f.Add("f", int64(5), uint32(2<<20), uint32(1<<20), []byte("x"))
	f.Add("a/b", int64(-5), uint32(4<<20), uint32(0), []byte(""))
	f.Add("\xff", int64(1)<<33, uint32(100), uint32(50), []byte("abc"))
	f.Fuzz(func(t *testing.T, name string, sec int64, size, at uint32, piece []byte) {
		if name == "" || strings.ContainsRune(name, 0) || strings.HasPrefix(filepath.Base(name), whiteoutPrefix) || strings.HasSuffix(name, "/") || len(name) > 4096 {
			return
		}
		if sec < -1<<33 || sec > 1<<33 {
			return
		}
		content := make([]byte, size%(8<<20))
		if int(at) < len(content) {
			copy(content[at:], piece)
		}
		tr := tar.NewReader(bytes.NewReader(archived(t, name, time.Unix(sec, 5), content)))
		tr.Next()
		h, err := tr.Next()
		if err != nil || h.Name != name || h.Size != int64(len(content)) || h.ModTime.Unix() != sec {
			t.Fatalf("%+v, %v", h, err)
		}
		if got, err := io.ReadAll(tr); err != nil || !bytes.Equal(got, content) {
			t.Fatalf("%d bytes of %d, %v", len(got), len(content), err)
		}
	})
}
