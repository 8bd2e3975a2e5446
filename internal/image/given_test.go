package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bermhq/berm/api"
)

// entry is one header of a test archive; a Link or Sym means that kind.
type entry struct {
	name, content string
	kind          byte
	link          string
	mode          int64
	uid           int
}

func makeTar(tb testing.TB, entries ...entry) []byte {
	tb.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Size: int64(len(e.content)), Typeflag: e.kind, Linkname: e.link, Mode: e.mode, Uid: e.uid, Gid: e.uid}
		if h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
		}
		if h.Mode == 0 {
			h.Mode = 0o755
		}
		if err := w.WriteHeader(h); err != nil {
			tb.Fatal(err)
		}
		w.Write([]byte(e.content))
	}
	w.Close()
	return b.Bytes()
}

func zipped(b []byte) []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	z.Write(b)
	z.Close()
	return out.Bytes()
}

func resolveTar(t *testing.T, content []byte, opt Options) (map[string]seen, error) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "root.tar")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	img, err := Open(filepath.Join(dir, "store")).Resolve(t.Context(), file, opt)
	if err != nil {
		return nil, err
	}
	left, _ := os.ReadDir(filepath.Join(dir, "store", "tmp"))
	if len(left) > 0 {
		t.Errorf("left in tmp: %v", left)
	}
	return readImage(t, img.Path, 1<<20), nil
}

func TestTar(t *testing.T) {
	archive := makeTar(t,
		entry{name: "./", kind: tar.TypeDir, mode: 0o700},
		entry{name: "/abs/file", content: "absolute", uid: 7},
		entry{name: "usr/bin/", kind: tar.TypeDir},
		entry{name: "bin", kind: tar.TypeSymlink, link: "usr/bin"},
		entry{name: "bin/sh", content: "through a link", mode: 0o4755},
		entry{name: "out", kind: tar.TypeSymlink, link: "/../../../../escaped"},
		entry{name: "out/file", content: "stays inside"},
		entry{name: "hard", kind: tar.TypeLink, link: "abs/file"},
		entry{name: "twice", content: "first"},
		entry{name: "twice", content: "last"},
		entry{name: "was-dir/x", content: "x"},
		entry{name: "was-dir", content: "now a file"},
		entry{name: "dev/null", kind: tar.TypeChar},
		entry{name: "fifo", kind: tar.TypeFifo},
		entry{name: strings.Repeat("long/", 60) + "name", content: "pax"},
		entry{name: "tmp", kind: tar.TypeSymlink, link: "/nowhere"},
		entry{name: "etc/passwd", content: "root:x:0:0::/:/bin/sh\nagent:x:5:5::/:/bin/sh"},
		entry{name: "etc/resolv.conf", kind: tar.TypeSymlink, link: "/run/x"},
		entry{name: "secret", content: "x"},
	)
	for name, content := range map[string][]byte{"plain": archive, "gzip": zipped(archive)} {
		t.Run(name, func(t *testing.T) {
			got, err := resolveTar(t, content, Options{Exclude: []string{"/secret"}})
			if err != nil {
				t.Fatal(err)
			}
			for p, want := range map[string]string{
				"/abs/file": "absolute", "/usr/bin/sh": "through a link", "/escaped/file": "stays inside",
				"/hard": "absolute", "/twice": "last", "/was-dir": "now a file", "/etc/resolv.conf": "",
				"/" + strings.Repeat("long/", 60) + "name": "pax", "/etc/hosts": hostsFile,
				"/etc/passwd": "root:x:0:0::/:/bin/sh\nagent:x:5:5::/:/bin/sh\nagent1000:x:1000:1000:agent:/home/agent:/bin/sh\n",
			} {
				if s, ok := got[p]; !ok || string(s.content) != want {
					t.Errorf("%s = %q, want %q", p, s.content, want)
				}
			}
			for _, p := range []string{"/dev/null", "/fifo", "/secret"} {
				if _, ok := got[p]; ok {
					t.Errorf("%s is in the image", p)
				}
			}
			if s := got["/usr/bin/sh"]; s.mode != typeFile|0o755 {
				t.Errorf("mode %o", s.mode)
			}
			if s := got["/abs/file"]; s.uid != 7 || s.nlink != 2 {
				t.Errorf("owner or links: %+v", s)
			}
			for p, mode := range map[string]uint32{"/": 0o755, "/tmp": 0o1777, "/workspace": 0o755, "/proc": 0o555} {
				if got[p].mode != typeDir|mode {
					t.Errorf("%s has mode %o", p, got[p].mode)
				}
			}
			if got["/home/agent"].uid != agentID {
				t.Error("/home/agent has another owner")
			}
		})
	}
}

func TestTarHostile(t *testing.T) {
	var huge bytes.Buffer
	w := tar.NewWriter(&huge)
	w.WriteHeader(&tar.Header{Name: "huge", Size: 1 << 50, Mode: 0o644, Typeflag: tar.TypeReg})
	good := makeTar(t, entry{name: "f", content: strings.Repeat("x", 5000)})
	for _, tt := range []struct {
		name    string
		content []byte
		code    string
	}{
		{"traversal", makeTar(t, entry{name: "a/../../x", content: "x"}), api.CodeTemplateInvalid},
		{"hard link outside", makeTar(t, entry{name: "x", kind: tar.TypeLink, link: "../etc/passwd"}), api.CodeTemplateInvalid},
		{"hard link to the host", makeTar(t, entry{name: "x", kind: tar.TypeLink, link: "/etc/passwd"}), api.CodeTemplateInvalid},
		{"hard link to a directory", makeTar(t, entry{name: "d/", kind: tar.TypeDir}, entry{name: "x", kind: tar.TypeLink, link: "d"}), api.CodeTemplateInvalid},
		{"link loop", makeTar(t, entry{name: "a", kind: tar.TypeSymlink, link: "b"}, entry{name: "b", kind: tar.TypeSymlink, link: "a"}, entry{name: "a/x", content: "x"}), api.CodeTemplateInvalid},
		{"long name", makeTar(t, entry{name: strings.Repeat("n", 256), content: "x"}), api.CodeTemplateInvalid},
		{"long path", makeTar(t, entry{name: strings.Repeat("n/", 2100) + "n", content: "x"}), api.CodeTemplateInvalid},
		{"long target", makeTar(t, entry{name: "x", kind: tar.TypeSymlink, link: strings.Repeat("n/", 2100)}), api.CodeTemplateInvalid},
		{"truncated", good[:3000], api.CodeTemplateInvalid},
		{"truncated gzip", zipped(good)[:40], api.CodeTemplateInvalid},
		{"huge size", huge.Bytes(), api.CodeTemplateInvalid},
		{"no archive", []byte(strings.Repeat("text ", 1000)), api.CodeTemplateInvalid},
		{"empty", nil, api.CodeTemplateInvalid},
		{"zstd", []byte("\x28\xb5\x2f\xfd and more"), api.CodeTemplateInvalid},
		{"bomb", zipped(make([]byte, 64<<20)), api.CodeTemplateTooLarge},
		{"too large", makeTar(t, entry{name: "f", content: strings.Repeat("x", 3<<20)}), api.CodeTemplateTooLarge},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := resolveTar(t, tt.content, Options{MaxBytes: 2 << 20})
			var e *api.Error
			if !errors.As(err, &e) || e.Code != tt.code || e.Hint == "" {
				t.Errorf("got %v (%+v), want %s", err, e, tt.code)
			}
		})
	}
}

func FuzzTar(f *testing.F) {
	f.Add(makeTar(f, entry{name: "a/b", content: "x"}, entry{name: "l", kind: tar.TypeSymlink, link: "../a"}, entry{name: "l/c", content: "y"}))
	f.Add(makeTar(f, entry{name: "f", content: "x"}, entry{name: "h", kind: tar.TypeLink, link: "f"}, entry{name: "f/", kind: tar.TypeDir}))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, content []byte) {
		checkTar(t, dir, content)
	})
}

// checkTar holds readTar to its promise: whatever it takes gives a sound image
// with the guest's fixed places.
func checkTar(t *testing.T, dir string, content []byte) {
	sp := &spool{dir: dir, left: 1 << 20}
	defer sp.close()
	m := newMeter(t.Context(), nil)
	tr, err := readTar(bytes.NewReader(content), int64(len(content)), sp, m)
	if err != nil {
		return
	}
	if err := completeGuest(tr); err != nil {
		return // a loop of links where a fixed place should be
	}
	p, err := layOut(tr)
	if err != nil {
		t.Fatal(err)
	}
	if p.blocks > 1<<10 {
		return
	}
	got := readImage(t, writeTree(t, tr), 1<<20)
	for _, s := range skeleton[:4] {
		if n := got[s.path]; n.mode&typeMask != typeDir {
			t.Errorf("%s has mode %o", s.path, n.mode)
		}
	}
}

// FuzzTarEntries makes archives out of few names, so that links, directories
// and duplicates meet: mutations of raw archives mostly break a checksum.
func FuzzTarEntries(f *testing.F) {
	f.Add([]byte("\x02\x10\x21\x00\x12\x00\x31\x00"))
	f.Add([]byte("\x40\x51\x33\x40\x00\x61\x12\x73\x24\x16"))
	names := []string{"a", "b", "a/b", "b/a", "a/b/c", "./a/", "etc", "etc/passwd", "/tmp", "home/agent", "..", "a/../b", "proc", "b/c/d/e", "c", "c/a"}
	kinds := []byte{tar.TypeReg, tar.TypeDir, tar.TypeSymlink, tar.TypeLink, tar.TypeFifo, tar.TypeReg, tar.TypeSymlink, tar.TypeLink}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, prog []byte) {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for i := 0; i+1 < len(prog) && i < 200; i += 2 {
			h := &tar.Header{
				Name: names[prog[i]&15], Typeflag: kinds[prog[i]>>4&7], Mode: int64(prog[i+1]) << 4,
				Linkname: names[prog[i+1]&15],
			}
			if prog[i+1]&16 != 0 && h.Typeflag == tar.TypeSymlink {
				h.Linkname = "/" + h.Linkname + "/../" + names[prog[i+1]>>4]
			}
			if h.Typeflag == tar.TypeReg {
				h.Linkname, h.Size, h.Name = "", int64(prog[i+1]), strings.TrimSuffix(h.Name, "/")
			}
			if h.Typeflag == tar.TypeDir {
				h.Linkname = ""
			}
			if w.WriteHeader(h) == nil {
				w.Write(make([]byte, h.Size))
			}
		}
		w.Close()
		checkTar(t, dir, b.Bytes())
	})
}
