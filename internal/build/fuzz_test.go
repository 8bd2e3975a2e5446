package build

import (
	"archive/tar"
	"bytes"
	"io"
	"path"
	"strings"
	"testing"
)

func seed(f *testing.F, hs ...*tar.Header) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range hs {
		w.WriteHeader(h)
		w.Write(make([]byte, h.Size))
	}
	w.Close()
	f.Add(b.Bytes())
}

// Whatever a context says, no name of it leads out, each has its parents, and
// what is in its files is what was sent.
func FuzzContext(f *testing.F) {
	seed(f, &tar.Header{Name: "a/b", Size: 3, Mode: 0o644}, &tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "../../x"}, &tar.Header{Name: "h", Typeflag: tar.TypeLink, Linkname: "a/b"})
	seed(f, &tar.Header{Name: ".dockerignore", Size: 2}, &tar.Header{Name: "x/../../y", Size: 1}, &tar.Header{Name: "d/", Typeflag: tar.TypeDir})
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := spool()
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		c, err := readFiles(bytes.NewReader(data), file)
		if err != nil {
			return
		}
		for _, e := range c.list {
			if e.name == "" || e.name[0] == '/' || e.name != path.Clean(e.name) || e.name == ".." || strings.HasPrefix(e.name, "../") {
				t.Fatalf("name %q", e.name)
			}
			if dir := path.Dir(e.name); dir != "." {
				if i, ok := c.at[dir]; !ok || c.list[i].kind != tar.TypeDir {
					t.Fatalf("%q has no parent", e.name)
				}
			}
			if e.kind == tar.TypeReg {
				if n, err := io.Copy(io.Discard, c.open(e)); err != nil || n != e.size {
					t.Fatalf("%q: %d bytes of %d, %v", e.name, n, e.size, err)
				}
			}
			c.find(e.name)
			c.archive(e)
		}
		c.find("*")
		list, _ := c.find("..")
		for _, e := range list {
			if e.name != "." {
				t.Fatalf("found %q", e.name)
			}
		}
	})
}

// What is dropped from changes is not in what is passed on, and that is a tar.
func FuzzPrune(f *testing.F) {
	seed(f, &tar.Header{Name: "./", Typeflag: tar.TypeDir}, &tar.Header{Name: "home/", Typeflag: tar.TypeDir}, &tar.Header{Name: "home/agent/.npmrc", Size: 3}, &tar.Header{Name: "home/x", Size: 1})
	seed(f, &tar.Header{Name: "cache/a", Size: 3}, &tar.Header{Name: ".wh.cache"}, &tar.Header{Name: "cache2", Size: 1, PAXRecords: map[string]string{"SCHILY.xattr.a": "b"}, Format: tar.FormatPAX})
	f.Fuzz(func(t *testing.T, data []byte) {
		var out bytes.Buffer
		if prune(bytes.NewReader(data), []string{"/home/agent/.npmrc", "/cache"}, &out) != nil {
			return
		}
		tr := tar.NewReader(&out)
		for {
			h, err := tr.Next()
			if err == io.EOF {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if name := path.Clean("/" + h.Name); name == "/cache" || strings.HasPrefix(name, "/cache/") || name == "/home/agent/.npmrc" || name == "/.wh.cache" {
				t.Fatalf("%q is passed on", h.Name)
			}
		}
	})
}
