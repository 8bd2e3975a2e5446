package here

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
)

// A member is one entry of a tar in a test.
type member struct {
	name, data, link string
	kind             byte
	mode             int64
}

func tarOf(t testing.TB, ms ...member) []byte {
	t.Helper()
	var b bytes.Buffer
	tw := tar.NewWriter(&b)
	for _, m := range ms {
		h := &tar.Header{Name: m.name, Typeflag: m.kind, Linkname: m.link, Mode: m.mode, Size: int64(len(m.data))}
		if h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
		}
		if h.Mode == 0 {
			h.Mode = 0o644
		}
		if err := tw.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := tw.Write([]byte(m.data)); err != nil {
			t.Fatal(err)
		}
	}
	tw.Close()
	return b.Bytes()
}

func file(path, text string) Entry {
	return Entry{Path: path, Kind: File, Mode: 0o644, Size: int64(len(text)), Hash: sha256.Sum256([]byte(text))}
}

func folderAt(path string) Entry { return Entry{Path: path, Kind: Dir, Mode: 0o755} }

// listed is the changes in short: one word each.
func listed(c *Changes) string {
	var out []string
	for i := range c.List {
		ch := &c.List[i]
		out = append(out, ch.Status()+ch.slashed())
	}
	return strings.Join(out, " ")
}

func TestReadChanges(t *testing.T) {
	before := []Entry{file("a", "one"), folderAt("d"), folderAt("d/e"), file("d/e/f", "two"), file("d/g", "three"), {Path: "l", Kind: Link, Mode: 0o777, Target: "a"}, file("m", "x")}
	for _, tt := range []struct {
		name string
		tar  []member
		want string
		left string // a part of what is left
	}{
		{"nothing", nil, "", ""},
		{"the same again", []member{{name: "./", kind: tar.TypeDir}, {name: "a", data: "one"}, {name: "d/", kind: tar.TypeDir, mode: 0o755}}, "", ""},
		{"changed, added", []member{{name: "./a", data: "ONE"}, {name: "n", data: "new"}}, "Ma An", ""},
		{"mode", []member{{name: "a", data: "one", mode: 0o755}}, "Ma", ""},
		{"setuid is no mode", []member{{name: "a", data: "one", mode: 0o4644}}, "", ""},
		{"whiteout", []member{{name: ".wh.a"}, {name: "d/.wh.g"}}, "Da Dd/g", ""},
		{"whiteout of a folder", []member{{name: ".wh.d"}}, "Dd/ Dd/e/ Dd/e/f Dd/g", ""},
		{"opaque", []member{{name: "d/", kind: tar.TypeDir, mode: 0o755}, {name: "d/.wh..wh..opq"}, {name: "d/g", data: "three"}}, "Dd/e/ Dd/e/f", ""},
		{"opaque, made again", []member{{name: "d/", kind: tar.TypeDir, mode: 0o755}, {name: "d/.wh..wh..opq"}, {name: "d/e/", kind: tar.TypeDir, mode: 0o755}}, "Dd/e/f Dd/g", ""},
		{"folder to file", []member{{name: "d", data: "f"}}, "Td Dd/e/ Dd/e/f Dd/g", ""},
		{"file to folder", []member{{name: "a/", kind: tar.TypeDir, mode: 0o755}, {name: "a/b", data: "x"}}, "Ta/ Aa/b", ""},
		{"link", []member{{name: "l", kind: tar.TypeSymlink, link: "m"}, {name: "m", kind: tar.TypeSymlink, link: "/etc"}}, "Ml Tm", ""},
		{"hard link", []member{{name: "h", data: "q"}, {name: "i", kind: tar.TypeLink, link: "./h"}}, "Ah Ai", ""},
		{"hard link to the host", []member{{name: "i", kind: tar.TypeLink, link: "/etc/passwd"}, {name: "j", kind: tar.TypeLink, link: "../x"}, {name: "k", kind: tar.TypeLink, link: "a"}}, "", "hard link"},
		{"device", []member{{name: "dev", kind: tar.TypeChar}, {name: "fifo", kind: tar.TypeFifo}}, "", "neither file"},
		{"names", []member{{name: "../x", data: "1"}, {name: "/x", data: "1"}, {name: "d/../../x", data: "1"}, {name: "x//y", data: "1"}, {name: strings.Repeat("n", 300), data: "1"}}, "", "its name"},
		{"through a link", []member{{name: "l", kind: tar.TypeSymlink, link: "/etc"}, {name: "l/passwd", data: "x"}}, "Ml", "no folder"},
		{"through a link, the other way round", []member{{name: "z/passwd", data: "x"}, {name: "z", kind: tar.TypeSymlink, link: "/etc"}}, "Az", "no folder"},
		{"deep", []member{{name: strings.Repeat("d/", 200) + "f", data: "x"}}, "", "too deep"},
		{"whiteouts that are none", []member{{name: ".wh."}, {name: ".wh..."}, {name: ".wh..wh.x"}}, "", "no name"},
	} {
		var data bytes.Buffer
		c, err := ReadChanges(bytes.NewReader(tarOf(t, tt.tar...)), before, &data, Limits{})
		if err != nil || c.Cut != "" {
			t.Errorf("%s: %v %q", tt.name, err, c.Cut)
			continue
		}
		if got := listed(c); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
		left := fmt.Sprint(c.Left)
		if tt.left == "" && len(c.Left) > 0 || !strings.Contains(left, tt.left) {
			t.Errorf("%s: left %s", tt.name, left)
		}
		for i := range c.List {
			if ch := &c.List[i]; ch.After.is("file") && tt.name == "changed, added" {
				if got := data.String()[ch.At : ch.At+ch.After.Size]; got != map[string]string{"a": "ONE", "n": "new"}[ch.Path] {
					t.Errorf("%s has %q", ch.Path, got)
				}
			}
		}
	}
}

func TestReadChangesBounds(t *testing.T) {
	before := []Entry{folderAt("d"), file("d/a", "x")}
	big := tarOf(t, member{name: "small", data: "1"}, member{name: "big", data: strings.Repeat("b", 5000)}, member{name: "last", data: "2"})
	c, err := ReadChanges(bytes.NewReader(big), before, io.Discard, Limits{Bytes: 1000})
	if err != nil || listed(c) != "Alast Asmall" || len(c.Left) != 1 {
		t.Errorf("a large file: %v %s %v", err, listed(c), c.Left)
	}
	c, _ = ReadChanges(bytes.NewReader(big), before, io.Discard, Limits{Entries: 2})
	if c.Cut == "" || listed(c) != "Abig Asmall" {
		t.Errorf("too many: %q %s", c.Cut, listed(c))
	}
	half := tarOf(t, member{name: "d/", kind: tar.TypeDir, mode: 0o755}, member{name: "d/.wh..wh..opq"}, member{name: "d/b", data: strings.Repeat("x", 4000)}, member{name: "d/a", data: "x"})
	c, _ = ReadChanges(bytes.NewReader(half[:3000]), before, io.Discard, Limits{})
	if c.Cut == "" || listed(c) != "" { // what did not come is not taken for removed
		t.Errorf("cut off: %q %s", c.Cut, listed(c))
	}
	full := errWriter{}
	if _, err := ReadChanges(bytes.NewReader(big), before, full, Limits{}); err != errFull {
		t.Errorf("a full disk: %v", err)
	}
}

type errWriter struct{}

var errFull = fmt.Errorf("full")

func (errWriter) Write([]byte) (int, error) { return 0, errFull }

// FuzzChanges: whatever comes, every path that is listed stays inside, nothing
// lies in what is no folder, and no more is kept than allowed.
func FuzzChanges(f *testing.F) {
	f.Add(tarOf(f, member{name: "a", data: "x"}, member{name: ".wh.b"}, member{name: "d/.wh..wh..opq"}))
	f.Add(tarOf(f, member{name: "l", kind: tar.TypeSymlink, link: "/etc"}, member{name: "l/x", data: "y"}))
	f.Add(tarOf(f, member{name: "h", data: "q"}, member{name: "i", kind: tar.TypeLink, link: "h"}, member{name: "h/", kind: tar.TypeDir}))
	f.Add(tarOf(f, member{name: "../../x", data: "q"}, member{name: strings.Repeat("y/", 90), kind: tar.TypeDir}))
	before := []Entry{file("a", "one"), folderAt("d"), file("d/g", "three")}
	f.Fuzz(func(t *testing.T, data []byte) {
		var kept bytes.Buffer
		lim := Limits{Bytes: 4096, Entries: 50}
		c, err := ReadChanges(bytes.NewReader(data), before, &kept, lim)
		if err != nil {
			t.Fatal(err)
		}
		if int64(kept.Len()) > lim.Bytes || int64(kept.Len()) != c.Bytes {
			t.Fatalf("%d bytes are kept, %d are said", kept.Len(), c.Bytes)
		}
		kinds := map[string]string{}
		for i := range c.List {
			ch := &c.List[i]
			if name, why := cleanName(ch.Path); why != "" || name != ch.Path {
				t.Fatalf("%q is listed: %s", ch.Path, why)
			}
			if ch.After != nil {
				kinds[ch.Path] = ch.After.Kind
				if ch.After.Mode&^0o777 != 0 || ch.After.Kind == "file" && (ch.At < 0 || ch.At+ch.After.Size > c.Bytes) {
					t.Fatalf("%+v", ch.After)
				}
			}
		}
		for p := range kinds {
			for up := parent(p); up != ""; up = parent(up) {
				if k, ok := kinds[up]; ok && k != "dir" {
					t.Fatalf("%q lies in a %s", p, k)
				}
			}
		}
		if !slices.IsSortedFunc(c.List, func(a, b Change) int { return strings.Compare(a.Path, b.Path) }) {
			t.Fatal("not sorted")
		}
		r := &Run{Changes: *c}
		var out bytes.Buffer
		list, _ := r.Select(nil)
		r.Diff(&out, list, DiffOptions{Format: NameStatus})
		if strings.ContainsFunc(strings.NewReplacer("\n", "", "\t", "").Replace(out.String()), misleads) {
			t.Fatalf("a name is obeyed: %q", out.String())
		}
	})
}
