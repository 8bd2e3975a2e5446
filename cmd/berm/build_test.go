package main

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/client"
	rt "github.com/bermhq/berm/internal/registry/registrytest"
)

// builder is a client of s.
func (s *served) builder() *client.Client {
	s.t.Helper()
	return client.New(client.Options{URL: s.url, Token: s.token})
}

// build builds to the end and returns the build and its log.
func (s *served) build(req api.BuildRequest, files io.Reader) (api.Build, string) {
	s.t.Helper()
	c := s.builder()
	ctx, cancel := context.WithTimeout(s.t.Context(), 15*time.Minute)
	defer cancel()
	b, err := c.BuildTemplate(ctx, req, files)
	if err != nil {
		s.t.Fatalf("build: %v", err)
	}
	var log strings.Builder
	if err := c.FollowBuild(ctx, b.ID, func(line string) error { log.WriteString(line + "\n"); return nil }); err != nil {
		s.t.Errorf("log: %v", err)
	}
	b, _ = c.WaitBuild(ctx, b.ID, nil)
	return b, log.String()
}

// inside runs a command in a new sandbox of a template.
func (s *served) inside(req api.CreateRequest, cmd string) api.ExecAnswer {
	s.t.Helper()
	id := s.create(req)
	defer s.do("DELETE", "/v1/sandboxes/"+id, nil)
	return s.exec(id, cmd)
}

// idle says that no sandbox is there.
func (s *served) idle() {
	s.t.Helper()
	var list []api.Sandbox
	s.must(200, "GET", "/v1/sandboxes", nil, &list)
	if len(list) > 0 {
		s.t.Errorf("%d sandboxes are left: %+v", len(list), list)
	}
}

func tarOf(files map[string]string) io.Reader {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for name, text := range files {
		w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(text))})
		io.WriteString(w, text)
	}
	w.Close()
	return &b
}

const buildText = `# Everything that a Dockerfile is made of.
ARG BASE=host
FROM $BASE AS tools
RUN printf 'tool\n' >/usr/local/bin/tool && chmod 751 /usr/local/bin/tool
FROM $BASE
ARG WHO=nobody
ENV GREETING="hello $WHO" APP=/srv/app
WORKDIR $APP
COPY . .
COPY --from=tools /usr/local/bin/tool /usr/local/bin/
RUN id -u && pwd && cat words.txt && test ! -e junk.log && echo "$GREETING, $WHO"
RUN <<EOF
mkdir -p /data/deep
echo made >/data/deep/file
ln -s deep/file /data/link
chown 1000:1000 /data
EOF
RUN rm -r /data/deep && rm words.txt
USER agent
RUN id -u >/data/who
CMD ["cat", "/data/who"]
`

// A Dockerfile becomes a template, and its steps are not run again.
func TestBuild(t *testing.T) {
	s := serve(t)
	context := func() io.Reader {
		return tarOf(map[string]string{"words.txt": "words\n", "junk.log": "x", ".dockerignore": "*.log\n", "bin/run.sh": "#!/bin/sh\necho ran\n"})
	}
	req := api.BuildRequest{Name: "app", Dockerfile: buildText, BuildArgs: map[string]string{"WHO": "you"}}
	b, log := s.build(req, context())
	if b.Status != api.BuildDone {
		t.Fatalf("%+v\n%s", b, log)
	}
	for _, line := range []string{"  | 0\n", "  | /srv/app\n", "  | words\n", "  | hello you, you\n"} {
		if !strings.Contains(log, line) {
			t.Errorf("no %q in\n%s", line, log)
		}
	}
	s.idle()
	a := s.inside(api.CreateRequest{Template: "app"}, `id -u; pwd; echo $GREETING; bin/run.sh; ls; cat /data/who; readlink /data/link; test -e /data/deep || echo gone; stat -c '%a %u' /usr/local/bin/tool`)
	if want := "1000\n/srv/app\nhello you\nran\nbin\n1000\ndeep/file\ngone\n751 0\n"; a.Stdout != want {
		t.Errorf("inside: %q %q, want %q", a.Stdout, a.Stderr, want)
	}
	req.Name = "again"
	began := time.Now()
	b2, log := s.build(req, context())
	if b2.Status != api.BuildDone || strings.Contains(log, "  | ") || strings.Count(log, "  cached\n") != 6 {
		t.Errorf("%+v\n%s", b2, log)
	}
	t.Logf("the second build took %s", time.Since(began).Round(time.Millisecond))
	if b.Template == nil || b2.Template == nil || fmt.Sprint(b.Template.Layers) != fmt.Sprint(b2.Template.Layers) {
		t.Error("the same steps made other layers")
	}
	var events []byte
	_, events, _ = s.do("GET", "/v1/events?type=template.built&type=template.build-started", nil)
	if n := bytes.Count(events, []byte(`"template.built"`)); n != 2 {
		t.Errorf("%d builds in the audit log: %s", n, events)
	}
}

// Steps that fail, and what their sandboxes hold them to.
func TestBuildFails(t *testing.T) {
	s := serve(t)
	small := api.Limits{TimeoutSeconds: 60, DiskBytes: 64 << 20, OutputBytes: 64 << 10}
	for _, tt := range []struct{ name, step, says string }{
		{"exit", "RUN echo why >&2; exit 3", "Dockerfile:2: RUN: it ended with exit code 3: why"},
		{"missing", `RUN ["/no/such/program"]`, "Dockerfile:2: RUN: it could not be started"},
		{"network", "RUN curl -sS --max-time 20 http://blocked.test/", "its network refused blocked.test"},
		{"disk", "RUN head -c 200000000 /dev/zero >/big", "its disk of 64 MiB was full"},
		{"output", "RUN yes", "it wrote more than 4 MiB to its output"},
		{"time", "RUN sleep 300", "it was not done in 3 s"},
		{"host", "RUN cat /etc/berm-canary", "it ended with exit code 1"},
		{"nothing there", "COPY nothing /", `Dockerfile:2: COPY: "nothing" is not in the context`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			limits := small
			if tt.name == "time" {
				limits.TimeoutSeconds = 3
			}
			b, log := s.build(api.BuildRequest{Name: "f", Dockerfile: "FROM host\n" + tt.step + "\n", Limits: limits}, tarOf(nil))
			if b.Status != api.BuildFailed || !strings.Contains(b.Error, tt.says) || b.Hint == "" {
				t.Errorf("%+v, want %q\n%.2000s", b, tt.says, log)
			}
			if _, kept, _ := s.do("GET", "/v1/templates/builds/"+b.ID+"/logs", nil); len(kept) > 9<<20 { // each line is an event of its own
				t.Errorf("%d bytes are kept of the log", len(kept))
			}
		})
	}
	s.idle()
	var list []api.Template
	s.must(200, "GET", "/v1/templates", nil, &list)
	for _, tm := range list {
		if tm.Name == "f" {
			t.Error("a failed build left its name")
		}
	}
	b, log := s.build(api.BuildRequest{Name: "none", Dockerfile: "FROM host\nRUN ip link 2>/dev/null | grep -c eth || true; ! curl -sS --max-time 5 http://192.0.2.1/\n", NoNetwork: true}, nil)
	if b.Status != api.BuildDone {
		t.Errorf("%+v\n%s", b, log)
	}
}

// A build that is cancelled, and one whose daemon dies.
func TestBuildEnds(t *testing.T) {
	s := serve(t)
	c := s.builder()
	start := func(name string) string {
		b, err := c.BuildTemplate(t.Context(), api.BuildRequest{Name: name, Dockerfile: "FROM host\nRUN echo begun; sleep 600\n"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		c.FollowBuild(t.Context(), b.ID, func(line string) error {
			if strings.Contains(line, "| begun") {
				return io.ErrUnexpectedEOF
			}
			return nil
		})
		return b.ID
	}
	id := start("one")
	if err := c.CancelBuild(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if b, err := c.Build(t.Context(), id); err != nil || b.Status != api.BuildFailed || b.Error != "it was cancelled" {
		t.Errorf("%+v %v", b, err)
	}
	s.idle()
	id = start("two")
	s.kill9()
	s.start()
	c = s.builder()
	if b, err := c.Build(t.Context(), id); err != nil || b.Status != api.BuildFailed || !strings.Contains(b.Error, "the daemon was stopped") {
		t.Errorf("%+v %v", b, err)
	}
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		var list []api.Sandbox
		if s.must(200, "GET", "/v1/sandboxes", nil, &list); len(list) == 0 {
			break
		}
	}
	s.idle()
}

// Root inside is a property of a template, and apt works in one that has it.
func TestBuildRoot(t *testing.T) {
	s := serve(t)
	registry(t, "apt")
	needsDebs(t)
	b, log := s.build(api.BuildRequest{Recipe: "debian"}, nil)
	if b.Status != api.BuildDone {
		t.Fatalf("%+v\n%s", b, log)
	}
	t.Logf("debian: %d MB, in %s to %s", b.SizeMB, b.StartedAt, b.EndedAt)
	allow := json.RawMessage(`[{"allow":"preset:apt"}]`)
	req := api.CreateRequest{Template: "debian", Egress: allow, TimeoutSeconds: 300, MemoryMB: 1024, DiskGB: 2}
	a := s.inside(req, "id -u && apt-get update && apt-get install -y hello && hello")
	if !strings.HasPrefix(a.Stdout, "0\n") || !strings.HasSuffix(a.Stdout, "Hello, world!\n") {
		t.Errorf("%d %s\n%s", a.ExitCode, a.Stdout, a.Stderr)
	}
	if a := s.inside(api.CreateRequest{Template: "host"}, "id -u"); a.Stdout != "1000\n" {
		t.Errorf("host: %s", a.Stdout)
	}
}

// needsDebs skips where there is nothing that signed packages can come from.
func needsDebs(t *testing.T) {
	t.Helper()
	if _, err := os.Stat("/etc/apt"); err != nil {
		t.Skip("needs the package sources of a Debian-like host")
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		t.Skip("needs a Debian-like host")
	}
}

const plotText = `
import numpy as np, pandas as pd, matplotlib.pyplot as plt
df = pd.DataFrame({"x": np.arange(10), "y": np.arange(10) ** 2})
df.plot(x="x", y="y", title="Ünïcode")
plt.savefig("plot.png")
print(int(df.y.sum()))
`

// The template code-interpreter, by its recipe alone: what it is for works.
func TestCodeInterpreter(t *testing.T) {
	if os.Getenv("BERM_PROOF") == "" {
		t.Skip("takes minutes: make proof")
	}
	s := serve(t)
	registry(t, "apt")
	needsDebs(t)
	began := time.Now()
	b, log := s.build(api.BuildRequest{Recipe: "code-interpreter"}, nil)
	if b.Status != api.BuildDone {
		t.Fatalf("%+v\n%s", b, log)
	}
	t.Logf("code-interpreter: %d MB in %s", b.SizeMB, time.Since(began).Round(time.Second))
	if d := time.Since(began); d > 5*time.Minute {
		t.Errorf("it took %s", d)
	}
	id := s.create(api.CreateRequest{Template: "code-interpreter", MemoryMB: 1024, TimeoutSeconds: 120})
	defer s.do("DELETE", "/v1/sandboxes/"+id, nil)
	run := func(cmd, want string) {
		t.Helper()
		if a := s.exec(id, cmd); a.ExitCode != 0 || a.Stdout != want {
			t.Errorf("%s: %d %q %q, want %q", cmd, a.ExitCode, a.Stdout, a.Stderr, want)
		}
	}
	run("cat >plot.py <<'EOF'"+plotText+"EOF\npython3 plot.py", "285\n")
	_, png, err := s.do("GET", "/v1/sandboxes/"+id+"/fs?path=/workspace/plot.png", nil)
	if err != nil || len(png) < 5000 || !bytes.HasPrefix(png, []byte("\x89PNG\r\n")) {
		t.Errorf("the picture: %d bytes, %v", len(png), err)
	}
	run("id -un", "agent\n")
	run(`node -e 'console.log(6*7)' && npm --version >/dev/null`, "42\n")
	run(`git init -q r && cd r && git -c user.name=a -c user.email=a@b.test commit -q --allow-empty -m x && cd .. && git clone -q r c && git -C c log --format=%s`, "x\n")
	run(`printf '#include <cstdio>\nint main() { puts("built"); }\n' >a.cc && g++ -o a a.cc && ./a`, "built\n")
	run(`printf 'all:\n\t@echo made\n' >Makefile && make`, "made\n")
}

// FROM an image of a registry, and FROM scratch with what is copied out of one;
// the image itself leaves no name.
func TestBuildPulls(t *testing.T) {
	p := newPulls(t)
	img := rt.Image(t, v1.Config{Env: []string{"FROM_IMAGE=1"}, Entrypoint: []string{"/berm-tree"}},
		rt.Layer(t, rt.Gzip, rt.Tar(t, rt.Reg("berm-tree", 0o755, lister(t)), rt.Reg("mark", 0o644, ""))))
	ref := p.reg.Push(t, "app:1", img)
	file := filepath.Join(t.TempDir(), "Dockerfile")
	text := "FROM " + ref + " AS got\nRUN [\"/berm-tree\"]\nFROM scratch\nCOPY --from=got --chmod=755 /berm-tree /bin/tree\nCOPY <<here /here\nhello\nhere\nENTRYPOINT [\"/bin/tree\"]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	log := p.must("template", "build", "made", "--file", file, "--no-network")
	out := p.must("run", "--template", "made")
	for name, want := range map[string]bool{"/here": true, "/bin/tree": true, "/mark": false, "/berm-tree": false} {
		if is := strings.Contains(out, hex.EncodeToString([]byte(name))); is != want {
			t.Errorf("%s is there: %v\n%s\n%s", name, is, log, out)
		}
	}
	if ls := p.must("template", "ls"); strings.Contains(ls, "app:1") || !strings.Contains(ls, "made") {
		t.Errorf("templates: %s", ls)
	}
}
