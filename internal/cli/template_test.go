package cli_test

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/client"
	"github.com/bermhq/berm/internal/backend"
	"github.com/bermhq/berm/internal/build"
	"github.com/bermhq/berm/internal/cli"
	"github.com/bermhq/berm/internal/image"
	"github.com/bermhq/berm/internal/sandbox"
	"github.com/bermhq/berm/internal/server"
	"github.com/bermhq/berm/internal/testkit"
	"github.com/bermhq/berm/internal/testkit/shelves"
)

// shelved is w with templates and builds in memory, and no daemon.
func (w *world) shelved() (*shelves.Shelf, *shelves.Builds) {
	shelf := shelves.New()
	builds := &shelves.Builds{Shelf: shelf}
	w.with(func(ctx context.Context, o cli.OpenOptions) (*cli.Session, error) {
		w.opened = o
		w.opens++
		name := o.Template
		if name == "" {
			name = "host"
		}
		if !o.NoTemplate {
			if _, err := shelf.Get(ctx, name); err != nil {
				return nil, err
			}
		}
		e := sandbox.New([]backend.Backend{w.flaky}, sandbox.Options{Images: func(string) (image.Root, error) { return image.Root{Layers: []string{"host"}}, nil }})
		c := client.New(client.Options{Dial: testkit.Serve(w.t, server.New(e, server.Options{Shelf: shelf, Builds: builds}))})
		return &cli.Session{Client: c, Template: name, Close: func() error {
			c.Close()
			return e.Close(context.WithoutCancel(ctx))
		}}, nil
	})
	return shelf, builds
}

func TestTemplates(t *testing.T) {
	w := newWorld(t)
	shelf, builds := w.shelved()
	t.Chdir(t.TempDir())
	if err := errors.Join(os.WriteFile("root.tar.gz", []byte("an archive"), 0o644), os.WriteFile("bad.tar", []byte("bad"), 0o644),
		os.WriteFile("Dockerfile", []byte("FROM x\nCOPY . /\n"), 0o644), os.WriteFile(".dockerignore", []byte("*.log\n"), 0o644),
		os.WriteFile("a.log", nil, 0o644), os.WriteFile("key", []byte("a key"), 0o644)); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args   []string
		code   int
		stdout string // all of it, or the start if it ends in ...
		says   string
	}{
		{[]string{"template", "import", "root.tar.gz"}, 0, "root\n", ""},
		{[]string{"template", "import", "root.tar.gz"}, 125, "", "try: choose another name, or replace it: --replace"},
		{[]string{"template", "import", "--replace", "root.tar.gz", "root", "--user", "root", "--env", "A=b", "--workdir", "/srv"}, 0, "root\n", ""},
		{[]string{"template", "import", "root.tar.gz", "a/b:c", "--json"}, 0, `{"name":"a/b:c",...`, ""},
		{[]string{"template", "import", "bad.tar"}, 125, "", "berm: the archive is none that is known\ntry: a tar,"},
		{[]string{"template", "import", "none.tar"}, 125, "", "berm: none.tar: no such file or directory\ntry: berm help template import"},
		{[]string{"template", "import", "-"}, 125, "", "try: berm template import - NAME"},
		{[]string{"template", "import", "/dev/null", "x"}, 125, "", "is neither a file nor a directory"},
		{[]string{"template", "import", "root.tar.gz", "../x"}, 125, "", "is not a name for a template"},
		{[]string{"template", "import", "root.tar.gz", "builds"}, 125, "", "is not a name for a template"},
		{[]string{"template", "import", "root.tar.gz", "x", "--workdir", "srv"}, 125, "", "is not an absolute path"},
		{[]string{"template", "import"}, 125, "", "needs one argument"},
		{[]string{"template", "ls", "-q"}, 0, "a/b:c\nhost\nroot\nbase\ncode-interpreter\nubuntu-24.04\n", ""},
		{[]string{"template", "ls"}, 0, "NAME              FROM     SIZE  USER   AGE\na/b:c             archive ...", ""},
		{[]string{"template", "ls", "x"}, 125, "", "takes no arguments"},
		{[]string{"template", "info", "root"}, 0, "template    root\nfrom        archive\n...", ""},
		{[]string{"template", "info", "none"}, 125, "", "berm: template none does not exist\n"},
		{[]string{"template", "export", "root", "-o", "out.tar"}, 0, "", ""},
		{[]string{"template", "export", "root"}, 0, "an archive", ""},
		{[]string{"template", "export", "root", "--format", "zip"}, 125, "", "berm: --format zip: is not one of oci, docker, tar"},
		{[]string{"template", "export", "none", "-o", "none.tar"}, 125, "", "does not exist"},
		{[]string{"template", "rm", "root", "none", "a/b:c"}, 125, "", `"none" does not exist`},
		{[]string{"template", "rm", "host"}, 125, "", "stays"},
		{[]string{"template", "rm"}, 125, "", "needs one argument"},
		{[]string{"template", "pull", "a.test/b:1"}, 0, "a.test/b:1\n", ""},
		{[]string{"template", "pull", "a.test/b:1"}, 125, "", "exists"},
		{[]string{"template", "pull", "a.test/b:1", "--name", "fail"}, 125, "", "berm: step 1/1: exit status 7\ntry: see the lines"},
		{[]string{"template", "pull", "a.test/../b:1"}, 125, "", "is not a name for a template"},
		{[]string{"template", "build", "code-interpreter"}, 0, "code-interpreter\n", "step 1/1: code-interpreter\n"},
		{[]string{"template", "build", "data", "--deb", "python3,git", "--deb", "curl", "--pip", "x", "--keyring", "key", "-q"}, 0, "data\n", ""},
		{[]string{"template", "build", "web", "--file", "Dockerfile", "--build-arg", "V=2", "--json"}, 0, `{"name":"web",...`, "step 1/1: web\ncafé  [31mred\n(end)\n"},
		{[]string{"template", "build", "x", "--deb", "a", "--from", "b"}, 125, "", "berm: --deb and --from: are two beginnings"},
		{[]string{"template", "build", "x", "--pip", "a"}, 125, "", "go on top of something"},
		{[]string{"template", "build", "x", "."}, 125, "", "try: berm template build x --file Dockerfile ."},
		{[]string{"template", "build", "x", "--file", "none"}, 125, "", "berm: none: no such file"},
		{[]string{"template", "build", "x", "--build-arg", "V=2"}, 125, "", "is for a Dockerfile"},
		{[]string{"template", "build", "x", "--suite", "noble"}, 125, "", "are for --deb"},
		{[]string{"template", "build", "x", "--no-network", "--allow", "a.test"}, 125, "", "contradict"},
		{[]string{"template", "build", "fail"}, 125, "", "berm: step 1/1: exit status 7"},
		{[]string{"template", "biuld", "x"}, 125, "", "try: berm template build x"},
	} {
		code, out, errs := w.run(t.Context(), "", tt.args...)
		start, open := strings.CutSuffix(tt.stdout, "...")
		if code != tt.code || !open && out != tt.stdout || !strings.HasPrefix(out, start) || !strings.Contains(errs, tt.says) || tt.says == "" && errs != "" {
			t.Errorf("%q: %d\n%s%s\nwant %d\n%s%s", tt.args, code, out, errs, tt.code, tt.stdout, tt.says)
		}
	}
	if b, err := os.ReadFile("out.tar"); string(b) != "an archive" || exists("none.tar") {
		t.Errorf("exported: %q %v", b, err)
	}
	if !w.opened.NoTemplate || !w.opened.Templates {
		t.Errorf("opened with %+v", w.opened)
	}
	var job api.TemplateConfig
	for _, j := range shelf.Jobs {
		if j.Name == "root" {
			job = j.Config
		}
	}
	if job.User != "root" || job.Workdir != "/srv" || !slices.Equal(job.Env, []string{"A=b"}) {
		t.Errorf("imported with %+v", job)
	}
	asked := func(name string) (r api.BuildRequest, came string) {
		i := slices.IndexFunc(builds.Asked, func(r api.BuildRequest) bool { return r.Name == name })
		return builds.Asked[i], builds.Inputs[i]
	}
	if r, _ := asked("code-interpreter"); r.Recipe != "code-interpreter" {
		t.Errorf("%+v", r)
	}
	if r, _ := asked("data"); !slices.Equal(r.Debs, []string{"python3", "git", "curl"}) || string(r.Keyring) != "a key" || r.Recipe != "" {
		t.Errorf("%+v", r)
	}
	r, came := asked("web")
	var files []string
	for tr := tar.NewReader(strings.NewReader(came)); ; {
		h, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 0 {
			t.Errorf("%s is somebody's: %d", h.Name, h.Uid)
		}
		files = append(files, h.Name)
	}
	if r.BuildArgs["V"] != "2" || !slices.Contains(files, ".dockerignore") || !slices.Contains(files, "Dockerfile") || slices.Contains(files, "a.log") {
		t.Errorf("%+v with %q", r, files)
	}
}

func exists(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}

// A directory goes in as it is: links as links, owners as they are.
func TestImportDirectory(t *testing.T) {
	w := newWorld(t)
	shelf, _ := w.shelved()
	dir := t.TempDir()
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "bin/deep"), 0o755), os.WriteFile(filepath.Join(dir, "bin/a"), []byte("x"), 0o644),
		os.Link(filepath.Join(dir, "bin/a"), filepath.Join(dir, "bin/b")), os.Symlink("/etc/passwd", filepath.Join(dir, "link")),
		os.Chmod(filepath.Join(dir, "bin/a"), 0o4755|os.ModeSetuid)); err != nil {
		t.Fatal(err)
	}
	if out := w.berm("template", "import", dir, "dir"); out != "dir" {
		t.Error(out)
	}
	var out strings.Builder
	if err := shelf.Export(t.Context(), "dir", "tar", &out); err != nil {
		t.Fatal(err)
	}
	got := map[string]*tar.Header{}
	for tr := tar.NewReader(strings.NewReader(out.String())); ; {
		h, err := tr.Next()
		if err != nil {
			break
		}
		got[h.Name] = h
	}
	if a, b, l := got["bin/a"], got["bin/b"], got["link"]; a == nil || a.Mode != 0o4755 || b == nil || b.Linkname != "bin/a" || b.Typeflag != tar.TypeLink ||
		l == nil || l.Linkname != "/etc/passwd" || got["bin/deep/"] == nil || got["./"] == nil {
		t.Errorf("%+v", got)
	}
}

// An image that is not kept is pulled once, and never by a plain word.
func TestRunPulls(t *testing.T) {
	w := newWorld(t)
	_, builds := w.shelved()
	code, out, errs := w.run(t.Context(), "", "run", "--template", "a.test/tool:1", "--", "echo", "hi")
	if code != 0 || out != "hi\n" || errs != "berm: the template a.test/tool:1 is not kept: it is pulled, once\n" || len(builds.Asked) != 1 || builds.Asked[0].ImageRef != "a.test/tool:1" {
		t.Errorf("%d %q %q %+v", code, out, errs, builds.Asked)
	}
	if code, out, errs := w.run(t.Context(), "", "run", "--template", "a.test/tool:1", "--", "echo", "hi"); code != 0 || out != "hi\n" || errs != "" || len(builds.Asked) != 1 {
		t.Errorf("again: %d %q %q", code, out, errs)
	}
	if code, _, errs := w.run(t.Context(), "", "run", "--template", "python", "--", "echo"); code != 125 || !strings.Contains(errs, "try: berm template ls; berm template pull python") || len(builds.Asked) != 1 {
		t.Errorf("a plain word: %d %q", code, errs)
	}
	if code, _, _ := w.run(t.Context(), "", "run", "--template", "a/x:1"+strings.Repeat("x", 200), "--", "echo"); code != 125 || len(builds.Asked) != 1 {
		t.Errorf("no name: %d", code)
	}
}

// What a template runs by itself, and what it puts before a command.
func TestRunEntrypoint(t *testing.T) {
	w := newWorld(t)
	_, builds := w.shelved()
	image := func(name string, c api.TemplateConfig) {
		if _, err := builds.Start(t.Context(), api.BuildRequest{Name: name, ImageRef: name, Config: c}, build.Input{}); err != nil {
			t.Fatal(err)
		}
	}
	image("both", api.TemplateConfig{Entrypoint: []string{"echo", "e"}, Cmd: []string{"c"}})
	image("cmd", api.TemplateConfig{Cmd: []string{"echo", "c"}})
	image("none", api.TemplateConfig{})
	for _, tt := range []struct {
		args []string
		code int
		out  string
		says string
	}{
		{[]string{"--template", "both"}, 0, "e c\n", ""},
		{[]string{"--template", "cmd"}, 0, "c\n", ""},
		{[]string{"--template", "both", "--", "x", "y"}, 0, "e x y\n", ""},
		{[]string{"--template", "cmd", "--", "echo", "x"}, 0, "x\n", ""},
		{[]string{"--template", "both", "--entrypoint", "", "--", "echo", "x"}, 0, "x\n", ""},
		{[]string{"--template", "both", "--entrypoint", "echo", "--", "x"}, 0, "x\n", ""},
		{[]string{"--template", "both", "--entrypoint", "echo"}, 0, "\n", ""},
		{[]string{"--template", "both", "--entrypoint", ""}, 125, "", "has no command of its own"},
		{[]string{"--template", "none"}, 125, "", "try: berm run --template none -- sh -c 'echo hello'"},
		{[]string{"--template", "host"}, 125, "", "no file, no --code and no command"},
	} {
		code, out, errs := w.run(t.Context(), "", append([]string{"run"}, tt.args...)...)
		if code != tt.code || out != tt.out || !strings.Contains(errs, tt.says) {
			t.Errorf("%q: %d %q %q", tt.args, code, out, errs)
		}
	}
}

// Beside a daemon the same verbs and the same pull go through it.
func TestTemplatesOfADaemon(t *testing.T) {
	w := newWorld(t).daemon()
	w.berm("template", "pull", "a.test/x:1")
	if list := decoded[[]api.Template](w, "template", "ls", "--json"); len(list) != 5 || list[0].Name != "a.test/x:1" {
		t.Errorf("%+v", list)
	}
	if list := decoded[[]api.Build](w, "template", "builds", "--json"); len(list) != 1 || list[0].Status != api.BuildDone {
		t.Errorf("%+v", list)
	}
	var made api.NewToken
	if err := json.Unmarshal([]byte(w.berm("token", "create", "--role", "agent", "--json")), &made); err != nil {
		t.Fatal(err)
	}
	w.token = made.Token
	code, _, errs := w.run(t.Context(), "", "run", "--template", "a.test/y:1", "--", "echo", "hi")
	if code != 125 || !strings.Contains(errs, "only an operator may have it pulled") || !strings.Contains(errs, "try: berm template pull a.test/y:1") {
		t.Errorf("%d %q", code, errs)
	}
	if w.opens != 0 {
		t.Errorf("%d sessions were opened beside the daemon", w.opens)
	}
}
