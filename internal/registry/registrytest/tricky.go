package registrytest

import (
	"archive/tar"
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// Tricky makes the layers of an image that has everything which is done wrong
// when images are unpacked: whiteouts of files, directories and of nothing,
// opaque directories, hard links within a layer and to one below, bits that
// change the user, owners, names that are no words, symlinks among the parents,
// sparse files, attributes, devices, and things that replace others of another
// kind. Files of more are put on top.
func Tricky(t testing.TB, more ...File) []v1.Layer {
	t.Helper()
	attr := Reg("attr/file", 0o644, "with attributes")
	attr.Format, attr.PAXRecords = tar.FormatPAX, map[string]string{"SCHILY.xattr.user.note": "kept?"}
	late := Reg("etc/late", 0o600, "of the future")
	late.ModTime = time.Unix(4000000000, 0)
	one := append([]File{
		Dir("etc", 0o755), Reg("etc/config", 0o644, "first"), Reg("etc/kept", 0o640, "kept"), late,
		Dir("usr", 0o755), Dir("usr/bin", 0o755), Dir("usr/lib", 0o755), Reg("usr/bin/tool", 0o755, "#!tool"),
		Link("lib", "usr/lib"), Reg("lib/through", 0o644, "by a symlink of this layer"),
		Link("abs", "/usr/lib"), Reg("abs/absolute", 0o644, "by an absolute symlink"),
		Link("dangling", "nowhere/at/all"), Link("loop", "loop"), Link("usr/up", "../etc/config"),
		Dir("var", 0o755), Dir("var/old", 0o755), Reg("var/old/a", 0o644, "a"), Reg("var/old/b", 0o644, "b"), Dir("var/old/c", 0o700), Reg("var/old/c/d", 0o644, "d"),
		Dir("opaque", 0o755), Reg("opaque/x", 0o644, "x"), Dir("opaque/sub", 0o755), Reg("opaque/sub/z", 0o644, "z"),
		Dir("twice", 0o755), Reg("twice/one", 0o644, "1"),
		Dir("hard", 0o755), Reg("hard/one", 0o644, "linked"), Hard("hard/two", "hard/one"), Hard("hard/three", "hard/two"),
		Reg("hard/a", 0o644, "both stay"), Hard("hard/b", "hard/a"),
		Dir("bits", 0o755), Reg("bits/suid", 0o4755, "suid"), Reg("bits/sgid", 0o2755, "sgid"), Dir("bits/sticky", 0o1777), Dir("bits/sgiddir", 0o2775),
		Owned(Reg("bits/joes", 0o4700, "joe"), 1000, 1000), Owned(Reg("bits/high", 0o600, "high"), 123456, 654321), Owned(Dir("bits/dir", 0o711), 33, 44),
		Owned(Link("bits/link", "suid"), 7, 8),
		Reg("implied/parents/of/this", 0o644, "no directory has an entry"),
		Reg("empty", 0o644, ""), Reg("big", 0o644, strings.Repeat("0123456789abcdef", 70000)),
		Dir("kinds", 0o755), Reg("kinds/file-dir", 0o644, "f"), Dir("kinds/dir-file", 0o755), Reg("kinds/dir-file/in", 0o644, "in"),
		Dir("kinds/dir-link", 0o755), Reg("kinds/dir-link/in", 0o644, "in"), Link("kinds/link-dir", "../etc"), Link("kinds/link-file", "../etc/config"),
		Dir("again", 0o755), Reg("again/file", 0o644, "old"), Reg("again/first", 0o644, "old"),
		attr,
		{Header: tar.Header{Typeflag: tar.TypeChar, Name: "devices/null", Mode: 0o666, Devmajor: 1, Devminor: 3}},
		{Header: tar.Header{Typeflag: tar.TypeFifo, Name: "devices/pipe", Mode: 0o600}},
	}, oddNames()...)
	two := []File{
		Gone("var/", "old"), Opaque("opaque"), Reg("opaque/new", 0o644, "new"),
		Gone("hard/", "one"), Hard("hard/cross", "usr/bin/tool"),
		Owned(Dir("etc", 0o750), 5, 6), Reg("etc/config", 0o600, "second"),
		Dir("kinds/file-dir", 0o755), Reg("kinds/file-dir/in", 0o644, "in"), Reg("kinds/dir-file", 0o644, "f"), Link("kinds/dir-link", "../usr"),
		Dir("kinds/link-dir", 0o755), Reg("kinds/link-dir/in", 0o644, "in"), Reg("kinds/link-file", 0o644, "no link any more"),
		Reg("again/file", 0o644, "new"), Gone("again/", "file"), Gone("again/", "first"), Reg("again/first", 0o644, "new"),
		Opaque("twice"), Reg("twice/two", 0o644, "2"),
		Gone("", "never-there"), Gone("nor/this/", "one"),
		Reg("lib/later", 0o644, "by a symlink of the layer below"),
	}
	three := append([]File{
		Dir("var/old", 0o711), Reg("var/old/b", 0o600, "back"),
		Opaque("twice"), Reg("twice/three", 0o644, "3"),
		Reg("bits/suid", 0o755, "no bits now"), Reg("opaque/x", 0o644, "again"),
		Hard("hard/four", "hard/two"),
		Gone("names/", "gone in the end"),
	}, more...)
	first := append(sparse("sparse", 3<<20, 1<<20, strings.Repeat("data", 2048)), Tar(t, one...)...)
	return []v1.Layer{Layer(t, Gzip, first), Layer(t, Zstd, Tar(t, two...)), Layer(t, Plain, Tar(t, three...))}
}

// Expected is what the library's reference tool unpacks of the image with these
// layers, put right where it is known to be wrong, or we to differ.
func Expected(t testing.TB, img v1.Image) Tree {
	t.Helper()
	r := mutate.Extract(img)
	defer r.Close()
	tree, err := Unpack(r)
	if err != nil {
		t.Fatal(err)
	}
	one, err := Unpack(bytes.NewReader(Tar(t,
		Reg("through", 0o644, "by a symlink of this layer"), Reg("absolute", 0o644, "by an absolute symlink"), Reg("later", 0o644, "by a symlink of the layer below"),
		Reg("linked", 0o644, "linked"), Reg("new", 0o644, "new"), Reg("tool", 0o755, "#!tool"))))
	if err != nil {
		t.Fatal(err)
	}
	// It takes a symlink for the end of everything below it, so it loses what an
	// archive puts there by that name. Runtimes follow it, inside the root.
	tree["/usr/lib/through"], tree["/usr/lib/absolute"], tree["/usr/lib/later"] = one["/through"], one["/absolute"], one["/later"]
	// A name that a whiteout takes away takes the others of the file along there,
	// since its archive has the content under that name only.
	tree["/hard/two"], tree["/hard/three"], tree["/hard/four"] = one["/linked"], one["/linked"], one["/linked"]
	// A link to a file of a layer below is a file of its own layer: layers are
	// shared and do not change.
	tree["/hard/cross"] = one["/tool"]
	// A whiteout hides what is below; there it hides what follows it, too.
	tree["/again/first"] = one["/new"]
	// Devices and pipes are no part of a template.
	delete(tree, "/devices/null")
	delete(tree, "/devices/pipe")
	return tree
}

func oddNames() []File {
	names := []string{
		"with space", " leading", "trailing ", "new\nline", "tab\there", "quote'\"", `back\slash`, "*?[a]", "-rf", "--", "$(id)", "`id`", "naïve 日本 🙂",
		"\xff\xfe\x80", "\x1b[31mred", "..almost", "...", "a.wh.b", ".whale", "gone in the end", strings.Repeat("n", 255),
		strings.Repeat("deep/", 60) + "file",
	}
	files := []File{Dir("names", 0o755)}
	for i, n := range names {
		files = append(files, Reg("names/"+n, 0o644, fmt.Sprint(i)))
	}
	return files
}

// sparse is an archive's entry, without the end of an archive, of a file of
// size bytes with data at an offset and holes around it, as GNU tar writes it.
func sparse(name string, size, at int, data string) []byte {
	list := fmt.Sprintf("1\n%d\n%d\n", at, len(data))
	body := list + strings.Repeat("\x00", 512-len(list)) + data
	var records string
	for _, kv := range []string{"GNU.sparse.major=1", "GNU.sparse.minor=0", "GNU.sparse.name=" + name, fmt.Sprintf("GNU.sparse.realsize=%d", size)} {
		n := len(kv) + 2
		for len(fmt.Sprint(n))+len(kv)+2 != n {
			n = len(fmt.Sprint(n)) + len(kv) + 2
		}
		records += fmt.Sprintf("%d %s\n", n, kv)
	}
	var out bytes.Buffer
	for _, p := range []struct {
		name string
		kind byte
		body string
	}{{"pax/" + name, 'x', records}, {"GNUSparseFile.0/" + name, '0', body}} {
		h := make([]byte, 512)
		copy(h, p.name)
		copy(h[100:], "0000644\x000000000\x000000000\x00")
		copy(h[124:], fmt.Sprintf("%011o\x00%011o\x00", len(p.body), 1600000000))
		copy(h[148:], "        ")
		h[156] = p.kind
		copy(h[257:], "ustar\x0000")
		sum := 0
		for _, b := range h {
			sum += int(b)
		}
		copy(h[148:], fmt.Sprintf("%06o\x00 ", sum))
		out.Write(h)
		out.WriteString(p.body)
		out.Write(make([]byte, -len(p.body)&511))
	}
	return out.Bytes()
}
