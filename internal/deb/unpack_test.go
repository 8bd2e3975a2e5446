package deb

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// A file of a package that a test makes: kind is d, f, l (symbolic), h (hard) or
// c (a device).
type testFile struct {
	kind byte
	name string
	text string // or where a link leads
	mode int64
}

func tarOf(files []testFile) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		h := &tar.Header{Name: f.name, Mode: f.mode, Typeflag: tar.TypeReg}
		switch f.kind {
		case 'd':
			h.Typeflag = tar.TypeDir
		case 'l':
			h.Typeflag, h.Linkname = tar.TypeSymlink, f.text
		case 'h':
			h.Typeflag, h.Linkname = tar.TypeLink, f.text
		case 'c':
			h.Typeflag, h.Devmajor, h.Devminor = tar.TypeChar, 1, 3
		default:
			h.Size = int64(len(f.text))
		}
		w.WriteHeader(h)
		if f.kind == 'f' {
			io.WriteString(w, f.text)
		}
	}
	w.Close()
	return b.Bytes()
}

func arOf(members ...any) []byte {
	b := bytes.NewBufferString("!<arch>\n")
	for i := 0; i < len(members); i += 2 {
		data := members[i+1].([]byte)
		fmt.Fprintf(b, "%-16s%-12d%-6d%-6d%-8s%-10d`\n", members[i], 0, 0, 0, "100644", len(data))
		b.Write(data)
		if len(data)%2 == 1 {
			b.WriteByte('\n')
		}
	}
	return b.Bytes()
}

func gz(data []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Write(data)
	w.Close()
	return b.Bytes()
}

// debOf makes a package; extra are fields, info other files of its control
// archive.
func debOf(name, extra string, info []testFile, files ...testFile) []byte {
	control := fmt.Sprintf("Package: %s\nVersion: 1\nArchitecture: amd64\n%sDescription: x\n", name, extra)
	c := tarOf(append([]testFile{{'d', "./", "", 0o755}, {'f', "./control", control, 0o644}}, info...))
	z, _ := zstd.NewWriter(nil)
	return arOf("debian-binary", []byte("2.0\n"), "control.tar.gz", gz(c), "data.tar.zst", z.EncodeAll(tarOf(files), nil))
}

// rootOf unpacks packages and reads the tar back: what each path is.
func rootOf(set Set, debs ...[]byte) (map[string]string, error) {
	set.Arch = "amd64"
	var in []io.ReaderAt
	for i, d := range debs {
		if i >= len(set.Packages) {
			set.Packages = append(set.Packages, Package{Name: string(rune('a'+i)) + "1", Version: "1", Arch: "amd64"})
		}
		set.Packages[i].Size = int64(len(d))
		in = append(in, bytes.NewReader(d))
	}
	var out bytes.Buffer
	if err := WriteTar(set, in, &out); err != nil {
		return nil, err
	}
	root := map[string]string{}
	for r := tar.NewReader(&out); ; {
		h, err := r.Next()
		if err == io.EOF {
			return root, nil
		}
		if err != nil {
			return nil, err
		}
		name := strings.TrimSuffix(h.Name, "/")
		if _, twice := root[name]; twice {
			return nil, fmt.Errorf("%s is there twice", name)
		}
		if dir := name[:max(strings.LastIndexByte(name, '/'), 0)]; dir != "" && !strings.HasPrefix(root[dir], "d") {
			return nil, fmt.Errorf("%s comes before its directory", name)
		}
		data, _ := io.ReadAll(r)
		switch h.Typeflag {
		case tar.TypeDir:
			root[name] = fmt.Sprintf("d%o", h.Mode)
		case tar.TypeReg:
			root[name] = fmt.Sprintf("f%o %s", h.Mode, data)
		default:
			root[name] = string(h.Typeflag) + h.Linkname
		}
	}
}

func TestWriteTar(t *testing.T) {
	conf := []testFile{{'f', "conffiles", "/etc/a.conf\n", 0o644}, {'f', "postinst", "#!/bin/sh\n", 0o755}, {'f', "triggers", "interest-noawait /usr/share/x\ninterest mytrigger\nactivate ldconfig\n", 0o644}}
	root, err := rootOf(Set{Sources: "deb http://mirror.test/d s main\n", Keys: map[string][]byte{"k.gpg": []byte("key")}},
		debOf("a1", "Essential: yes\n", conf, testFile{'d', "./", "", 0o755}, testFile{'d', "./tmp/", "", 0o1777}, testFile{'d', "./bin/", "", 0o755}, testFile{'f', "./bin/su", "su", 0o4755},
			testFile{'d', "./etc/", "", 0o755}, testFile{'f', "./etc/a.conf", "x", 0o644}, testFile{'h', "./bin/su2", "./bin/su", 0o4755}, testFile{'l', "./lib64/ld.so", "/lib/ld", 0o777}),
		debOf("b1", "Multi-Arch: same\nReplaces: a1\n", nil, testFile{'d', "./usr/share/", "", 0o755}, testFile{'l', "./usr/share/link", "../lib/b", 0o777}, testFile{'d', "./usr/lib/b/", "", 0o755}, testFile{'f', "./etc/a.conf", "b's", 0o600}),
		debOf("c1", "", nil, testFile{'f', "./usr/share/link/through", "c", 0o644}, testFile{'l', "./usr/lib", "elsewhere", 0o777}))
	if err != nil {
		t.Fatal(err)
	}
	status := strings.Join([]string{
		"Package: a1\nStatus: install ok unpacked\nVersion: 1\nArchitecture: amd64\nEssential: yes\nDescription: x\n",
		"Package: b1\nStatus: install ok installed\nVersion: 1\nArchitecture: amd64\nMulti-Arch: same\nReplaces: a1\nDescription: x\n",
		"Package: c1\nStatus: install ok installed\nVersion: 1\nArchitecture: amd64\nDescription: x\n", "",
	}, "\n")
	for name, want := range map[string]string{
		"bin": "2usr/bin", "usr/bin": "d755", "usr/bin/su": "f4755 su", "usr/bin/su2": "1usr/bin/su", "usr/lib64/ld.so": "2/lib/ld", "tmp": "d1777",
		"etc/a.conf":                      "f600 b's", // it replaces a1's
		"usr/lib/b/through":               "f644 c",   // c1 goes through b1's link, and its own is a directory already
		"usr/lib":                         "d755",
		"var/lib/dpkg/status":             "f644 " + status,
		"var/lib/dpkg/info/b1:amd64.list": "f644 /usr/share\n/usr/share/link\n/usr/lib/b\n/etc/a.conf\n",
		"var/lib/dpkg/info/a1.postinst":   "f755 #!/bin/sh\n",
		"var/lib/dpkg/triggers/File":      "f644 /usr/share/x a1/noawait\n",
		"var/lib/dpkg/triggers/mytrigger": "f644 a1\n",
		"etc/apt/trusted.gpg.d/k.gpg":     "f644 key",
		"etc/apt/sources.list":            "f644 deb http://mirror.test/d s main\n",
	} {
		if root[name] != want {
			t.Errorf("%s is %q, want %q", name, root[name], want)
		}
	}
	if strings.Contains(root["var/lib/dpkg/info/a1.list"], "a.conf") {
		t.Error("a1 is recorded with a file that b1 replaced")
	}
}

func TestSlim(t *testing.T) {
	root, err := rootOf(Set{Slim: true}, debOf("a1", "", nil,
		testFile{'f', "./usr/share/doc/a1/copyright", "c", 0o644}, testFile{'f', "./usr/share/doc/a1/changelog.gz", "", 0o644}, testFile{'l', "./usr/share/doc/b1", "a1", 0o777},
		testFile{'d', "./usr/share/man/", "", 0o755}, testFile{'f', "./usr/share/man/man1/a.1.gz", "", 0o644}, testFile{'f', "./usr/share/locale/de/LC_MESSAGES/a.mo", "", 0o644}))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, name := range slices.Sorted(maps.Keys(root)) {
		if strings.HasPrefix(name, "usr/share/") {
			got = append(got, strings.TrimPrefix(name, "usr/share/"))
		}
	}
	if want := "doc doc/a1 doc/a1/copyright doc/b1 man"; strings.Join(got, " ") != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestWriteTarRefuses(t *testing.T) {
	file := func(name string) testFile { return testFile{'f', name, "x", 0o644} }
	good := debOf("a1", "", nil, file("./x"))
	for name, debs := range map[string][][]byte{
		"leads out":         {debOf("a1", "", nil, file("./../x"))},
		"leads out of":      {debOf("a1", "", nil, file("/a/../../x"))},
		"in package a1 too": {good, debOf("b1", "", nil, file("./x"))},
		"is there twice":    {debOf("a1", "", nil, file("./x"), file("./x"))},
		"there twice, by /": {debOf("a1", "", nil, file("./bin/x"), file("./usr/bin/x"))},
		"is below a file":   {debOf("a1", "", nil, file("./x"), file("./x/y"))},
		"too many links":    {debOf("a1", "", nil, testFile{'l', "./x", "y", 0}, testFile{'l', "./y", "x", 0}, file("./x/y"))},
		"neither file":      {debOf("a1", "", nil, testFile{'c', "./x", "", 0})},
		"no file of it":     {good, debOf("b1", "", nil, testFile{'h', "./y", "./x", 0})},
		"a hard link out":   {debOf("a1", "", nil, testFile{'h', "./y", "../x", 0})},
		"it says it is":     {debOf("other", "", nil)},
		"control archive":   {debOf("a1", "", []testFile{{'f', "./../x", "", 0}})},
		"link as control":   {debOf("a1", "", []testFile{{'l', "./postinst", "/etc/passwd", 0}})},
		"field Package":     {debOf("a1", "Package: b1\n", nil)},
		"no ar":             {[]byte("PK")},
		"ends early":        {good[:90]},
		"cut":               {good[:len(good)-40]},
		"no control":        {arOf("debian-binary", []byte("2.0\n"), "control.tar.gz", gz(tarOf(nil)), "data.tar.gz", gz(tarOf(nil)))},
		"data first":        {arOf("debian-binary", []byte("2.0\n"), "data.tar.gz", gz(tarOf(nil)), "control.tar.gz", gz(tarOf(nil)))},
		"other compression": {arOf("debian-binary", []byte("2.0\n"), "control.tar.lz", gz(tarOf(nil)), "data.tar.gz", gz(tarOf(nil)))},
		"other format":      {arOf("debian-binary", []byte("3.0\n"))},
	} {
		if _, err := rootOf(Set{}, debs...); err == nil {
			t.Errorf("%s: no error", name)
		} else if !strings.Contains(err.Error(), "package ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	full := errors.New("full")
	err := WriteTar(Set{Arch: "amd64", Packages: []Package{{Name: "a1", Version: "1", Arch: "amd64", Size: int64(len(good))}}}, []io.ReaderAt{bytes.NewReader(good)}, failing{full})
	if !errors.Is(err, full) {
		t.Errorf("an error of the writer became %v", err)
	}
}

type failing struct{ error }

func (f failing) Write([]byte) (int, error) { return 0, f.error }

func FuzzDeb(f *testing.F) {
	f.Add(debOf("a1", "Replaces: b1 (<< 2)\n", []testFile{{'f', "conffiles", "/etc/x\n", 0o644}}, testFile{'d', "./etc/", "", 0o755}, testFile{'f', "./etc/x", "x", 0o644}, testFile{'l', "./y", "etc", 0}, testFile{'f', "./y/z", "", 0}), []byte{})
	f.Add(arOf("debian-binary", []byte("2.0\n"), "control.tar", tarOf([]testFile{{'f', "control", "Package: a1\nVersion: 1\nArchitecture: amd64\n", 0o644}}), "data.tar", tarOf([]testFile{{'f', "x", "y", 0o644}})), []byte("x"))
	plain := tarOf([]testFile{{'l', "./y", "/etc", 0}, {'d', "y/", "", 0}, {'f', "y/z", "1", 0}, {'h', "h", "y/z", 0}})
	f.Add([]byte{}, plain)
	f.Fuzz(func(t *testing.T, whole, data []byte) {
		rootOf(Set{}, whole)
		control := tarOf([]testFile{{'f', "control", "Package: a1\nVersion: 1\nArchitecture: amd64\n", 0o644}})
		deb := arOf("debian-binary", []byte("2.0\n"), "control.tar", control, "data.tar", data)
		if root, err := rootOf(Set{}, deb); err == nil {
			for name := range root {
				if strings.HasPrefix(name, "/") || slices.Contains(strings.Split(name, "/"), "..") {
					t.Fatalf("%q leads out", name)
				}
			}
		} else if strings.Contains(err.Error(), "is there twice") && !strings.Contains(err.Error(), "package ") || strings.Contains(err.Error(), "comes before") {
			t.Fatal(err)
		}
	})
}
