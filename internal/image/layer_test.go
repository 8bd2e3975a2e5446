package image

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
)

// madeLayer makes a layer of an archive over others and returns its file.
func madeLayer(t testing.TB, archive []byte, below []*os.File, more func(k *Making)) (*os.File, Made, error) {
	t.Helper()
	dir := t.TempDir()
	open := func(name string) *os.File {
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	in, out := open("in"), open("out")
	in.Write(archive)
	k := Making{Below: below, Spool: open("spool"), Marks: true}
	if more != nil {
		more(&k)
	}
	plain, err := Plain(context.Background(), in, k.Spool, k.limit(), nil)
	if err != nil {
		return nil, Made{}, err
	}
	if plain == k.Spool {
		info, _ := plain.Stat()
		k.Taken = info.Size()
	}
	if err := k.Open(plain); err != nil {
		return nil, Made{}, err
	}
	made, err := k.Write(context.Background(), out)
	return out, made, err
}

// stacked is what a stack of layers shows, by path, read by the test's own reader.
func stacked(t testing.TB, layers ...*os.File) map[string]seen {
	t.Helper()
	all := map[string]seen{}
	for _, f := range layers {
		top := readImage(t, f.Name(), 1<<20)
		for _, p := range paths(top) {
			s := top[p]
			old, had := all[p]
			if had && (s.mode&typeMask != typeDir || old.mode&typeMask != typeDir) {
				for q := range all {
					if strings.HasPrefix(q, p+"/") {
						delete(all, q)
					}
				}
			}
			if delete(all, p); s.mode&typeMask != typeChar {
				all[p] = s
			}
		}
	}
	return all
}

func paths(m map[string]seen) []string {
	var out []string
	for p := range m {
		out = append(out, p)
	}
	slices.Sort(out)
	return out
}

func TestLayers(t *testing.T) {
	base := makeTar(t,
		entry{name: "etc/", kind: tar.TypeDir},
		entry{name: "etc/keep", content: "keep"},
		entry{name: "etc/gone", content: "gone"},
		entry{name: "d/a", content: "a"}, entry{name: "d/b", content: "b"}, entry{name: "d/sub/c", content: "c"},
		entry{name: "file-then-dir", content: "f"},
		entry{name: "dir-then-file/x", content: "x"},
		entry{name: "real/lib/one", content: "1"},
		entry{name: "lib", kind: tar.TypeSymlink, link: "real/lib"},
		entry{name: "hard", content: "shared"},
		entry{name: "again/x", content: "old"},
	)
	top := makeTar(t,
		entry{name: "etc/.wh.gone"},
		entry{name: "etc/.wh.never"},
		entry{name: "d/b", content: "new b"}, // before the mark, and it stays
		entry{name: "d/.wh..wh..opq"},
		entry{name: "d/d", content: "d"},
		entry{name: ".wh..wh.plnk/1.2", content: "aufs"},
		entry{name: "file-then-dir/", kind: tar.TypeDir}, entry{name: "file-then-dir/y", content: "y"},
		entry{name: "dir-then-file", content: "now a file"},
		entry{name: "lib/two", content: "2"},
		entry{name: "linked", kind: tar.TypeLink, link: "hard"},
		entry{name: ".wh.again"}, entry{name: "again/", kind: tar.TypeDir, mode: 0o700}, entry{name: "again/z", content: "z"},
		entry{name: "set", content: "s", mode: 0o6755},
		entry{name: "-rf", content: "dash"}, entry{name: "new\nline", content: "nl"}, entry{name: "back\\slash", content: "bs"},
		entry{name: "not\xffutf8", content: "raw"}, entry{name: strings.Repeat("n", 255), content: "long"},
		entry{name: "dev/null", kind: tar.TypeChar}, entry{name: "pipe", kind: tar.TypeFifo}, entry{name: "etc/block", kind: tar.TypeBlock},
	)
	one, _, err := madeLayer(t, base, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, archive := range map[string][]byte{"plain": top, "gzip": zipped(top)} {
		t.Run(name, func(t *testing.T) {
			two, made, err := madeLayer(t, archive, []*os.File{one}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if made.Dropped.Devices != 3 {
				t.Errorf("dropped %+v", made.Dropped)
			}
			layer := readImage(t, two.Name(), 1<<20)
			for _, p := range []string{"/etc/gone", "/d/a", "/d/sub", "/again/x"} {
				if s, ok := layer[p]; !ok || s.mode&typeMask != typeChar {
					t.Errorf("%s is no whiteout: %+v", p, s)
				}
			}
			for _, p := range []string{"/etc/never", "/etc/keep", "/real/lib/one", "/lib"} {
				if s, ok := layer[p]; ok {
					t.Errorf("%s is in the layer: %+v", p, s)
				}
			}
			all := stacked(t, one, two)
			for p, want := range map[string]string{
				"/etc/keep": "keep", "/d/b": "new b", "/d/d": "d", "/file-then-dir/y": "y", "/dir-then-file": "now a file",
				"/real/lib/one": "1", "/real/lib/two": "2", "/hard": "shared", "/linked": "shared", "/again/z": "z", "/set": "s",
				"/-rf": "dash", "/new\nline": "nl", "/back\\slash": "bs", "/not\xffutf8": "raw", "/" + strings.Repeat("n", 255): "long",
			} {
				if s, ok := all[p]; !ok || string(s.content) != want {
					t.Errorf("%q is %q, want %q", p, s.content, want)
				}
			}
			for _, p := range []string{"/etc/gone", "/d/a", "/d/sub", "/d/sub/c", "/again/x", "/dev/null", "/pipe", "/etc/block", "/.wh..wh.plnk/1.2"} {
				if s, ok := all[p]; ok {
					t.Errorf("%s is there: %+v", p, s)
				}
			}
			if a, b := all["/hard"], all["/linked"]; a.nid != b.nid || a.nlink != 2 {
				t.Errorf("hard links: %+v and %+v", a, b)
			}
			if s := all["/set"]; s.mode != typeFile|0o6755 {
				t.Errorf("set has mode %o", s.mode)
			}
			if s := all["/again"]; s.mode != typeDir|0o700 {
				t.Errorf("again has mode %o", s.mode)
			}
			// All in one is the same.
			whole, _, err := madeLayer(t, archive, []*os.File{one}, func(k *Making) { k.Whole = true })
			if err != nil {
				t.Fatal(err)
			}
			if a, b := paths(all), paths(readImage(t, whole.Name(), 1)); !slices.Equal(a, b) {
				t.Errorf("stacked:\n%q\nin one:\n%q", a, b)
			}
		})
	}
}

// TestLayerTimes: before 1970 and after 2038, to the nanosecond.
func TestLayerTimes(t *testing.T) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	times := map[string]time.Time{
		"old": time.Date(1901, 2, 3, 4, 5, 6, 7, time.UTC), "far": time.Date(2262, 1, 1, 0, 0, 0, 999999999, time.UTC), "zero": time.Unix(0, 0),
	}
	for name, at := range times {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, ModTime: at, Format: tar.FormatPAX}); err != nil {
			t.Fatal(err)
		}
	}
	w.Close()
	f, _, err := madeLayer(t, b.Bytes(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range readImage(t, f.Name(), 1) {
		if at, ok := times[strings.TrimPrefix(name, "/")]; ok && s.mtime != at.Unix() {
			t.Errorf("%s has time %d, want %d", name, s.mtime, at.Unix())
		}
	}
}

// TestPrefix: a working tree goes below its directory whatever it holds.
func TestPrefix(t *testing.T) {
	first := makeTar(t, entry{name: "./", kind: tar.TypeDir}, entry{name: "out", kind: tar.TypeSymlink, link: "/etc"},
		entry{name: "up", kind: tar.TypeSymlink, link: "../../etc"}, entry{name: "a", content: "a", uid: 5}, entry{name: "b", content: "b"})
	second := makeTar(t, entry{name: "out/passwd", content: "x"}, entry{name: "up/shadow", content: "x"}, entry{name: ".wh.b"})
	opt := func(k *Making) { k.Prefix, k.Owner = "/workspace", &[2]uint32{1000, 1000} }
	one, _, err := madeLayer(t, first, nil, opt)
	if err != nil {
		t.Fatal(err)
	}
	two, _, err := madeLayer(t, second, []*os.File{one}, opt)
	if err != nil {
		t.Fatal(err)
	}
	all := stacked(t, one, two)
	for p, s := range all {
		if p != "/" && p != "/workspace" && !strings.HasPrefix(p, "/workspace/") {
			t.Errorf("%s is outside", p)
		}
		if p != "/" && (s.uid != 1000 && !slices.Contains([]string{"/workspace/etc"}, p)) {
			t.Errorf("%s is owned by %d", p, s.uid)
		}
	}
	if _, ok := all["/workspace/b"]; ok {
		t.Error("b is still there")
	}
	if len(readImage(t, two.Name(), 1)) > 7 {
		t.Errorf("the second layer holds %q", paths(readImage(t, two.Name(), 1)))
	}
}

// TestGuestLayer: a root is complete whatever its layers did, and what is right
// already is not in the layer again.
func TestGuestLayer(t *testing.T) {
	base, _, err := madeLayer(t, makeTar(t, entry{name: "bin/sh", content: "sh"}), nil, func(k *Making) { k.Guest = true })
	if err != nil {
		t.Fatal(err)
	}
	same, _, err := madeLayer(t, makeTar(t, entry{name: "opt/x", content: "x"}), []*os.File{base}, func(k *Making) { k.Guest = true })
	if err != nil {
		t.Fatal(err)
	}
	if got := paths(readImage(t, same.Name(), 1)); !slices.Equal(got, []string{"/", "/opt", "/opt/x"}) {
		t.Errorf("a layer with one file holds %q", got)
	}
	worse := makeTar(t, entry{name: ".wh.tmp"}, entry{name: "etc/passwd", content: "root:x:0:0::/root:/bin/sh\n"}, entry{name: ".wh.workspace"},
		entry{name: "etc/hosts", content: "192.0.2.1 evil"})
	top, _, err := madeLayer(t, worse, []*os.File{base}, func(k *Making) { k.Guest = true })
	if err != nil {
		t.Fatal(err)
	}
	all := stacked(t, base, top)
	for _, s := range skeleton {
		if n := all[s.path]; n.mode&typeMask != typeDir {
			t.Errorf("%s has mode %o", s.path, n.mode)
		}
	}
	if _, ok := all[tmpMark]; !ok {
		t.Error("the mark in /tmp is gone")
	}
	if s := all["/etc/hosts"]; string(s.content) != hostsFile {
		t.Errorf("hosts: %q", s.content)
	}
	if s := all["/etc/passwd"]; !strings.Contains(string(s.content), "agent:x:1000") {
		t.Errorf("passwd: %q", s.content)
	}
}

func TestLayerHostile(t *testing.T) {
	below, _, err := madeLayer(t, makeTar(t, entry{name: "f", content: "f"}, entry{name: "big", content: strings.Repeat("x", 1<<20)}), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	// Old GNU format, by hand: the standard library writes no sparse files.
	sparse := func(real, hole string) []byte {
		b := makeTar(t, entry{name: "s", content: strings.Repeat("d", 512)})
		h := b[:512]
		h[156] = 'S'
		copy(h[257:], "ustar  \x00")
		copy(h[386:], "00000000000\x0000000001000\x00") // data at the start
		copy(h[410:], hole+"\x0000000000000\x00")       // nothing at the end
		copy(h[483:], real+"\x00")
		copy(h[148:], "        ")
		sum := 0
		for _, c := range h {
			sum += int(c)
		}
		copy(h[148:], fmt.Sprintf("%06o\x00 ", sum))
		return b
	}
	pax := makeTar(t, entry{name: "x", content: strings.Repeat("p", 2<<20)}, entry{name: "f", content: "f"})
	pax[156] = 'x'
	copy(pax[148:], "        ")
	sum := 0
	for _, c := range pax[:512] {
		sum += int(c)
	}
	copy(pax[148:], fmt.Sprintf("%06o\x00 ", sum))
	var links []entry
	for i := range 40 {
		links = append(links, entry{name: "l" + strings.Repeat("x", i), kind: tar.TypeLink, link: "big"})
	}
	deep := []entry{}
	for range 3 {
		deep = append(deep, entry{name: strings.Repeat("d/", 1500) + "f", content: "x"})
	}
	chained := []entry{{name: strings.Repeat("d/", 2000) + "end", kind: tar.TypeSymlink, link: "."},
		{name: "s1", kind: tar.TypeSymlink, link: strings.TrimSuffix(strings.Repeat("d/", 2000), "/")}, {name: "s1/" + strings.Repeat("e/", 2000) + "f", content: "x"}}
	for _, tt := range []struct {
		name    string
		archive []byte
		code    string // "": it is taken
	}{
		{"a mark for nothing", makeTar(t, entry{name: ".wh."}), api.CodeTemplateInvalid},
		{"a mark for the parent", makeTar(t, entry{name: "a/.wh..."}), api.CodeTemplateInvalid},
		{"a mark for ..", makeTar(t, entry{name: "a/.wh..", content: ""}), api.CodeTemplateInvalid},
		{"traversal", makeTar(t, entry{name: "../x", content: "x"}), api.CodeTemplateInvalid},
		{"below a file", makeTar(t, entry{name: "f/x", content: "x"}), api.CodeTemplateInvalid},
		{"many names of one file", makeTar(t, links...), ""},
		{"zeros", zipped(make([]byte, 60<<20)), ""},
		{"a file of zeros", zipped(makeTar(t, entry{name: "z", content: string(make([]byte, 32<<20))})), api.CodeTemplateTooLarge},
		{"too large", makeTar(t, entry{name: "z", content: strings.Repeat("y", 8<<20)}), api.CodeTemplateTooLarge},
		{"deep", makeTar(t, deep...), api.CodeTemplateTooLarge},
		{"deep behind links", makeTar(t, chained...), api.CodeTemplateInvalid},
		{"no tar", []byte(strings.Repeat("text", 1000)), api.CodeTemplateInvalid},
		{"nothing", nil, ""},
		{"sparse", sparse("00010000000", "00010000000"), ""},
		{"sparse of 8 GiB", sparse("77777777777", "77777777777"), api.CodeTemplateTooLarge},
		{"huge pax headers", pax, api.CodeTemplateInvalid},
		{"gzip in gzip", zipped(zipped(makeTar(t, entry{name: "x", content: "x"}))), api.CodeTemplateInvalid},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, _, err := madeLayer(t, tt.archive, []*os.File{below}, func(k *Making) { k.MaxBytes = 4 << 20 })
			var e *api.Error
			if tt.code == "" && err != nil || tt.code != "" && (!errors.As(err, &e) || e.Code != tt.code || e.Hint == "") {
				t.Errorf("got %v, want %q", err, tt.code)
			}
		})
	}
}

func TestAccounts(t *testing.T) {
	f, _, err := madeLayer(t, makeTar(t,
		entry{name: "etc/passwd", kind: tar.TypeSymlink, link: "../../usr/p"},
		entry{name: "usr/p", content: "root:x:0:0:root:/root:/bin/sh\nnode:x:1001:1002::/home/node:/bin/sh\n7:x:8:9::/seven:/x\nbad:x:zz:1::/:/x\nnohome:x:5:6::rel:/x\nagent:x:1000:50::/home/me:/x\n"},
		entry{name: "etc/group", content: "root:x:0:\nstaff:x:50:\n"},
	), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for user, want := range map[string]Account{
		"": {1000, 50, "/home/me"}, "node": {1001, 1002, "/home/node"}, "1001": {1001, 1002, "/home/node"}, "7": {8, 9, "/seven"},
		"root": {0, 0, "/root"}, "node:staff": {1001, 50, "/home/node"}, "1234": {1234, 0, "/"}, "1234:77": {1234, 77, "/"}, "nohome": {5, 6, "/"},
	} {
		made, err := Making{Below: []*os.File{f}, User: user}.Write(t.Context(), nil)
		if err != nil || made.Account != want {
			t.Errorf("%q is %+v, %v; want %+v", user, made.Account, err, want)
		}
	}
	for _, user := range []string{"nobody", "bad", "node:wheel", "-1", "4294967295", "99999999999", ":", "+5"} {
		_, err := Making{Below: []*os.File{f}, User: user}.Write(t.Context(), nil)
		var e *api.Error
		if !errors.As(err, &e) || e.Code != api.CodeTemplateInvalid {
			t.Errorf("%q: %v", user, err)
		}
	}
}

// FuzzReadImage: a file that claims to be an image costs what it may, and what is
// taken can be written again and is the same.
func FuzzReadImage(f *testing.F) {
	seed, _, err := madeLayer(f, makeTar(f, entry{name: "a/b", content: "x"}, entry{name: "l", kind: tar.TypeSymlink, link: "../a"},
		entry{name: "h", kind: tar.TypeLink, link: "a/b"}, entry{name: "e/", kind: tar.TypeDir}), nil, nil)
	if err != nil {
		f.Fatal(err)
	}
	b, err := os.ReadFile(seed.Name())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add(b[:blockSize])
	f.Fuzz(func(t *testing.T, b []byte) {
		tr, err := readTree(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return
		}
		p, err := layOut(tr)
		if err != nil || p.blocks > 1<<10 {
			return
		}
		again := writeTree(t, tr)
		readImage(t, again, 1<<20)
		c, err := os.ReadFile(again)
		if err != nil {
			t.Fatal(err)
		}
		two, err := readTree(bytes.NewReader(c), int64(len(c)))
		if err != nil {
			t.Fatal(err)
		}
		if d, err := two.over(tr); err != nil || d.count < 1 {
			t.Fatalf("over: %v", err)
		}
	})
}

// FuzzLayer lays two layers of few names over each other: stacked they show what
// is there when all is written at once.
func FuzzLayer(f *testing.F) {
	f.Add([]byte("\x02\x10\x21\x00\x12\x00\x31\x00"), []byte("\x40\x51\x33\x40\x00\x61\x12\x73\x24\x16"))
	f.Add([]byte("\x00\x10\x01\x02\x13\x44\x70\x01"), []byte("\x0a\x10\x0b\x02\x0c\x44\x0d\x01\x00\x33"))
	names := []string{"a", "b", "a/b", "b/a", "a/b/c", "./a/", "c/d", "c", "/b/x", "d/e", ".wh.a", "a/.wh.b", "a/.wh..wh..opq", "b/.wh.a", ".wh..wh..opq", "c/.wh.d"}
	kinds := []byte{tar.TypeReg, tar.TypeDir, tar.TypeSymlink, tar.TypeLink, tar.TypeFifo, tar.TypeReg, tar.TypeReg, tar.TypeDir}
	archive := func(prog []byte) []byte {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for i := 0; i+1 < len(prog) && i < 100; i += 2 {
			h := &tar.Header{Name: names[prog[i]&15], Typeflag: kinds[prog[i]>>4&7], Mode: int64(prog[i+1]) << 4, Linkname: names[prog[i+1]&7]}
			switch h.Typeflag {
			case tar.TypeReg:
				h.Linkname, h.Size, h.Name = "", int64(prog[i+1]), strings.TrimSuffix(h.Name, "/")
			case tar.TypeDir:
				h.Linkname = ""
			}
			if w.WriteHeader(h) == nil {
				w.Write(make([]byte, h.Size))
			}
		}
		w.Close()
		return b.Bytes()
	}
	f.Fuzz(func(t *testing.T, low, high []byte) {
		one, _, err := madeLayer(t, archive(low), nil, nil)
		if err != nil {
			return
		}
		two, _, err := madeLayer(t, archive(high), []*os.File{one}, nil)
		if err != nil {
			return
		}
		whole, _, err := madeLayer(t, archive(high), []*os.File{one}, func(k *Making) { k.Whole = true })
		if err != nil {
			t.Fatal(err)
		}
		a, b := stacked(t, one, two), readImage(t, whole.Name(), 1<<20)
		for p, s := range a {
			w := b[p]
			if s.mode != w.mode || s.target != w.target || !bytes.Equal(s.content, w.content) {
				t.Errorf("%s: %+v stacked, %+v in one", p, s, w)
			}
			delete(b, p)
		}
		for p := range b {
			t.Errorf("%s is missing from the stack", p)
		}
	})
}
