package registry

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/bermhq/berm/api"
	rt "github.com/bermhq/berm/internal/registry/registrytest"
)

func read(b []byte) (*Archive, error) { return ReadArchive(bytes.NewReader(b), int64(len(b))) }

// saved is what docker save writes, in the layout of before 2024: names of
// configurations, compressed layers.
func saved(t testing.TB, images map[string]v1.Image) []byte {
	t.Helper()
	refs := map[name.Reference]v1.Image{}
	for n, img := range images {
		tag, err := name.NewTag(n)
		if err != nil {
			t.Fatal(err)
		}
		refs[tag] = img
	}
	var out bytes.Buffer
	if err := tarball.MultiRefWrite(refs, &out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// ancient is what docker 1.10 to 24 wrote: a directory for each layer, and a
// symlink for a layer that an image has twice.
func ancient(t testing.TB) []byte {
	t.Helper()
	layer := rt.Tar(t, rt.Reg("a", 0o644, "a"))
	id := strings.TrimPrefix(digestOf(layer), "sha256:")
	conf := fmt.Sprintf(`{"architecture":"amd64","os":"linux","config":{"Env":["OLD=1"]},"rootfs":{"type":"layers","diff_ids":["sha256:%s","sha256:%s"]}}`, id, id)
	confID := strings.TrimPrefix(digestOf([]byte(conf)), "sha256:")
	return rt.Tar(t,
		rt.Dir("one", 0o755), rt.Reg("one/VERSION", 0o644, "1.0"), rt.Reg("one/json", 0o644, "{}"), rt.Reg("one/layer.tar", 0o644, string(layer)),
		rt.Dir("two", 0o755), rt.Link("two/layer.tar", "../one/layer.tar"),
		rt.Reg(confID+".json", 0o644, conf),
		rt.Reg("manifest.json", 0o644, `[{"Config":"`+confID+`.json","RepoTags":["old:1"],"Layers":["one/layer.tar","two/layer.tar"]}]`),
		rt.Reg("repositories", 0o644, "{}"))
}

// laidOut is an OCI layout as a directory.
func laidOut(t testing.TB, images map[string]v1.Image) string {
	t.Helper()
	dir := t.TempDir()
	p, err := layout.Write(dir, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	for n, img := range images {
		if err := p.AppendImage(img, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": n})); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func tarOf(t testing.TB, dir string) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := TarDir(dir, &out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func three2(t testing.TB) v1.Image {
	return rt.Image(t, conf,
		rt.Layer(t, rt.Gzip, rt.Tar(t, rt.Dir("a", 0o755), rt.Reg("a/one", 0o644, strings.Repeat("one", 5000)))),
		rt.Layer(t, rt.Zstd, rt.Tar(t, rt.Reg("a/two", 0o644, "two"))),
		rt.Layer(t, rt.Plain, rt.Tar(t, rt.Reg("a/three", 0o644, "three"))))
}

func TestReadArchive(t *testing.T) {
	img := three2(t)
	other := rt.Image(t, v1.Config{Env: []string{"OTHER=1"}}, rt.Layer(t, rt.Gzip, rt.Tar(t, rt.Reg("x", 0o644, "x"))))
	arm := rt.ImageFor(t, v1.Platform{OS: "linux", Architecture: "arm64"}, v1.Config{}, rt.Layer(t, rt.Gzip, rt.Tar(t, rt.Reg("arm", 0o644, "x"))))
	multi := t.TempDir()
	p, err := layout.Write(multi, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.AppendIndex(rt.Index(t, arm, img)); err != nil {
		t.Fatal(err)
	}
	two := saved(t, map[string]v1.Image{"app:1": img, "other:2": other})
	oneLayout := tarOf(t, laidOut(t, map[string]v1.Image{"app:1": img}))
	const want = "a/ a/one; a/two; a/three"
	for _, tt := range []struct {
		name             string
		data             []byte
		pick, platform   string
		layers, env, bad string
	}{
		{"docker save", saved(t, map[string]v1.Image{"app:1": img}), "", "linux/amd64", want, "A=b", ""},
		{"docker save, of two by name", two, "docker.io/library/other:2", "linux/amd64", "x", "OTHER=1", ""},
		{"docker save, of two without a name", two, "", "linux/amd64", "", "", "it holds 2 images"},
		{"docker save, no such name", two, "nothing:1", "linux/amd64", "", "", "app:1"},
		{"docker save, other platform", two, "app:1", "linux/arm64", "", "", "there is linux/amd64"},
		{"docker save, old", ancient(t), "old:1", "linux/amd64", "a; a", "OLD=1", ""},
		{"layout", oneLayout, "", "linux/amd64", want, "A=b", ""},
		{"layout by name", oneLayout, "app:1", "linux/amd64", want, "A=b", ""},
		{"layout with an index", tarOf(t, multi), "", "linux/amd64", want, "A=b", ""},
		{"layout with an index, arm", tarOf(t, multi), "", "linux/arm64", "arm", "", ""},
		{"layout with an index, none", tarOf(t, multi), "", "linux/s390x", "", "", "linux/amd64, linux/arm64"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, err := read(tt.data)
			if err != nil {
				t.Fatal(err)
			}
			img, err := a.Pick(tt.pick, tt.platform)
			if tt.bad != "" {
				var e *api.Error
				if !errors.As(err, &e) || e.Code != api.CodeTemplateInvalid || !strings.Contains(e.Message, tt.bad) {
					t.Fatalf("%v; want %q", err, tt.bad)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, l := range img.Layers {
				got = append(got, names(t, l))
			}
			if s := strings.Join(got, "; "); s != tt.layers || strings.Join(img.Config.Env, " ") != tt.env || img.Platform == "" {
				t.Errorf("layers %q, config %+v, platform %q", s, img.Config, img.Platform)
			}
		})
	}
}

// TestNoImage: what is no archive of images is left to others.
func TestNoImage(t *testing.T) {
	for name, data := range map[string][]byte{
		"nothing":             nil,
		"text":                []byte("this is no archive, however long it may go on to be; it goes on for more than a block " + strings.Repeat("x", 1000)),
		"zeros":               make([]byte, 4096),
		"a root":              rt.Tar(t, rt.Dir("etc", 0o755), rt.Reg("etc/passwd", 0o644, "root")),
		"a root with a name":  rt.Tar(t, rt.Dir("etc", 0o755), rt.Reg("manifest.json", 0o644, `{"name":"web app"}`), rt.Reg("index.json", 0o644, "{}")),
		"a list of others":    rt.Tar(t, rt.Reg("manifest.json", 0o644, `[{"icon":"x"}]`)),
		"names that lead out": rt.Tar(t, rt.Reg("../manifest.json", 0o644, `[{"Config":"x"}]`), rt.Reg("/index.json", 0o644, "{}"), rt.Reg("/oci-layout", 0o644, "{}")),
	} {
		if _, err := read(data); !errors.Is(err, ErrNoImage) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestHostileArchive: archives that lie are refused before or while a layer
// is read.
func TestHostileArchive(t *testing.T) {
	layer := rt.Tar(t, rt.Reg("a", 0o644, "a"))
	conf := func(diff string) string {
		return `{"architecture":"amd64","os":"linux","rootfs":{"type":"layers","diff_ids":["` + diff + `"]}}`
	}
	good := digestOf(layer)
	docker := func(conf, confName, layers string, more ...rt.File) []byte {
		return rt.Tar(t, append(more, rt.Reg(confName, 0o644, conf), rt.Reg("l.tar", 0o644, string(layer)),
			rt.Reg("manifest.json", 0o644, `[{"Config":"`+confName+`","RepoTags":null,"Layers":`+layers+`}]`))...)
	}
	pax := rt.File{Header: tar.Header{Typeflag: tar.TypeReg, Name: "m.tar", Mode: 0o644, Format: tar.FormatPAX}, Body: "x"}
	for _, tt := range []struct {
		name string
		data []byte
		word string
	}{
		{"another layer", docker(conf("sha256:"+strings.Repeat("ab", 32)), "c.json", `["l.tar"]`), "its archive has the digest"},
		{"a configuration not of its name", docker(conf(good), strings.Repeat("ab", 32)+".json", `["l.tar"]`), "its name says"},
		{"a layer that is missing", docker(conf(good), "c.json", `["m.tar"]`), "lacks layer 1"},
		{"a layer outside", docker(conf(good), "c.json", `["../../etc/passwd"]`), "lacks layer 1"},
		{"a layer by a link that leads out", docker(conf(good), "c.json", `["m.tar"]`, rt.Link("m.tar", "/etc/passwd")), "lacks layer 1"},
		{"links in a ring", docker(conf(good), "c.json", `["m.tar"]`, rt.Link("m.tar", "n.tar"), rt.Link("n.tar", "m.tar")), "lacks layer 1"},
		{"more layers than digests", docker(conf(good), "c.json", `["l.tar","l.tar"]`), "it has 2 layers"},
		{"a configuration that is missing", docker(conf(good), "c.json", `["l.tar"]`, pax)[:0], ""},
		{"no configuration", rt.Tar(t, rt.Reg("manifest.json", 0o644, `[{"Config":"c.json","Layers":[]}]`)), "lacks its configuration"},
		{"no images", rt.Tar(t, rt.Reg("manifest.json", 0o644, `[]`)), "lists no image"},
		{"many images", rt.Tar(t, rt.Reg("manifest.json", 0o644, `[`+strings.Repeat(`{"Config":"x"},`, 1000)+`{"Config":"x"}]`)), "1001 images"},
		{"a huge list", rt.Tar(t, rt.Reg("manifest.json", 0o644, strings.Repeat(" ", 8<<20))), "has 8.0 MiB"},
	} {
		if tt.word == "" {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			a, err := read(tt.data)
			var img *Image
			if err == nil {
				img, err = a.Pick("", "linux/amd64")
			}
			if err == nil {
				var r io.ReadCloser
				if r, err = img.Layers[0].Tar(1 << 20); err == nil {
					_, err = io.Copy(io.Discard, r)
				}
			}
			var e *api.Error
			if !errors.As(err, &e) || !strings.Contains(e.Message, tt.word) {
				t.Errorf("%v, want %q", err, tt.word)
			}
		})
	}
}

func TestLayerTar(t *testing.T) {
	plain := rt.Tar(t, rt.Reg("a", 0o644, strings.Repeat("a", 100000)))
	var zip []byte
	l := rt.Layer(t, rt.Gzip, plain)
	if r, err := l.Compressed(); err == nil {
		zip, _ = io.ReadAll(r)
	}
	made := func(b []byte, diff string, size int64) Layer {
		return Layer{Digest: digestOf(b), DiffID: diff, Size: size, Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }}
	}
	run := func(l Layer, max int64) error {
		r, err := l.Tar(max)
		if err != nil {
			return err
		}
		defer r.Close()
		_, err = io.Copy(io.Discard, r)
		if _, again := r.Read(make([]byte, 1)); err != nil && again != err {
			t.Errorf("read once more: %v, after %v", again, err)
		}
		return err
	}
	want := digestOf(plain)
	for _, tt := range []struct {
		name string
		l    Layer
		max  int64
		code string
		word string
	}{
		{"good", made(zip, want, int64(len(zip))), 1 << 20, "", ""},
		{"plain", made(plain, want, int64(len(plain))), 1 << 20, "", ""},
		{"exactly the most", made(plain, want, int64(len(plain))), int64(len(plain)), "", ""},
		{"too much", made(zip, want, int64(len(zip))), int64(len(plain)) - 1, api.CodeTemplateTooLarge, "unpacks to more than"},
		{"longer", made(zip, want, int64(len(zip))-1), 1 << 20, api.CodeTemplateInvalid, "bytes long"},
		{"shorter", made(zip, want, int64(len(zip))+1), 1 << 20, api.CodeTemplateInvalid, "bytes long"},
		{"another inside", made(zip, "sha256:"+strings.Repeat("0", 64), int64(len(zip))), 1 << 20, api.CodeTemplateInvalid, "the configuration says"},
		{"another outside", func() Layer { l := made(zip, want, int64(len(zip))); l.Digest = want; return l }(), 1 << 20, api.CodeTemplateInvalid, "its bytes"},
		{"garbage at the end", made(append(bytes.Clone(zip), "junk"...), want, int64(len(zip))+4), 1 << 20, api.CodeTemplateInvalid, "damaged"},
		{"cut off", made(zip[:len(zip)-9], want, int64(len(zip))-9), 1 << 20, api.CodeTemplateInvalid, "damaged"},
		{"a broken start", made([]byte("\x1f\x8bxxxxxxxxxxxxxxxxxxx"), want, 21), 1 << 20, api.CodeTemplateInvalid, "damaged"},
		{"a window of zstd that is too large", made([]byte("\x28\xb5\x2f\xfd\x00\xff\x00\x00\x00"), want, 9), 1 << 20, api.CodeTemplateInvalid, "damaged"},
	} {
		err := run(tt.l, tt.max)
		var e *api.Error
		if tt.code == "" && err != nil || tt.code != "" && (!errors.As(err, &e) || e.Code != tt.code || !strings.Contains(e.Message, tt.word)) {
			t.Errorf("%s: %v, want %s %q", tt.name, err, tt.code, tt.word)
		}
	}
}

// TestDirectories: of a directory only what is in it is read.
func TestDirectories(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := laidOut(t, map[string]v1.Image{"app:1": three2(t)})
	if !IsLayout(dir) || IsLayout(t.TempDir()) || IsLayout(secret) {
		t.Error("IsLayout")
	}
	blobs := filepath.Join(dir, "blobs/sha256")
	entries, err := os.ReadDir(blobs)
	if err != nil {
		t.Fatal(err)
	}
	first := filepath.Join(blobs, entries[0].Name())
	if err := errors.Join(os.Remove(first), os.Symlink(secret, first), os.Symlink(filepath.Dir(secret), filepath.Join(dir, "out"))); err != nil {
		t.Fatal(err)
	}
	if got := tarOf(t, dir); bytes.Contains(got, []byte("secret\x00")) && bytes.Contains(got, []byte("ustar")) && strings.Contains(string(got), "secretsecret") {
		t.Error("what a link of the directory leads to was read")
	}
	tr := tar.NewReader(bytes.NewReader(tarOf(t, dir)))
	for {
		h, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(h.Name, entries[0].Name()) && h.Typeflag != tar.TypeSymlink || strings.HasPrefix(h.Name, "out/") {
			t.Errorf("%s is in the archive as %c", h.Name, h.Typeflag)
		}
	}
	deep := t.TempDir()
	if err := os.MkdirAll(filepath.Join(deep, strings.Repeat("d/", 20)), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := TarDir(deep, io.Discard); err == nil {
		t.Error("a deep directory was taken")
	}
}

// TestExport: what is written is read by others and by us, and twice the same.
func TestExport(t *testing.T) {
	layers := [][]byte{rt.Tar(t, rt.Dir("a", 0o755), rt.Reg("a/one", 0o644, "one")), rt.Tar(t, rt.Gone("a/", "one")), rt.Tar(t, rt.Dir("a", 0o755), rt.Reg("a/one", 0o644, "one"))}
	e := Export{Name: "team/app", Platform: "linux/amd64", Config: api.TemplateConfig{Env: []string{"A=b"}, User: "app", Workdir: "/w", Entrypoint: []string{"/e"}, Cmd: []string{"c"}}}
	for _, l := range layers {
		e.Layers = append(e.Layers, ExportLayer{Tar: func(w io.Writer) error { _, err := w.Write(l); return err }})
	}
	for name, write := range map[string]func(io.Writer, Export) error{"oci": WriteOCI, "docker": WriteDocker} {
		var one, two bytes.Buffer
		if err := errors.Join(write(&one, e), write(&two, e)); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(one.Bytes(), two.Bytes()) {
			t.Errorf("%s: two archives of the same differ", name)
		}
		a, err := read(one.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		img, err := a.Pick("team/app:latest", "linux/amd64")
		if err != nil {
			t.Fatal(err)
		}
		if c := img.Config; fmt.Sprintf("%v", c) != fmt.Sprintf("%v", e.Config) || len(img.Layers) != 3 || names(t, img.Layers[1]) != "a/.wh.one" {
			t.Errorf("%s: %+v", name, img)
		}
		dir := t.TempDir()
		untar(t, one.Bytes(), dir)
		index, err := layout.ImageIndexFromPath(dir)
		if err != nil {
			t.Fatal(err)
		}
		m, err := index.IndexManifest()
		if err != nil {
			t.Fatal(err)
		}
		theirs, err := index.Image(m.Manifests[0].Digest)
		if err != nil {
			t.Fatal(err)
		}
		if err := validate.Image(theirs, validate.Fast); err != nil { // not fast, it takes every layer to be gzipped
			t.Errorf("%s: the library says of the layout: %v", name, err)
		}
		ls, err := theirs.Layers()
		if err != nil {
			t.Fatal(err)
		}
		for i, l := range ls {
			r, err := l.Compressed()
			if err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, layers[i]) {
				t.Errorf("%s: the library reads layer %d otherwise: %v", name, i, err)
			}
		}
	}
	var out bytes.Buffer
	if err := WriteDocker(&out, e); err != nil {
		t.Fatal(err)
	}
	tag, _ := name.NewTag("team/app:latest")
	img, err := tarball.Image(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(out.Bytes())), nil }, &tag)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Image(img); err != nil {
		t.Errorf("the library says of the archive for docker: %v", err)
	}
	n := 0
	e.Layers[1].Tar = func(w io.Writer) error { n++; _, err := fmt.Fprint(w, n); return err }
	if err := WriteOCI(io.Discard, e); err == nil {
		t.Error("a layer that changes was written")
	}
	for in, want := range map[string]string{"app": "app:latest", "app:1": "app:1", "r.test:5000/a/b": "r.test:5000/a/b:latest", "Upper": "", "a b": "", "x@y": ""} {
		if got := tagOf(in); got != want {
			t.Errorf("tagOf(%q) = %q, want %q", in, got, want)
		}
	}
}

func untar(t *testing.T, data []byte, dir string) {
	t.Helper()
	tr := tar.NewReader(bytes.NewReader(data))
	for {
		h, err := tr.Next()
		if err == io.EOF {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, h.Name)
		if h.Typeflag == tar.TypeDir {
			err = os.MkdirAll(path, 0o700)
		} else {
			var b []byte
			if b, err = io.ReadAll(tr); err == nil {
				err = os.WriteFile(path, b, 0o600)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// FuzzArchive: whatever an archive says, reading it ends, stays inside it and
// gives layers whose digests hold.
func FuzzArchive(f *testing.F) {
	img := rt.Image(f, v1.Config{}, rt.Layer(f, rt.Gzip, rt.Tar(f, rt.Reg("a", 0o644, "a"))))
	f.Add(saved(f, map[string]v1.Image{"app:1": img}))
	f.Add(tarOf(f, laidOut(f, map[string]v1.Image{"app:1": img})))
	f.Add(ancient(f))
	f.Add(rt.Tar(f, rt.Reg("etc/passwd", 0o644, "x")))
	f.Add(rt.Tar(f, rt.Reg("manifest.json", 0o644, `[{"Config":"c","Layers":["l"]}]`), rt.Reg("c", 0o644, `{"rootfs":{"diff_ids":["sha256:`+strings.Repeat("ab", 32)+`"]}}`), rt.Hard("l", "c")))
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := read(data)
		if err != nil {
			return
		}
		for _, n := range append(a.Names(), "") {
			img, err := a.Pick(n, "linux/amd64")
			if err != nil {
				continue
			}
			for _, l := range img.Layers {
				if l.Size < 0 || l.Size > int64(len(data)) {
					t.Fatalf("a layer of %d bytes in an archive of %d", l.Size, len(data))
				}
				r, err := l.Tar(1 << 20)
				if err != nil {
					continue
				}
				var got bytes.Buffer
				if _, err := io.Copy(&got, r); err == nil && digestOf(got.Bytes()) != l.DiffID {
					t.Fatalf("a layer with another digest than %s was believed", l.DiffID)
				}
				r.Close()
			}
		}
	})
}
