package template

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/registry/registrytest"
)

// oddImage has everything that images have and trees must come out right of.
func oddImage(t testing.TB) v1.Image {
	r := registrytest.Reg
	d := registrytest.Dir
	old := r("old", 0o644, "old")
	old.ModTime = time.Date(1955, 11, 5, 6, 15, 0, 0, time.UTC)
	far := r("far", 0o644, "far")
	far.ModTime = time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
	attr := r("attr", 0o644, "with attributes")
	attr.PAXRecords = map[string]string{"SCHILY.xattr.user.x": "y"}
	low := registrytest.Tar(t,
		d("etc", 0o755), r("etc/passwd", 0o644, "root:x:0:0::/root:/bin/sh\nweb:x:33:33::/srv:/bin/sh\n"), r("etc/gone", 0o644, "gone"),
		d("bin", 0o755), r("bin/sh", 0o755, "shell"), r("bin/su", 0o4755, "setuid"), r("bin/wall", 0o2755, "setgid"),
		d("opaque", 0o755), r("opaque/a", 0o644, "a"), d("opaque/d", 0o755), r("opaque/d/b", 0o644, "b"),
		d("sticky", 0o1777), registrytest.Owned(r("sticky/mine", 0o600, "mine"), 1234, 567),
		r("first", 0o644, "one inode"), registrytest.Hard("second", "first"),
		d("real", 0o755), registrytest.Link("alias", "real"), registrytest.Link("abs", "/real/x"), registrytest.Link("dangling", "not/here"),
		old, far, attr,
		r("-rf", 0o644, "dash"), r("new\nline", 0o644, "nl"), r("back\\slash", 0o644, "bs"), r("raw\xff\xfe", 0o644, "not utf-8"),
		r(strings.Repeat("n", 255), 0o644, "long"), r("deep/"+strings.Repeat("d/", 100)+"end", 0o644, "deep"),
		r("file-then-dir", 0o644, "f"), r("dir-then-file/x", 0o644, "x"), d("gone-dir", 0o755), r("gone-dir/x", 0o644, "x"),
	)
	mid := registrytest.Tar(t,
		registrytest.Gone("etc/", "gone"), registrytest.Gone("", "gone-dir"), registrytest.Opaque("opaque"), r("opaque/c", 0o640, "c"),
		d("file-then-dir", 0o711), r("file-then-dir/y", 0o644, "y"), r("dir-then-file", 0o644, "now a file"),
		registrytest.Hard("third", "first"), r("bin/sh", 0o555, "another shell"),
	)
	top := registrytest.Tar(t, d("gone-dir", 0o700), r("gone-dir/z", 0o644, "z"), r("real/new", 0o644, strings.Repeat("new", 10000)), r("srv/x", 0o644, "x"))
	return registrytest.Image(t, v1.Config{Env: []string{"PATH=/bin", "A=b c"}, User: "web", WorkingDir: "/srv", Entrypoint: []string{"/bin/sh", "-c"}, Cmd: []string{"x"}},
		registrytest.Layer(t, registrytest.Gzip, low), registrytest.Layer(t, registrytest.Zstd, mid), registrytest.Layer(t, registrytest.Plain, top))
}

// listing is what a tar shows, a line for each path; hard links have the content
// and the owner of what they are.
func listing(t testing.TB, r io.Reader) map[string]string {
	t.Helper()
	type entry struct {
		h    tar.Header
		body string
	}
	all := map[string]entry{}
	tr := tar.NewReader(r)
	for {
		h, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		all[path.Clean("/"+h.Name)] = entry{*h, string(b)}
	}
	out := map[string]string{}
	for p, e := range all {
		for e.h.Typeflag == tar.TypeLink {
			e = all[path.Clean("/"+e.h.Linkname)]
		}
		mode, at := e.h.Mode, e.h.ModTime.Unix()
		if e.h.Typeflag == tar.TypeSymlink {
			mode = 0o777
		}
		out[p] = fmt.Sprintf("%c %o %d:%d %d %q %q", e.h.Typeflag, mode, e.h.Uid, e.h.Gid, at, e.h.Linkname, e.body)
	}
	return out
}

// guests are the places that every root has, whatever its image says.
var guests = []string{"/", "/proc", "/sys", "/dev", "/run", "/tmp", "/tmp/.berm", "/var", "/var/tmp", "/home", "/home/agent", "/workspace", "/.berm",
	"/etc/passwd", "/etc/group", "/etc/hosts", "/etc/hostname", "/etc/nsswitch.conf", "/etc/resolv.conf"}

// TestPullEqualsReference: what is inside after a pull is what the library's own
// tool unpacks, but for the guest's places and directories no layer names.
func TestPullEqualsReference(t *testing.T) {
	img := oddImage(t)
	r := mutate.Extract(img)
	defer r.Close()
	want := listing(t, r)
	reg := registrytest.Start(t)
	ref := reg.Push(t, "odd/image:1", img)
	services(t, func(t *testing.T, w world) {
		var items []string
		made, err := w.Do(t.Context(), Job{Kind: JobPull, Name: "odd", Ref: ref, PlainHTTP: true}, nil, func(p api.TemplateProgress) { items = append(items, p.Phase+" "+p.Item) })
		if err != nil {
			t.Fatal(err)
		}
		d := made.Root.Defaults
		if len(made.Root.Layers) != 4 || d.UID != 33 || d.GID != 33 || d.Home != "/srv" || d.Workdir != "/srv" || !slices.Equal(d.Env, []string{"PATH=/bin", "A=b c"}) {
			t.Errorf("%+v", made.Root)
		}
		if made.Template.Digest == "" || !strings.Contains(made.Template.Source, "@sha256:") || made.Template.Platform != "linux/amd64" ||
			!slices.Equal(made.Template.Notes, []string{"1 files lost their extended attributes"}) {
			t.Errorf("%+v", made.Template)
		}
		if !slices.ContainsFunc(items, func(s string) bool { return strings.HasSuffix(s, "layer 2 of 3") }) {
			t.Errorf("progress: %q", items)
		}
		compare := func(what string, got map[string]string) {
			for p, line := range want {
				if !slices.Contains(guests, p) && got[p] != line {
					t.Errorf("%s: %q is\n%s, want\n%s", what, p, got[p], line)
				}
			}
			for p, line := range got {
				if _, ok := want[p]; !ok && !slices.Contains(guests, p) && !strings.HasPrefix(line, "5 755 0:0") {
					t.Errorf("%s: %q is there: %s", what, p, line)
				}
			}
		}
		var out bytes.Buffer
		if err := w.Export(t.Context(), "odd", "tar", &out); err != nil {
			t.Fatal(err)
		}
		compare("tar", listing(t, &out))

		// Out as an image and in again is the same.
		for _, format := range []string{"oci", "docker"} {
			var out bytes.Buffer
			if err := w.Export(t.Context(), "odd", format, &out); err != nil {
				t.Fatal(err)
			}
			name, in := format+"-again", io.Reader(&out)
			if format == "docker" {
				var z bytes.Buffer
				g := gzip.NewWriter(&z)
				g.Write(out.Bytes())
				g.Close()
				in = &z
			}
			again, err := w.Do(t.Context(), Job{Kind: JobImport, Name: name}, in, nil)
			if err != nil {
				t.Fatal(err)
			}
			if d := again.Root.Defaults; d.UID != 33 || d.Workdir != "/srv" || again.Template.Digest == "" {
				t.Errorf("%s: %+v", name, again)
			}
			if !slices.Equal(again.Root.Layers[:3], made.Root.Layers[:3]) {
				t.Errorf("%s shares no layers: %q, %q", name, again.Root.Layers, made.Root.Layers)
			}
			out.Reset()
			if err := w.Export(t.Context(), name, "tar", &out); err != nil {
				t.Fatal(err)
			}
			compare(name, listing(t, &out))
		}

		// The same again makes nothing, and another image on the same layers little.
		n := w.images(t)
		if _, err := w.Do(t.Context(), Job{Kind: JobPull, Name: "twin", Ref: ref, PlainHTTP: true}, nil, nil); err != nil || w.images(t) != n {
			t.Errorf("a second pull: %v, %d images after %d", err, w.images(t), n)
		}
		if err := w.Export(t.Context(), "odd", "zip", io.Discard); code(err) != api.CodeBadRequest {
			t.Errorf("zip: %v", err)
		}
		if err := w.Export(t.Context(), "odd", "oci", &short{left: 5000}); err == nil {
			t.Error("an export that nobody could take")
		}
		if left, _ := os.ReadDir(filepath.Join(w.dir, dirWork)); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
}

// short takes so many bytes.
type short struct{ left int }

func (s *short) Write(b []byte) (int, error) {
	if s.left -= len(b); s.left < 0 {
		return 0, io.ErrShortWrite
	}
	return len(b), nil
}

// TestPullRefuses: what is not what it says leaves nothing.
func TestPullRefuses(t *testing.T) {
	reg := registrytest.Start(t)
	good := oddImage(t)
	ref := reg.Push(t, "good:1", good)
	layers, _ := good.Layers()
	digest, _ := layers[0].Digest()
	bomb := reg.Push(t, "bomb:1", registrytest.Image(t, v1.Config{}, registrytest.Layer(t, registrytest.Gzip, registrytest.Tar(t, registrytest.Reg("z", 0o644, string(make([]byte, 64<<20)))))))
	many := make([]registrytest.File, 0, 20000)
	for i := range cap(many) {
		many = append(many, registrytest.Reg(fmt.Sprintf("f%d", i), 0o644, "x"))
	}
	entries := reg.Push(t, "many:1", registrytest.Image(t, v1.Config{}, registrytest.Layer(t, registrytest.Zstd, registrytest.Tar(t, many...))))
	escape := reg.Push(t, "escape:1", registrytest.Image(t, v1.Config{}, registrytest.Layer(t, registrytest.Gzip, registrytest.Tar(t, registrytest.Reg("../../etc/x", 0o644, "x")))))
	nobody := reg.Push(t, "nobody:1", registrytest.Image(t, v1.Config{User: "nobody-here"}, registrytest.Layer(t, registrytest.Gzip, registrytest.Tar(t, registrytest.Reg("x", 0o644, "x")))))
	services(t, func(t *testing.T, w world) {
		do := func(job Job) error {
			job.Kind, job.Name, job.PlainHTTP = JobPull, "x", true
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, err := w.Do(ctx, job, nil, nil)
			return err
		}
		for name, tt := range map[string]struct {
			job  Job
			code string
		}{
			"bomb":     {Job{Ref: bomb, MaxBytes: 16 << 20}, api.CodeTemplateTooLarge},
			"entries":  {Job{Ref: entries, MaxBytes: 16 << 20}, api.CodeTemplateTooLarge},
			"escape":   {Job{Ref: escape}, api.CodeTemplateInvalid},
			"user":     {Job{Ref: nobody}, api.CodeTemplateInvalid},
			"platform": {Job{Ref: ref, Platform: "linux/arm64"}, api.CodeTemplateInvalid},
			"none":     {Job{Ref: reg.Host + "/none:1"}, api.CodeTemplateNotFound},
			"no ref":   {Job{}, api.CodeBadRequest},
		} {
			if err := do(tt.job); code(err) != tt.code {
				t.Errorf("%s: %v, want %s", name, err, tt.code)
			}
		}
		reg.Tampered(digest.Hex, false, func(b []byte) []byte { b[len(b)/2] ^= 1; return b })
		if err := do(Job{Ref: ref}); code(err) != api.CodeTemplateInvalid {
			t.Errorf("a tampered layer: %v", err)
		}
		reg.Hook(nil)
		if err := w.store.Collect(t.Context()); err != nil {
			t.Error(err)
		}
		if n := w.images(t); n != 0 {
			t.Errorf("%d images are left", n)
		}
		if left, _ := os.ReadDir(filepath.Join(w.dir, dirWork)); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
}
