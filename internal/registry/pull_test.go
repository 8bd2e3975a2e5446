package registry

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/bermhq/berm/api"
	rt "github.com/bermhq/berm/internal/registry/registrytest"
)

// pull is Pull with the defaults of these tests.
func pull(t *testing.T, ref string, change ...func(*Options)) (*Image, string, error) {
	t.Helper()
	opt := Options{Dir: t.TempDir(), Platform: "linux/amd64", Idle: 5 * time.Second}
	for _, f := range change {
		f(&opt)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	img, err := Pull(ctx, ref, opt)
	return img, opt.Dir, err
}

// wantError checks an error's code and words, and that nothing was left.
func wantError(t *testing.T, err error, dir, code string, words ...string) {
	t.Helper()
	var e *api.Error
	if !errors.As(err, &e) || e.Code != code {
		t.Fatalf("error %v, want code %s", err, code)
	}
	for _, w := range words {
		if !strings.Contains(e.Message+"\n"+e.Hint, w) {
			t.Errorf("%q, hint %q; want %q in it", e.Message, e.Hint, w)
		}
	}
	if e.Hint == "" {
		t.Errorf("%q has no hint", e.Message)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func names(t *testing.T, l Layer) string {
	t.Helper()
	r, err := l.Tar(1 << 30)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var all []string
	tr := tar.NewReader(r)
	for {
		h, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, h.Name)
	}
	if _, err := io.Copy(io.Discard, r); err != nil {
		t.Fatal(err)
	}
	return strings.Join(all, " ")
}

var conf = v1.Config{Env: []string{"A=b"}, User: "app:app", WorkingDir: "/srv", Entrypoint: []string{"/entry"}, Cmd: []string{"serve"}}

func three(t *testing.T) v1.Image {
	return rt.Image(t, conf,
		rt.Layer(t, rt.Gzip, rt.Tar(t, rt.Dir("a", 0o755), rt.Reg("a/one", 0o644, strings.Repeat("one", 50000)))),
		rt.Layer(t, rt.Zstd, rt.Tar(t, rt.Reg("a/two", 0o644, "two"))),
		rt.Layer(t, rt.Plain, rt.Tar(t, rt.Reg("a/three", 0o644, "three"), rt.Gone("a/", "one"))),
	)
}

func TestPull(t *testing.T) {
	s := rt.Start(t)
	ref := s.Push(t, "team/app:1", three(t))
	var mu sync.Mutex
	last := map[string]api.TemplateProgress{}
	img, _, err := pull(t, ref, func(o *Options) {
		o.Progress = func(p api.TemplateProgress) { mu.Lock(); last[p.Phase+" "+p.Item] = p; mu.Unlock() }
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := ref + "@" + img.Digest; img.Ref != want || img.Platform != "linux/amd64" {
		t.Errorf("Ref %q, Platform %q; want %q", img.Ref, img.Platform, want)
	}
	c := img.Config
	if fmt.Sprintf("%v %v %v %v %v", c.Env, c.User, c.Workdir, c.Entrypoint, c.Cmd) != "[A=b] app:app /srv [/entry] [serve]" {
		t.Errorf("config %+v", c)
	}
	var all []string
	var total int64
	for _, l := range img.Layers {
		all = append(all, names(t, l))
		total += l.Size
		if p := last["download "+short(l.Digest)]; p.Done != l.Size || p.Total != l.Size {
			t.Errorf("progress of layer %s ended with %+v", short(l.Digest), p)
		}
	}
	if got := strings.Join(all, "; "); got != "a/ a/one; a/two; a/three a/.wh.one" {
		t.Errorf("layers hold %s", got)
	}
	if p := last["download "]; p.Done != total || p.Total != total {
		t.Errorf("progress ended with %+v, want %d", p, total)
	}
	if r, err := img.Layers[0].Open(); err != nil {
		t.Error(err)
	} else if _, ok := r.(*os.File); !ok {
		t.Errorf("Open gives a %T", r)
	}
	again, _, err := pull(t, img.Ref)
	if err != nil || again.Digest != img.Digest || again.Ref != strings.Replace(ref, ":1", "", 1)+"@"+img.Digest {
		t.Errorf("pulling %s again: %+v, %v", img.Ref, again, err)
	}
}

// TestHave: layers that are here already are not fetched.
func TestHave(t *testing.T) {
	s := rt.Start(t)
	ref := s.Push(t, "app:1", three(t))
	s.Hook(nil)
	img, _, err := pull(t, ref, func(o *Options) { o.Have = func(*Image) int { return 2 } })
	if err != nil || img.Layers[1].Open != nil || img.Layers[2].Open == nil {
		t.Fatalf("%+v, %v", img, err)
	}
	blobs := 0
	for _, r := range s.Seen() {
		blobs += strings.Count(r.Path, "/blobs/")
	}
	if blobs != 2 { // the configuration, and a layer
		t.Errorf("%d blobs were asked for", blobs)
	}
	if _, _, err := pull(t, ref, func(o *Options) { o.Have = func(i *Image) int { return 99 } }); err != nil {
		t.Error(err)
	}
}

func TestPlatforms(t *testing.T) {
	s := rt.Start(t)
	made := func(arch, variant string) v1.Image {
		return rt.ImageFor(t, v1.Platform{OS: "linux", Architecture: arch, Variant: variant}, v1.Config{Env: []string{"ARCH=" + arch + variant}},
			rt.Layer(t, rt.Gzip, rt.Tar(t, rt.Reg(arch+variant, 0o644, "x"))))
	}
	ref := s.PushIndex(t, "multi:1", rt.Index(t, made("amd64", "v3"), made("arm64", "v8"), made("amd64", "")))
	for want, env := range map[string]string{"linux/amd64": "amd64", "linux/arm64": "arm64v8", "linux/amd64/v3": "amd64v3", "linux/arm64/v8": "arm64v8"} {
		img, _, err := pull(t, ref, func(o *Options) { o.Platform = want })
		if err != nil || img.Config.Env[0] != "ARCH="+env {
			t.Errorf("%s: %+v, %v", want, img, err)
		}
	}
	_, dir, err := pull(t, ref, func(o *Options) { o.Platform = "linux/s390x" })
	wantError(t, err, dir, api.CodeTemplateInvalid, "nothing for linux/s390x", "linux/amd64, linux/amd64/v3, linux/arm64/v8", "--platform")
	single := s.Push(t, "arm:1", made("arm64", ""))
	_, dir, err = pull(t, single)
	wantError(t, err, dir, api.CodeTemplateInvalid, "nothing for linux/amd64", "there is linux/arm64")
	_, dir, err = pull(t, ref, func(o *Options) { o.Platform = "windows/amd64" })
	wantError(t, err, dir, api.CodeBadRequest, "linux/ARCH")
}

func flip(b []byte) []byte {
	b = append([]byte(nil), b...)
	b[len(b)/2] ^= 1
	return b
}

// TestTampered: what is not what its digest says is refused, and nothing stays.
func TestTampered(t *testing.T) {
	s := rt.Start(t)
	img := three(t)
	ref := s.Push(t, "app:1", img)
	digest, _ := img.Digest()
	confName, _ := img.ConfigName()
	layers, _ := img.Layers()
	first, _ := layers[0].Digest()
	index := rt.Index(t, img)
	multi := s.PushIndex(t, "multi:1", index)
	pinned := s.Host + "/app@" + digest.String()
	for _, tt := range []struct {
		name, ref, path string
		chunks          bool
		change          func([]byte) []byte
		word            string
	}{
		{"a layer's byte", ref, first.String(), false, flip, "its bytes have the digest"},
		{"a layer's length, announced", ref, first.String(), false, func(b []byte) []byte { return b[:len(b)-1] }, "bytes are coming"},
		{"a layer cut off", ref, first.String(), true, func(b []byte) []byte { return b[:len(b)-1] }, "it ends after"},
		{"a layer with more at its end", ref, first.String(), true, func(b []byte) []byte { return append(b, 0) }, "longer than"},
		{"an endless layer", ref, first.String(), true, func(b []byte) []byte { return append(b, make([]byte, 64<<20)...) }, "longer than"},
		{"an empty layer", ref, first.String(), true, func(b []byte) []byte { return nil }, "it ends after 0"},
		{"the configuration", ref, confName.String(), false, flip, "the configuration"},
		{"the manifest under a digest", pinned, digest.String(), false, func(b []byte) []byte { return append(b, '\n') }, "the manifest that came"},
		{"the manifest under an index", multi, digest.String(), false, func(b []byte) []byte { return append(b, ' ') }, "the manifest " + short(digest.String())},
		{"another image under a digest", pinned, digest.String(), false, func([]byte) []byte {
			raw, _ := rt.Image(t, v1.Config{}, layers...).RawManifest()
			return raw
		}, "the manifest that came"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s.Tampered(tt.path, tt.chunks, tt.change)
			_, dir, err := pull(t, tt.ref)
			wantError(t, err, dir, api.CodeTemplateInvalid, "refused", tt.word)
		})
	}
	s.Hook(nil)
	if _, _, err := pull(t, pinned); err != nil {
		t.Errorf("untampered: %v", err)
	}
}

// serveManifest has a tag answered with a manifest that no tool would push.
func serveManifest(s *rt.Server, kind types.MediaType, body []byte) {
	s.Hook(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/manifests/bad") {
			return false
		}
		w.Header().Set("Content-Type", string(kind))
		w.Write(body)
		return true
	})
}

// TestManifests: what cannot be used is said to be of no use, and why.
func TestManifests(t *testing.T) {
	s := rt.Start(t)
	img := three(t)
	s.Push(t, "app:1", img)
	edit := func(f func(*v1.Manifest)) []byte {
		m, err := img.Manifest()
		if err != nil {
			t.Fatal(err)
		}
		m = m.DeepCopy()
		f(m)
		raw, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	const oci = types.OCIManifestSchema1
	layers, _ := img.Layers()
	m0, _ := layers[0].Digest()
	for _, tt := range []struct {
		name, code, word string
		kind             types.MediaType
		body             []byte
	}{
		{"foreign layer", api.CodeTemplateInvalid, "foreign", oci, edit(func(m *v1.Manifest) { m.Layers[1].MediaType = types.DockerForeignLayer })},
		{"layer of elsewhere", api.CodeTemplateInvalid, "elsewhere", oci, edit(func(m *v1.Manifest) { m.Layers[1].URLs = []string{"https://elsewhere.test/x"} })},
		{"unknown layer", api.CodeTemplateInvalid, "unknown kind", oci, edit(func(m *v1.Manifest) { m.Layers[1].MediaType = "application/x-thing" })},
		{"layer of sha512", api.CodeTemplateInvalid, "sha512", oci, edit(func(m *v1.Manifest) {
			m.Layers[1].Digest = v1.Hash{Algorithm: "sha512", Hex: strings.Repeat("ab", 64)}
		})},
		{"no digest", api.CodeTemplateInvalid, "named by", oci, []byte(strings.Replace(string(edit(func(m *v1.Manifest) {})), `"digest":"`+m0.String()+`"`, `"was":""`, 1))},
		{"negative size", api.CodeTemplateInvalid, "negative", oci, edit(func(m *v1.Manifest) { m.Layers[1].Size = -1 })},
		{"one layer less", api.CodeTemplateInvalid, "its manifest has 2 layers", oci, edit(func(m *v1.Manifest) { m.Layers = m.Layers[:2] })},
		{"layer too large", api.CodeTemplateTooLarge, "limit", oci, edit(func(m *v1.Manifest) { m.Layers[1].Size = 1 << 62 })},
		{"layers too large together", api.CodeTemplateTooLarge, "limit", oci, edit(func(m *v1.Manifest) { m.Layers[0].Size, m.Layers[1].Size = 1<<63-1, 1<<63-1 })},
		{"one layer, two sizes", api.CodeTemplateInvalid, "two sizes", oci, edit(func(m *v1.Manifest) { m.Layers[1].Digest = m.Layers[0].Digest })},
		{"configuration too large", api.CodeTemplateTooLarge, "configuration", oci, edit(func(m *v1.Manifest) { m.Config.Size = 1 << 40 })},
		{"configuration of another size", api.CodeTemplateInvalid, "bytes, not", oci, edit(func(m *v1.Manifest) { m.Config.Size-- })},
		{"an artifact", api.CodeTemplateInvalid, "no container image", oci, edit(func(m *v1.Manifest) { m.Config.MediaType = types.OCIEmptyJSON })},
		{"too many layers", api.CodeTemplateInvalid, "layers; the most", oci, edit(func(m *v1.Manifest) { m.Layers = slices.Repeat(m.Layers, 300) })},
		{"no JSON", api.CodeTemplateInvalid, "no manifest", oci, []byte("<html>")},
		{"something else", api.CodeTemplateInvalid, "neither", oci, []byte(`{"schemaVersion":2}`)},
		{"both at once", api.CodeTemplateInvalid, "at once", oci, []byte(`{"schemaVersion":2,"manifests":[],"layers":[]}`)},
		{"called otherwise", api.CodeTemplateInvalid, "calls itself", types.OCIImageIndex, edit(func(m *v1.Manifest) { m.MediaType = "" })},
		{"schema 1", api.CodeTemplateInvalid, "schema 1", types.DockerManifestSchema1Signed, []byte(`{"schemaVersion":1,"fsLayers":[]}`)},
		{"an empty index", api.CodeTemplateInvalid, "nothing for", types.OCIImageIndex, []byte(`{"schemaVersion":2,"manifests":[]}`)},
		{"an endless manifest", api.CodeTemplateTooLarge, "more than", oci, []byte(strings.Repeat(" ", 8<<20))},
		{"a deep one", api.CodeTemplateInvalid, "no manifest", oci, []byte(strings.Repeat("[", 1<<20))},
	} {
		t.Run(tt.name, func(t *testing.T) {
			serveManifest(s, tt.kind, tt.body)
			_, dir, err := pull(t, s.Host+"/app:bad")
			wantError(t, err, dir, tt.code, tt.word)
		})
	}
	t.Run("an index in itself", func(t *testing.T) {
		raw := []byte(`{"schemaVersion":2,"manifests":[{"mediaType":"` + string(types.OCIImageIndex) + `","size":5,"digest":"sha256:` + strings.Repeat("ab", 32) + `"}]}`)
		s.Hook(func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.Contains(r.URL.Path, "/manifests/") {
				return false
			}
			w.Write(raw)
			return true
		})
		_, dir, err := pull(t, s.Host+"/app:bad")
		wantError(t, err, dir, api.CodeTemplateInvalid, "refused")
	})
}
