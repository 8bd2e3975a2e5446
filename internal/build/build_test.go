package build

import (
	"errors"
	"io"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/policy"
	"github.com/bermhq/berm/internal/sandbox"
)

const dockerfileText = `ARG BASE=base
FROM ${BASE} AS tools
RUN write /opt/tool from the stage
FROM $BASE
ARG VERSION=1
ENV APP=/app V=$VERSION
WORKDIR $APP
COPY src/ ./
COPY --chown=node:staff one two /data/
COPY src/a.txt /renamed
COPY src/a.txt /usr/bin
COPY <<note /note
V is $V
note
COPY --from=tools /opt/tool /bin/tool
RUN write made.txt by $V
RUN env V
RUN env VERSION
RUN rm /etc/group
USER node
RUN id
EXPOSE 80
CMD ["serve", "it"]
`

func files1() io.Reader {
	return dir("src/a.txt", "A", "src/sub/", "", "src/sub/b", "B", "one", "1", "two", "2", "junk.log", "no", ".dockerignore", "*.log\n")
}

func TestDockerfile(t *testing.T) {
	w := newWorld()
	b := w.builds(t, Options{})
	req := api.BuildRequest{Name: "app", Dockerfile: dockerfileText, BuildArgs: map[string]string{"VERSION": "7", "HTTP_PROXY": "http://proxy.test", "NOBODY": "1"}}
	v, log := build(t, b, req, Input{Context: files1()})
	if v.Status != api.BuildDone {
		t.Fatalf("%+v\n%s", v, log)
	}
	want := map[string]string{
		"app": "5 0:0 ", "app/a.txt": "0 0:0 A", "app/sub": "5 0:0 ", "app/sub/b": "0 0:0 B", "data": "5 500:50 ", "data/one": "0 500:50 1", "data/two": "0 500:50 2",
		"renamed": "0 0:0 A", "usr/bin/a.txt": "0 0:0 A", "note": "0 0:0 V is 7\n", "bin": "5 0:0 ", "bin/tool": "0 0:0 from the stage", "app/made.txt": "0 0:0 by $V",
	}
	if got := w.tree("app"); !reflect.DeepEqual(got, want) {
		t.Errorf("inside:\n%v, want\n%v", got, want)
	}
	if _, ok := w.merged(w.named["app"].Root.Layers)["etc/group"]; ok {
		t.Error("what a step removed is there")
	}
	c := w.named["app"].Template.Config
	if !slices.Equal(c.Env, []string{"PATH=/bin", "LANG=C", "APP=/app", "V=7"}) || c.User != "node" || c.Workdir != "/app" ||
		!slices.Equal(c.Entrypoint, []string{"/entry"}) || !slices.Equal(c.Cmd, []string{"serve", "it"}) {
		t.Errorf("%+v", c)
	}
	for _, line := range []string{"  | V=7\n", "  | VERSION=7\n", "  | 500\n", "note: EXPOSE means nothing here", "note: the build argument HTTP_PROXY is not passed", "note: no ARG takes the build argument NOBODY", "Step 1/20 (line 2): FROM ${BASE} AS tools\n"} {
		if !strings.Contains(log, line) {
			t.Errorf("no %q in the log:\n%s", line, log)
		}
	}
	// A second build runs nothing; another file, or another argument, does.
	made, ran := w.made, len(w.ran)
	req.Name = "again"
	if v, log := build(t, b, req, Input{Context: files1()}); v.Status != api.BuildDone || w.made != made || len(w.ran) != ran || strings.Count(log, "  cached\n") != 7 {
		t.Errorf("%d sandboxes and %d commands more, %d steps cached\n%s", w.made-made, len(w.ran)-ran, strings.Count(log, "  cached\n"), log)
	}
	req.Name, req.BuildArgs = "third", map[string]string{"VERSION": "8"}
	if v, log := build(t, b, req, Input{Context: files1()}); v.Status != api.BuildDone || len(w.ran) != ran+5 {
		t.Errorf("%v: %d commands more\n%s", v, len(w.ran)-ran, log)
	}
	req.Name, req.NoCache = "fourth", true
	ran = len(w.ran)
	if v, log := build(t, b, req, Input{Context: files1()}); v.Status != api.BuildDone || len(w.ran) != ran+6 {
		t.Errorf("%v: %d commands more\n%s", v, len(w.ran)-ran, log)
	}
	var kinds []string
	for _, e := range w.events[:2] {
		kinds = append(kinds, e.Type+" "+e.Actor)
	}
	if !slices.Equal(kinds, []string{"template.build-started t1", "template.built t1"}) {
		t.Error(kinds)
	}
}

func TestRunPolicy(t *testing.T) {
	w := newWorld()
	b := w.builds(t, Options{Presets: func(name string) (policy.Preset, error) {
		if name == "cargo" || name == "npm" {
			return policy.Preset{}, errors.New("is not installed")
		}
		return policy.Preset{}, nil
	}})
	v, log := build(t, b, api.BuildRequest{Name: "a", Dockerfile: "FROM base\nRUN say hello\nRUN reach host.test:443", Egress: []string{"other.test:443"}}, Input{})
	if v.Status != api.BuildFailed || v.Code != api.CodeBuildFailed || v.Error != "Dockerfile:3: RUN: it ended with exit code 1; its network refused host.test:443 (no rule allows it)" ||
		v.Hint != "to allow it: --allow host.test:443" || !strings.Contains(log, "  denied: host.test:443: no rule allows it; to allow it: --allow host.test:443") {
		t.Errorf("%+v\n%s", v, log)
	}
	if want := `[{"allow":"preset:apt"},{"allow":"preset:pip"},{"allow":"preset:go"},{"allow":"other.test:443"}]`; w.egress[0] != want {
		t.Errorf("%s, want %s", w.egress[0], want)
	}
	if !strings.Contains(log, "note: steps cannot use preset:npm: is not installed") {
		t.Error(log)
	}
	if _, ok := w.named["a"]; ok {
		t.Error("a failed build left a name")
	}
	v, _ = build(t, b, api.BuildRequest{Name: "a", Dockerfile: "FROM base\nRUN write /x y", NoNetwork: true}, Input{})
	if last := w.egress[len(w.egress)-1]; v.Status != api.BuildDone || last != "" {
		t.Errorf("%+v: %q", v, last)
	}
	if got := w.tree("a"); !maps.Equal(got, map[string]string{"x": "0 0:0 y"}) {
		t.Error(got)
	}
}

// What a failing build says, and at which line.
func TestBuildFails(t *testing.T) {
	for _, tt := range []struct{ file, code, says string }{
		{"FROM base\nRUN fail 3", api.CodeBuildFailed, "Dockerfile:2: RUN: it ended with exit code 3"},
		{"FROM base\nRUN say why\n\nRUN nothing", api.CodeBuildFailed, "Dockerfile:4: RUN: it could not be started: nothing: not found"},
		{"FROM nowhere.test/x", api.CodeTemplateNotFound, "Dockerfile:1: FROM: nowhere.test/x is at no registry"},
		{"ARG X\nFROM $X", api.CodeTemplateInvalid, "Dockerfile:2: FROM: the name of the image is empty"},
		{"FROM base\nCOPY gone /", api.CodeTemplateInvalid, `Dockerfile:2: COPY: "gone" is not in the context`},
		{"FROM base\nCOPY *.x /", api.CodeTemplateInvalid, `Dockerfile:2: COPY: nothing in the context fits "*.x"`},
		{"FROM base\nCOPY ../../etc/passwd /", api.CodeTemplateInvalid, `Dockerfile:2: COPY: "../../etc/passwd" is not in the context`},
		{"FROM base\nCOPY --chown=nobody a /a", api.CodeTemplateInvalid, `Dockerfile:2: COPY: user "nobody" is not in /etc/passwd`},
		{"FROM base\nCOPY --parents a /a", api.CodeTemplateInvalid, "Dockerfile:2: COPY: --parents is not supported"},
		{"FROM base\nADD https://host.test/x /", api.CodeTemplateInvalid, `Dockerfile:2: ADD: "https://host.test/x": nothing is fetched by ADD`},
		{"FROM base\nONBUILD RUN ls", api.CodeTemplateInvalid, "Dockerfile:2: ONBUILD: it is for builds"},
		{"FROM base\nRUN --mount=type=secret,target=/s say x", api.CodeTemplateInvalid, "Dockerfile:2: RUN: --mount=type=secret is not supported"},
		{"FROM base\nRUN --network=host say x", api.CodeTemplateInvalid, "Dockerfile:2: RUN: --network=host is not supported"},
		{"FROM base\nRUN --security=insecure say x", api.CodeTemplateInvalid, "Dockerfile:2: RUN: --security is not supported"},
		{"FROM base\nUSER who\nRUN say x", api.CodeTemplateInvalid, `Dockerfile:3: RUN: user "who" is not in /etc/passwd`},
		{"FROM base\nENV A=${B:?needed}", api.CodeTemplateInvalid, "Dockerfile:2: ENV: B: needed"},
	} {
		w := newWorld()
		v, log := build(t, w.builds(t, Options{}), api.BuildRequest{Name: "x", Dockerfile: tt.file}, Input{Context: dir("a", "1")})
		if v.Status != api.BuildFailed || v.Code != tt.code || !strings.HasPrefix(v.Error, tt.says) || v.Hint == "" || !strings.Contains(log, "failed: "+v.Error) {
			t.Errorf("%q: %+v\n%s", tt.file, v, log)
		}
		if len(w.boxes) > 0 || len(w.named) > 1 {
			t.Errorf("%q left %v %v", tt.file, w.boxes, w.named)
		}
	}
}

// Root inside is granted by the Dockerfile, the request or a template that has
// it, and by no image.
func TestRootGranted(t *testing.T) {
	w := newWorld()
	for _, name := range []string{"image", "granted"} {
		m := w.named["base"]
		m.Root.Defaults.User, m.Root.Defaults.Root = "root:root", name == "granted"
		w.named[name] = m
	}
	b := w.builds(t, Options{})
	for i, tt := range []struct {
		req  api.BuildRequest
		user string
	}{
		{api.BuildRequest{Dockerfile: "FROM image\nRUN id"}, ""},
		{api.BuildRequest{Dockerfile: "FROM image AS a\nFROM a\nRUN id"}, ""},
		{api.BuildRequest{Dockerfile: "FROM image\nUSER root"}, "root"},
		{api.BuildRequest{Dockerfile: "FROM image\nUSER root\nRUN id\nUSER node"}, "node"},
		{api.BuildRequest{Dockerfile: "FROM image", Config: api.TemplateConfig{User: "root"}}, "root"},
		{api.BuildRequest{Dockerfile: "FROM granted"}, "root:root"},
		{api.BuildRequest{From: "image"}, ""},
	} {
		tt.req.Name = "x" + string(rune('a'+i))
		v, log := build(t, b, tt.req, Input{})
		if v.Status != api.BuildDone || v.Template.Config.User != tt.user {
			t.Errorf("%+v: %+v\n%s", tt.req, v, log)
		}
	}
}

func TestStartRefused(t *testing.T) {
	w := newWorld()
	b := w.builds(t, Options{})
	for _, tt := range []struct {
		req  api.BuildRequest
		in   Input
		code string
	}{
		{api.BuildRequest{Name: "x"}, Input{}, api.CodeBadRequest},
		{api.BuildRequest{Name: "x", From: "base", Debs: []string{"a"}}, Input{}, api.CodeBadRequest},
		{api.BuildRequest{Name: "host", From: "base"}, Input{}, api.CodeBadRequest},
		{api.BuildRequest{Name: "../x", From: "base"}, Input{}, api.CodeBadRequest},
		{api.BuildRequest{Name: "workspace/x", From: "base"}, Input{}, api.CodeBadRequest},
		{api.BuildRequest{Name: "x", From: "base", Pips: []string{"--index-url=x"}}, Input{}, api.CodeBadRequest},
		{api.BuildRequest{Name: "base", From: "base"}, Input{}, api.CodeTemplateExists},
		{api.BuildRequest{Name: "x", Dockerfile: "FROM a\nXYZ"}, Input{}, api.CodeTemplateInvalid},
		{api.BuildRequest{Recipe: "nothing"}, Input{}, api.CodeTemplateNotFound},
		{api.BuildRequest{Name: "x", Dockerfile: "FROM a"}, Input{Context: strings.NewReader(strings.Repeat("no tar", 1000))}, api.CodeBadRequest},
		{api.BuildRequest{Name: "x", Dockerfile: "FROM a"}, Input{Context: dir("../x", "1")}, api.CodeBadRequest},
		{api.BuildRequest{Name: "x", Dockerfile: "FROM a"}, Input{Context: dir("a", "1", "a/b", "1")}, api.CodeBadRequest},
	} {
		_, err := b.Start(sandbox.As(t.Context(), operator), tt.req, tt.in)
		var ae *api.Error
		if !errors.As(err, &ae) || ae.Code != tt.code {
			t.Errorf("%+v: %v, want %s", tt.req, err, tt.code)
		}
	}
	if l := b.List(sandbox.As(t.Context(), operator)); len(l) != 0 {
		t.Error(l)
	}
}

func TestPackages(t *testing.T) {
	w := newWorld()
	b := w.builds(t, Options{})
	v, log := build(t, b, api.BuildRequest{Recipe: "code-interpreter"}, Input{})
	if v.Status != api.BuildFailed || v.Name != "code-interpreter" { // the fake knows no dpkg
		t.Fatalf("%+v\n%s", v, log)
	}
	if !strings.Contains(log, "python3-pandas") || len(w.jobs) != 1 || !slices.Contains(w.jobs[0].Debs, "git") {
		t.Errorf("%+v\n%s", w.jobs, log)
	}
}

func TestCancel(t *testing.T) {
	w := newWorld()
	rec := records{}
	b := w.builds(t, Options{AtOnce: 1, Records: rec})
	ctx := sandbox.As(t.Context(), operator)
	begin := func(name string) api.Build {
		v, err := b.Start(ctx, api.BuildRequest{Name: name, Dockerfile: "FROM base\nRUN write /x y\nRUN wait"}, Input{})
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	first, second := begin("one"), begin("two")
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		w.mu.Lock()
		n := len(w.ran)
		w.mu.Unlock()
		if n == 2 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("it does not begin")
		}
	}
	if v, _ := b.Get(ctx, second.ID); v.Status != api.BuildQueued {
		t.Errorf("%+v", v)
	}
	if len(rec) != 2 {
		t.Errorf("%d records", len(rec))
	}
	stranger := sandbox.As(t.Context(), sandbox.Caller{Tenant: "other"})
	if err := b.Cancel(stranger, first.ID); err == nil || len(b.List(stranger)) != 0 {
		t.Error("another tenant's build exists")
	}
	for _, id := range []string{second.ID, first.ID} {
		if err := b.Cancel(ctx, id); err != nil {
			t.Fatal(err)
		}
		if v, _ := b.Get(ctx, id); v.Status != api.BuildFailed || v.Error != "it was cancelled" {
			t.Errorf("%+v", v)
		}
	}
	if len(w.boxes)+len(rec) > 0 || len(w.named) != 1 {
		t.Errorf("left: %v %v %v", w.boxes, rec, w.named)
	}
	if l := b.List(ctx); len(l) != 2 || l[0].ID != second.ID {
		t.Errorf("%+v", l)
	}
}

// A daemon that was stopped in the middle says so of its builds.
func TestInterrupted(t *testing.T) {
	w, rec := newWorld(), records{}
	id := api.NewID(api.KindBuild)
	rec.Put(id, saved{api.Build{ID: id, Name: "x", Status: api.BuildRunning, StartedAt: now()}, operator.Tenant, "t1"})
	b := w.builds(t, Options{Records: rec})
	v, err := b.Get(sandbox.As(t.Context(), operator), id)
	if err != nil || v.Status != api.BuildFailed || !strings.Contains(v.Error, "the daemon was stopped") || len(rec) != 0 {
		t.Errorf("%+v %v %v", v, err, rec)
	}
	if len(w.events) != 1 || w.events[0].Type != EventBuildFailed {
		t.Errorf("%+v", w.events)
	}
}

func TestForget(t *testing.T) {
	w := newWorld()
	b := w.builds(t, Options{Keep: 3})
	for range 6 {
		build(t, b, api.BuildRequest{Name: "x", Replace: true, Dockerfile: "FROM base"}, Input{})
	}
	if l := b.List(sandbox.As(t.Context(), operator)); len(l) != 3 {
		t.Errorf("%d builds are remembered", len(l))
	}
}

func TestFlood(t *testing.T) {
	w := newWorld()
	b := w.builds(t, Options{})
	v, log := build(t, b, api.BuildRequest{Name: "x", Dockerfile: "FROM base\nRUN flood\nRUN say last"}, Input{})
	log = "" // whoever followed has seen more
	b.Lines(sandbox.As(t.Context(), operator), v.ID, false, func(line string) error { log += line + "\n"; return nil })
	if v.Status != api.BuildDone || len(log) > maxHead+maxTail+10*maxLine || !strings.Contains(log, "lines left out ...") || !strings.Contains(log, "  | last\n") || strings.Contains(log, "\x1b") {
		t.Errorf("%v: %d bytes", v, len(log))
	}
}

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "berm-build-test-")
	if err != nil {
		panic(err)
	}
	os.Setenv("TMPDIR", dir)
	code := m.Run()
	if left, err := os.ReadDir(dir); code == 0 && (err != nil || len(left) > 0) {
		println("files are left in the spool's directory")
		code = 1
	}
	os.RemoveAll(dir)
	os.Exit(code)
}
