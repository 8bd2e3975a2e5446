package template

import (
	"archive/tar"
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/image"
	"github.com/bermhq/berm/internal/jail"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 3 && os.Args[1] == "fake-maker" {
		fakeMaker(os.Args[2], os.Args[3:])
		os.Exit(0)
	}
	if len(os.Args) > 1 && os.Args[1] == "maker" {
		if err := RunMaker(os.Args[2:]); err != nil {
			os.Stderr.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) > 2 && os.Args[1] == "crash" {
		crashing(os.Args[2])
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// realMaker is this program, or nothing where it is no static one: a filter
// reaches all threads only of a program without cgo.
func realMaker() string {
	self, err := elf.Open("/proc/self/exe")
	if err != nil {
		return ""
	}
	defer self.Close()
	if libs, err := self.ImportedLibraries(); err != nil || len(libs) > 0 {
		return ""
	}
	return "/proc/self/exe"
}

// file is one entry of a test's archive: a name with / at its end is a directory.
type file struct {
	name, content string
	uid           int
}

func archive(t testing.TB, fs ...file) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range fs {
		h := &tar.Header{Name: f.name, Mode: 0o755, Size: int64(len(f.content)), Typeflag: tar.TypeReg, Uid: f.uid, Gid: f.uid}
		if strings.HasSuffix(f.name, "/") {
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		io.WriteString(w, f.content)
	}
	w.Close()
	return b.Bytes()
}

// A world is a store and what is asked of it: the store itself or a client.
type world struct {
	Service
	store *Store
	dir   string
}

func newWorld(t testing.TB, remote bool, o Options) world {
	t.Helper()
	dir := t.TempDir()
	s := New(image.Open(dir), o)
	w := world{s, s, dir}
	if !remote {
		return w
	}
	a, b, err := jail.Pair(unix.SOCK_SEQPACKET)
	if err != nil {
		t.Fatal(err)
	}
	ours, _ := jail.Conn(a)
	theirs, _ := jail.Conn(b)
	done := make(chan error, 1)
	go func() { done <- Serve(context.Background(), theirs, s) }()
	c := NewClient(ours)
	t.Cleanup(func() {
		c.Close()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	w.Service = c
	return w
}

// services runs a test on a store, and on a client of one.
func services(t *testing.T, test func(t *testing.T, w world)) {
	for name, remote := range map[string]bool{"store": false, "client": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, remote, Options{Maker: realMaker()})
			test(t, w)
			w.clean(t)
		})
	}
}

// clean holds the store to its promise: nothing is left but what somebody keeps.
func (w world) clean(t *testing.T) {
	t.Helper()
	for _, dir := range []string{"tmp", "locks", dirPins} {
		if left, _ := os.ReadDir(filepath.Join(w.dir, dir)); len(left) > 0 {
			t.Errorf("left in %s: %v", dir, left)
		}
	}
}

func (w world) images(t *testing.T) int {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(w.dir, "*.erofs"))
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

func code(err error) string {
	var e *api.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

func TestService(t *testing.T) {
	services(t, func(t *testing.T, w world) {
		ctx := t.Context()
		if _, err := w.Resolve(ctx, "none"); code(err) != api.CodeTemplateNotFound {
			t.Errorf("resolve none: %v", err)
		}
		if list, err := w.List(ctx); err != nil || len(list) != 0 {
			t.Errorf("list: %v, %v", list, err)
		}
		root := archive(t, file{name: "bin/sh", content: "sh"}, file{name: "etc/passwd", content: "root:x:0:0::/root:/x\nnode:x:1001:1001::/home/node:/x\n"})
		phases := map[string]bool{}
		base, err := w.Do(ctx, Job{Kind: JobImport, Name: "base", Config: api.TemplateConfig{Env: []string{"A=1", "B=2"}, Cmd: []string{"sh"}}},
			bytes.NewReader(root), func(p api.TemplateProgress) { phases[p.Phase] = true })
		if err != nil {
			t.Fatal(err)
		}
		if len(base.Root.Layers) != 1 || base.Root.Defaults.UID != 1000 || base.Template.Name != "base" || base.Template.SizeBytes == 0 || base.Template.Source != "archive" {
			t.Errorf("base: %+v", base)
		}
		if !phases[image.PhaseCopy] {
			t.Errorf("phases %v", phases)
		}
		if _, err := w.Do(ctx, Job{Kind: JobImport, Name: "base"}, bytes.NewReader(root), nil); code(err) != api.CodeTemplateExists {
			t.Errorf("a second base: %v", err)
		}
		if again, err := w.Do(ctx, Job{Kind: JobImport, Name: "base", Replace: true, Config: base.Template.Config}, bytes.NewReader(root), nil); err != nil || !slices.Equal(again.Root.Layers, base.Root.Layers) {
			t.Errorf("the same again: %+v, %v", again, err)
		}

		layer := archive(t, file{name: "opt/x", content: "x"}, file{name: "bin/.wh.sh"})
		job := Job{Kind: JobLayer, Below: &base.Root, Key: "step 1", Config: api.TemplateConfig{Env: []string{"B=3"}, User: "node", Workdir: "/opt"}}
		step, err := w.Do(ctx, job, bytes.NewReader(layer), nil)
		if err != nil {
			t.Fatal(err)
		}
		d := step.Root.Defaults
		if len(step.Root.Layers) != 2 || d.UID != 1001 || d.Home != "/home/node" || d.Root || d.Workdir != "/opt" || !slices.Equal(d.Env, []string{"A=1", "B=3"}) || !slices.Equal(d.Cmd, []string{"sh"}) {
			t.Errorf("step: %+v", step.Root)
		}
		if r, ok := w.Cached(ctx, "step 1"); !ok || !slices.Equal(r.Layers, step.Root.Layers) {
			t.Errorf("cached: %+v, %v", r, ok)
		}
		if _, ok := w.Cached(ctx, "step 2"); ok {
			t.Error("a step that nobody made is there")
		}
		if again, err := w.Do(ctx, job, strings.NewReader("not read"), nil); err != nil || !slices.Equal(again.Root.Layers, step.Root.Layers) {
			t.Errorf("the same step: %+v, %v", again, err)
		}

		tagged, err := w.Do(ctx, Job{Kind: JobTag, Name: "docker.io/library/app:latest", Below: &step.Root, Config: api.TemplateConfig{User: "root", Entrypoint: []string{"/opt/x"}}}, nil, nil)
		if err != nil || !tagged.Root.Defaults.Root || tagged.Root.Defaults.UID != 0 || tagged.Root.Defaults.Home != "/root" {
			t.Errorf("tag: %+v, %v", tagged, err)
		}
		for _, name := range []string{"app", "app:latest", "library/app", "docker.io/library/app:latest"} {
			if r, err := w.Resolve(ctx, name); err != nil || !r.Defaults.Root || !slices.Equal(r.Defaults.Entrypoint, []string{"/opt/x"}) {
				t.Errorf("%s: %+v, %v", name, r, err)
			}
		}
		if g, err := w.Get(ctx, "app"); err != nil || g.Resolved != "docker.io/library/app:latest" || len(g.Layers) != 2 {
			t.Errorf("get: %+v, %v", g, err)
		}
		if list, err := w.List(ctx); err != nil || len(list) != 2 || list[0].Name != "base" {
			t.Errorf("list: %+v, %v", list, err)
		}
		if _, err := w.Do(ctx, Job{Kind: JobTag, Name: "nobody", Below: &base.Root, Config: api.TemplateConfig{User: "nobody-here"}}, nil, nil); code(err) != api.CodeTemplateInvalid {
			t.Errorf("an unknown user: %v", err)
		}

		// What one template needs stays when another goes.
		if err := w.Remove(ctx, "base"); err != nil {
			t.Error(err)
		}
		if n := w.images(t); n != 2 {
			t.Errorf("%d images while app needs 2", n)
		}
		if err := w.Remove(ctx, "app"); err != nil {
			t.Error(err)
		}
		if err := w.store.collect(ctx, 0, keepBytes); err != nil {
			t.Error(err)
		}
		if n := w.images(t); n != 0 {
			t.Errorf("%d images that nobody needs", n)
		}
		if err := w.Remove(ctx, "app"); code(err) != api.CodeTemplateNotFound {
			t.Errorf("removed twice: %v", err)
		}
	})
}

func TestServiceRefuses(t *testing.T) {
	services(t, func(t *testing.T, w world) {
		good := archive(t, file{name: "f", content: strings.Repeat("x", 1<<20)})
		for name, tt := range map[string]struct {
			job  Job
			in   []byte
			code string
		}{
			"name":      {Job{Kind: JobImport, Name: "-x"}, good, api.CodeTemplateInvalid},
			"host":      {Job{Kind: JobImport, Name: "host"}, good, api.CodeTemplateInvalid},
			"no tar":    {Job{Kind: JobImport, Name: "x"}, []byte("text"), api.CodeTemplateInvalid},
			"cut":       {Job{Kind: JobImport, Name: "x"}, good[:5000], api.CodeTemplateInvalid},
			"too large": {Job{Kind: JobImport, Name: "x", MaxBytes: 100 << 10}, good, api.CodeTemplateTooLarge},
			"below":     {Job{Kind: JobLayer, Below: &image.Root{Layers: []string{"aaaaaaaaaaaaaaaaaaaa"}}}, good, api.CodeTemplateNotFound},
			"kind":      {Job{Kind: "other"}, good, api.CodeBadRequest},
			"env":       {Job{Kind: JobImport, Config: api.TemplateConfig{Env: []string{"x"}}}, good, api.CodeBadRequest},
		} {
			if _, err := w.Do(t.Context(), tt.job, bytes.NewReader(tt.in), nil); code(err) != tt.code {
				t.Errorf("%s: %v, want %s", name, err, tt.code)
			}
		}
		if n := w.images(t); n != 0 {
			t.Errorf("%d images are left", n)
		}
	})
}

// endless is an archive that never ends; half has an error at its end.
type endless struct{}

func (endless) Read(b []byte) (int, error) {
	time.Sleep(time.Millisecond)
	return len(b), nil
}

func TestServiceGivesUp(t *testing.T) {
	services(t, func(t *testing.T, w world) {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		_, err := w.Do(ctx, Job{Kind: JobImport, Name: "x"}, endless{}, nil)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("cancelled: %v", err)
		}
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) { // the other side hears of it
			left, _ := os.ReadDir(filepath.Join(w.dir, dirPins))
			if len(left) == 0 || time.Now().After(end) {
				break
			}
		}
		good := archive(t, file{name: "f", content: "x"})
		_, err = w.Do(t.Context(), Job{Kind: JobImport, Name: "x"}, io.MultiReader(bytes.NewReader(good[:700]), errReader{}), nil)
		if code(err) != api.CodeTemplateInvalid {
			t.Errorf("an archive that breaks off: %v", err)
		}
		if n := w.images(t); n != 0 {
			t.Errorf("%d images are left", n)
		}
	})
}

type errReader struct{}

func (errReader) Read([]byte) (int, error) { return 0, errors.New("cable pulled") }

// TestSquash: a root has no more layers than a sandbox takes, and shows the same.
func TestSquash(t *testing.T) {
	w := newWorld(t, false, Options{MostLayers: 6})
	made, err := w.Do(t.Context(), Job{Kind: JobImport}, bytes.NewReader(archive(t, file{name: "base", content: "b"})), nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 12 {
		made, err = w.Do(t.Context(), Job{Kind: JobLayer, Below: &made.Root}, bytes.NewReader(archive(t, file{name: "l" + string(rune('a'+i)), content: "x"}, file{name: ".wh.l" + string(rune('a'+i-2))})), nil)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(made.Root.Layers); n > 6 {
			t.Fatalf("%d layers", n)
		}
	}
	w.clean(t)
}

// TestCollect: what is used of late stays, what is too much goes, the oldest
// first; what a Job works with stays in any case.
func TestCollect(t *testing.T) {
	w := newWorld(t, false, Options{})
	for i, key := range []string{"old", "mid", "new"} {
		made, err := w.Do(t.Context(), Job{Kind: JobImport, Key: key}, bytes.NewReader(archive(t, file{name: key, content: strings.Repeat(key, 1000)})), nil)
		if err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(time.Duration(i-10) * time.Hour)
		os.Chtimes(w.store.path(dirKeys, key), at, at)
		if key == "mid" {
			p, err := w.store.pin()
			if err != nil {
				t.Fatal(err)
			}
			defer p.release()
			if err := p.add(made.Root.Layers...); err != nil {
				t.Fatal(err)
			}
		}
	}
	stale := filepath.Join(w.dir, dirPins, "pin-of-the-dead")
	os.WriteFile(stale, []byte("[]"), 0o600)
	size := int64(0)
	w.store.Collect(t.Context())
	if n := w.images(t); n != 3 {
		t.Fatalf("%d images", n)
	}
	for name := range map[string]bool{"new": true} {
		r, _ := w.store.keyed(name)
		size, _ = w.store.images.Size(r.Root.Layers[0])
	}
	at := time.Now()
	os.Chtimes(w.store.path(dirKeys, "new"), at, at)
	if err := w.store.collect(t.Context(), keepKeys, size); err != nil {
		t.Fatal(err)
	}
	if n := w.images(t); n != 2 {
		t.Errorf("%d images, want the newest and the pinned", n)
	}
	if _, ok := w.Cached(t.Context(), "old"); ok {
		t.Error("the oldest is still known")
	}
	if _, err := os.Stat(stale); err == nil {
		t.Error("the pin of a dead process is still there")
	}
}

func TestSpellings(t *testing.T) {
	for name, want := range map[string]string{
		"python": "docker.io/library/python:latest", "python:3.12": "docker.io/library/python:3.12", "docker.io/library/python:3.12": "python:3.12",
		"a/b": "docker.io/a/b:latest", "docker.io/a/b": "a/b:latest", "reg.test:5000/x": "reg.test:5000/x:latest",
	} {
		if got := spellings(name); got[0] != name || !slices.Contains(got, want) {
			t.Errorf("%s: %q lacks %q", name, got, want)
		}
	}
	// No tenant's workspace has a second name, and nothing stands for the host.
	for _, name := range []string{"library/workspace/a/w1", "docker.io/workspace/a/w1", "docker.io/library/workspace/a/w1", "workspace/a/w1"} {
		if got := spellings(name); slices.Contains(got[1:], "workspace/a/w1") || slices.ContainsFunc(got[1:], func(n string) bool { return strings.HasPrefix(n, api.TreePrefix) }) {
			t.Errorf("%s: %q leads to a workspace", name, got)
		}
	}
	if got := spellings("host"); len(got) != 1 {
		t.Errorf("host: %q", got)
	}
	if got := spellings("reg.test/x:1"); slices.Contains(got, "docker.io/reg.test/x:1") {
		t.Errorf("%q", got)
	}
}

// TestRootByAnotherName: who grants a user grants no root that the image makes
// of it.
func TestRootByAnotherName(t *testing.T) {
	w := newWorld(t, false, Options{})
	in := archive(t, file{name: "etc/"}, file{name: "etc/passwd", content: "root:x:0:0::/root:/bin/sh\nnode:x:0:0::/home/node:/bin/sh\n"})
	for user, root := range map[string]bool{"node": false, "00": false, "+0": false, "root": true, "0": true, "0:0": true, "root:root": true} {
		m, err := w.Do(t.Context(), Job{Kind: JobImport, Name: "x", Replace: true, Config: api.TemplateConfig{User: user}}, bytes.NewReader(in), nil)
		if err != nil {
			if root {
				t.Errorf("%s: %v", user, err)
			}
			continue
		}
		if d := m.Root.Defaults; d.Root != root || (d.UID == 0) != root || m.Template.Root != root {
			t.Errorf("%s: %+v", user, d)
		}
	}
}

// TestStalled: however many send an archive and take their time, everybody
// else is answered.
func TestStalled(t *testing.T) {
	w := newWorld(t, true, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	var sent sync.WaitGroup
	defer sent.Wait()
	defer cancel()
	for range maxCalls + 1 {
		r, end := io.Pipe()
		defer end.Close()
		sent.Go(func() { w.Do(ctx, Job{Kind: JobImport}, r, nil) })
		end.Write([]byte("x"))
	}
	time.Sleep(200 * time.Millisecond)
	soon, stop := context.WithTimeout(t.Context(), 10*time.Second)
	defer stop()
	if _, err := w.Get(soon, "x"); code(err) != api.CodeTemplateNotFound {
		t.Errorf("nobody else is answered: %v", err)
	}
}
