package image

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// writeTree writes t to a file and returns its path.
func writeTree(tb testing.TB, t *tree) string {
	tb.Helper()
	p, err := layOut(t)
	if err != nil {
		tb.Fatal(err)
	}
	f, err := os.Create(filepath.Join(tb.TempDir(), "image"))
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	if err := p.write(f, newMeter(context.Background(), nil)); err != nil {
		tb.Fatal(err)
	}
	return f.Name()
}

func mustAdd(tb testing.TB, t *tree, path string, n *node) {
	tb.Helper()
	if err := t.add(path, n); err != nil {
		tb.Fatal(err)
	}
}

func TestWriteReadsBack(t *testing.T) {
	tr := newTree()
	want := map[string]string{}
	for i := range 700 { // directories of several blocks, with names at their ends
		name := fmt.Sprintf("/many/%0*d", 1+i%250, i)
		want[name] = strings.Repeat("x", i*13%9000)
		mustAdd(t, tr, name, newFile(0o644, []byte(want[name])))
	}
	for _, n := range []int{1, 31, 32, 33, 2000, 4031, 4032, 4033, 4095} {
		mustAdd(t, tr, fmt.Sprintf("/links/%d", n), newLink(strings.Repeat("t", n)))
	}
	shared := newFile(0o755, []byte("one inode"))
	mustAdd(t, tr, "/a/first", shared)
	mustAdd(t, tr, "/b/second", shared)
	mustAdd(t, tr, "/empty", newFile(0o600, nil))
	mustAdd(t, tr, "/emptydir", newDir(0o1777))
	mustAdd(t, tr, "/"+strings.Repeat("n", 255), newFile(0o644, []byte("long")))

	got := readImage(t, writeTree(t, tr), 1<<20)
	for p, content := range want {
		if string(got[p].content) != content {
			t.Errorf("%s: %d bytes, want %d", p, len(got[p].content), len(content))
		}
	}
	for _, n := range []int{1, 31, 32, 33, 2000, 4031, 4032, 4033, 4095} {
		if s := got[fmt.Sprintf("/links/%d", n)]; len(s.target) != n {
			t.Errorf("link of %d: %d", n, len(s.target))
		}
	}
	if a, b := got["/a/first"], got["/b/second"]; a.nid != b.nid || a.nlink != 2 || string(b.content) != "one inode" {
		t.Errorf("hard link: %+v %+v", a, b)
	}
	if s := got["/emptydir"]; s.mode != typeDir|0o1777 || s.nlink != 2 {
		t.Errorf("emptydir: %+v", s)
	}
}

// liar is a source whose content is not as long as was said.
type liar struct{ content []byte }

func (l liar) reader() (io.Reader, func(), error) {
	return struct{ io.Reader }{bytes.NewReader(l.content)}, func() {}, nil
}

func TestWriteSourceChangesSize(t *testing.T) {
	tr := newTree()
	add := func(p string, size int64, src source) {
		mustAdd(t, tr, p, &node{mode: typeFile | 0o644, size: size, src: src})
	}
	add("/1-shrunk", 10000, liar{bytes.Repeat([]byte("s"), 10)})
	add("/2-grown", 10, liar{bytes.Repeat([]byte("g"), 10000)})
	add("/3-grown-in-block", 4096, bytesSource(bytes.Repeat([]byte("b"), 9000)))
	add("/4-after", 5, bytesSource("after"))
	got := readImage(t, writeTree(t, tr), 1<<20)
	if c := got["/1-shrunk"].content; string(c) != strings.Repeat("s", 10)+strings.Repeat("\x00", 9990) {
		t.Errorf("shrunk: %d bytes %.20q", len(c), c)
	}
	if c := got["/2-grown"].content; string(c) != strings.Repeat("g", 10) {
		t.Errorf("grown: %.20q", c)
	}
	if c := got["/4-after"].content; string(c) != "after" {
		t.Errorf("after: %q", c)
	}
}

func TestWriteSparse(t *testing.T) {
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, "sparse"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const size = 64 << 20
	f.WriteAt([]byte("middle"), size/2)
	f.Truncate(size)
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	tr := newTree()
	mustAdd(t, tr, "/sparse", &node{mode: typeFile | 0o644, size: size, src: fileSource{root, "sparse"}})
	img := writeTree(t, tr)
	got := readImage(t, img, size)["/sparse"].content
	if string(got[size/2:size/2+6]) != "middle" || len(bytes.Trim(got, "\x00")) != 6 {
		t.Error("content of the sparse file differs")
	}
	out, _ := os.Open(img)
	defer out.Close()
	if !isSparse(out, size) {
		t.Log("this filesystem did not keep the holes")
	}
}

func TestContentName(t *testing.T) {
	m := newMeter(t.Context(), nil)
	for _, size := range []int64{0, 1, 1 << 20, 5<<20 + 7} {
		b := bytes.Repeat([]byte("z"), int(size))
		one, err := contentName(bytes.NewReader(b), size, m)
		if err != nil || !validName.MatchString(one) {
			t.Fatalf("%d: %q, %v", size, one, err)
		}
		if size > 0 {
			b[size-1]++
			if two, _ := contentName(bytes.NewReader(b), size, m); two == one {
				t.Errorf("%d: another content, the same name", size)
			}
		}
	}
	if _, err := contentName(bytes.NewReader(nil), 5, m); err == nil {
		t.Error("no error for a short image")
	}
}
