package main

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	rt "github.com/bermhq/berm/internal/registry/registrytest"
)

// pulls is a state directory of its own and a registry beside it.
type pulls struct {
	t    *testing.T
	bin  string
	dir  string // state
	home string
	reg  *rt.Server
}

func newPulls(t *testing.T) *pulls {
	bin, _ := binary(t)
	p := &pulls{t: t, bin: bin, dir: t.TempDir(), home: t.TempDir(), reg: rt.Start(t)}
	if err := os.Chmod(p.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	p.must("template", "ls") // makes what every sandbox shares
	return p
}

// berm runs a command line, without what this host's user keeps.
func (p *pulls) berm(args ...string) (stdout, stderr string, code int) {
	p.t.Helper()
	cmd := exec.Command(p.bin, args...)
	cmd.Env = []string{"PATH=" + p.home + ":" + os.Getenv("PATH"), "HOME=" + p.home, "BERM_STATE=" + p.dir}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	timer := time.AfterFunc(3*time.Minute, func() { cmd.Process.Kill() })
	defer timer.Stop()
	err := cmd.Run()
	if cmd.ProcessState == nil {
		p.t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

func (p *pulls) must(args ...string) string {
	p.t.Helper()
	out, errs, code := p.berm(args...)
	if code != 0 {
		p.t.Fatalf("berm %s: exit %d\n%s%s", strings.Join(args, " "), code, out, errs)
	}
	return out
}

// kept lists the files of the state directory's templates with their sizes.
func (p *pulls) kept() string {
	var all []string
	top := filepath.Join(p.dir, "templates")
	filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		info, err := d.Info()
		if err != nil || d.IsDir() || strings.Contains(path, "/locks/") || strings.HasSuffix(path, "lock") {
			return nil
		}
		all = append(all, fmt.Sprintf("%s %d", strings.TrimPrefix(path, top), info.Size()))
		return nil
	})
	return strings.Join(all, "\n")
}

// refuses pulls what must not come: the error has the words and a way out, the
// state directory is as it was, and so is the list of templates.
func (p *pulls) refuses(t *testing.T, ref string, words ...string) string {
	t.Helper()
	before := p.kept()
	out, errs, code := p.berm("template", "pull", ref, "--name", "bad")
	if code == 0 {
		t.Fatalf("%s was pulled: %s", ref, out)
	}
	for _, w := range append(words, "try: ") {
		if !strings.Contains(errs, w) {
			t.Errorf("%q is not in what it says: %s", w, errs)
		}
	}
	if after := p.kept(); after != before {
		t.Errorf("left behind:\n%s\nbefore:\n%s", after, before)
	}
	if list := p.must("template", "ls"); strings.Contains(list, "bad") {
		t.Errorf("it is listed:\n%s", list)
	}
	return errs
}

func lister(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "tree")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", bin, "./testdata/tree")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	data, err := os.ReadFile(bin)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// A seen is a node with what tells names of one file from copies of it.
type seenNode struct {
	rt.Node
	inode uint64
}

// inside is the tree as a program in a sandbox sees it.
func (p *pulls) inside(template string) map[string]seenNode {
	p.t.Helper()
	all := map[string]seenNode{}
	for line := range strings.Lines(p.must("run", "--user", "root", "--template", template, "--", "/berm-tree")) {
		var n struct {
			rt.Node
			Path  string
			Inode uint64
		}
		if err := json.Unmarshal([]byte(line), &n); err != nil {
			p.t.Fatalf("%v in %q", err, line)
		}
		path, _ := hex.DecodeString(n.Path)
		target, _ := hex.DecodeString(n.Target)
		n.Node.Target = string(target)
		if n.Mode&syscall.S_IFMT != syscall.S_IFREG {
			n.MTime = 0
		}
		all[string(path)] = seenNode{n.Node, n.Inode}
	}
	return all
}

// ours says what Berm puts into every root by itself.
func ours(path string) bool {
	for _, p := range []string{"/proc", "/sys", "/dev", "/run", "/tmp", "/var/tmp", "/workspace", "/home", "/.berm",
		"/etc/hosts", "/etc/resolv.conf", "/etc/hostname", "/etc/passwd", "/etc/group", "/etc/nsswitch.conf"} {
		if path == p || strings.HasPrefix(path, p+"/") {
			return true
		}
	}
	return path == "/"
}

// TestPullTree: after a pull the tree inside is the one that the library's own
// tool unpacks, but for the differences that registrytest.Expected names.
func TestPullTree(t *testing.T) {
	p := newPulls(t)
	img := rt.Image(t, v1.Config{Env: []string{"FROM_IMAGE=yes"}, WorkingDir: "/usr"}, rt.Tricky(t, rt.Reg("berm-tree", 0o755, lister(t)))...)
	ref := p.reg.Push(t, "team/tricky:1", img)
	p.must("template", "pull", ref, "--name", "tricky", "--user", "root")
	want, got := rt.Expected(t, img), p.inside("tricky")
	fetched, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	bad := 0
	report := func(format string, args ...any) {
		if bad++; bad <= 40 {
			t.Errorf(format, args...)
		}
	}
	for path, n := range want {
		if g, ok := got[path]; !ok {
			report("%q is missing; want %v", path, n)
		} else if g.Node != *n && path != "/" {
			report("%q is %v; want %v", path, g.Node, n)
		}
	}
	for path, g := range got {
		if want[path] == nil && !ours(path) {
			report("%q is there and should not be: %v", path, g.Node)
		}
	}
	for _, same := range [][2]string{{"/hard/a", "/hard/b"}, {"/hard/two", "/hard/three"}} {
		if got[same[0]].inode != got[same[1]].inode {
			report("%s and %s are two files", same[0], same[1])
		}
	}
	if bad == 0 {
		t.Logf("%d names compared", len(want))
	}
	if where := p.must("run", "--template", "tricky", "--", "/berm-tree"); where == "" {
		t.Error("nothing was said")
	}

	// The same image again costs nothing that was there before, and what is
	// exported comes back the same.
	before := p.kept()
	p.reg.Hook(nil)
	p.must("template", "pull", ref, "--name", "tricky2", "--user", "root")
	for _, r := range p.reg.Seen() {
		for _, l := range fetched {
			if d, _ := l.Digest(); strings.HasSuffix(r.Path, d.String()) {
				t.Errorf("a layer was fetched again: %s", r.Path)
			}
		}
	}
	if n := strings.Count(p.kept(), ".erofs") - strings.Count(before, ".erofs"); n != 0 {
		t.Errorf("pulling it again made %d more images", n)
	}
	sources := map[string]string{}
	for _, format := range []string{"oci", "docker", "tar"} {
		sources["exported-"+format] = filepath.Join(t.TempDir(), format+".tar")
		p.must("template", "export", "--format", format, "-o", sources["exported-"+format], "tricky")
	}
	// Other ways to the same image: what docker save writes, and a layout.
	sources["saved"], sources["layout"] = filepath.Join(t.TempDir(), "saved.tar"), t.TempDir()
	tag, err := name.NewTag("team/tricky:1")
	if err == nil {
		err = tarball.WriteToFile(sources["saved"], tag, img)
	}
	if err != nil {
		t.Fatal(err)
	}
	dir, err := layout.Write(sources["layout"], empty.Index)
	if err == nil {
		err = dir.AppendImage(img)
	}
	if err != nil {
		t.Fatal(err)
	}
	for from, file := range sources {
		p.must("template", "import", file, "from-"+from, "--user", "root")
		back := p.inside("from-" + from)
		for path, g := range got {
			if b, ok := back[path]; (!ok || b.Node != g.Node) && !ours(path) {
				report("%s: %q is %v, and from the registry %v", from, path, b.Node, g.Node)
			}
		}
		for path := range back {
			if _, ok := got[path]; !ok && !ours(path) {
				report("%s: %q is there, and was not from the registry", from, path)
			}
		}
	}
}

// TestPullTampered: bytes that are not those of their digest are refused, and
// leave nothing.
func TestPullTampered(t *testing.T) {
	p := newPulls(t)
	img := rt.Image(t, v1.Config{}, rt.Layer(t, rt.Gzip, rt.Tar(t, rt.Reg("a", 0o644, strings.Repeat("a", 100000)))), rt.Layer(t, rt.Gzip, rt.Tar(t, rt.Reg("b", 0o644, "b"))))
	ref := p.reg.Push(t, "app:1", img)
	digest, _ := img.Digest()
	conf, _ := img.ConfigName()
	layers, _ := img.Layers()
	last, _ := layers[1].Digest()
	flip := func(b []byte) []byte { b = bytes.Clone(b); b[len(b)/2] ^= 1; return b }
	for _, tt := range []struct {
		name, ref, path string
		chunks          bool
		change          func([]byte) []byte
	}{
		{"a layer's bytes", ref, last.String(), false, flip},
		{"a layer's size", ref, last.String(), false, func(b []byte) []byte { return append(b, 0) }},
		{"a layer without its end", ref, last.String(), true, func(b []byte) []byte { return b[:len(b)-1] }},
		{"the configuration", ref, conf.String(), false, flip},
		{"the manifest under a digest", p.reg.Host + "/app@" + digest.String(), digest.String(), false, func(b []byte) []byte { return append(b, '\n') }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p.reg.Tampered(tt.path, tt.chunks, tt.change)
			p.refuses(t, tt.ref, "refused")
		})
	}
	t.Run("a layer that is not what its image says", func(t *testing.T) {
		p.reg.Hook(nil)
		other := rt.Layer(t, rt.Gzip, rt.Tar(t, rt.Reg("evil", 0o644, "evil")))
		p.refuses(t, p.reg.Push(t, "lies:1", lying{img, other}), "refused")
	})
	p.reg.Hook(nil)
	p.must("template", "pull", p.reg.Host+"/app@"+digest.String(), "--name", "good")
}

// lying is an image whose manifest names another last layer than its
// configuration does: every digest of what is sent holds.
type lying struct {
	v1.Image
	other v1.Layer
}

func (l lying) Layers() ([]v1.Layer, error) {
	all, err := l.Image.Layers()
	return append(slices.Clone(all[:len(all)-1]), l.other), err
}

func (l lying) Manifest() (*v1.Manifest, error) {
	m, err := l.Image.Manifest()
	if err != nil {
		return nil, err
	}
	m = m.DeepCopy()
	d := &m.Layers[len(m.Layers)-1]
	d.Digest, _ = l.other.Digest()
	d.Size, _ = l.other.Size()
	return m, nil
}

func (l lying) RawManifest() ([]byte, error) {
	m, err := l.Manifest()
	if err != nil {
		return nil, err
	}
	return json.Marshal(m)
}

func (l lying) Digest() (v1.Hash, error) {
	raw, err := l.RawManifest()
	if err != nil {
		return v1.Hash{}, err
	}
	h, _, err := v1.SHA256(bytes.NewReader(raw))
	return h, err
}

func (l lying) Size() (int64, error) {
	raw, err := l.RawManifest()
	return int64(len(raw)), err
}

// TestPullBombs: what would unpack to more than a template may have ends in an
// error that says so, long before it has, and leaves nothing.
func TestPullBombs(t *testing.T) {
	p := newPulls(t)
	for _, tt := range []struct {
		name  string
		layer func() v1.Layer
		words []string
		slow  bool
	}{
		{"a file of 32 GiB", func() v1.Layer { return rt.Bomb(t, 32<<30) }, []string{"bomb:1, layer 1 of 1", "more than"}, false},
		{"three million names", func() v1.Layer { return rt.Many(t, 3_000_000) }, []string{"entries"}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.slow && os.Getenv("BERM_PROOF") == "" {
				t.Skip("takes a minute: BERM_PROOF=1")
			}
			ref := p.reg.Push(t, "bomb:1", rt.Image(t, v1.Config{}, tt.layer()))
			start := time.Now()
			errs := p.refuses(t, ref, tt.words...)
			t.Logf("%s after %.1f s: %s", tt.name, time.Since(start).Seconds(), strings.TrimSpace(errs))
		})
	}
}

// TestPullLogin: what docker login keeps is shown to the registry, asked of a
// helper on the host, and is in no error, record or sandbox.
func TestPullLogin(t *testing.T) {
	p := newPulls(t)
	img := rt.Image(t, v1.Config{}, rt.Layer(t, rt.Gzip, rt.Tar(t, rt.Reg("berm-tree", 0o755, lister(t)))))
	ref := p.reg.Push(t, "private:1", img)
	const password = "correct-horse-battery"
	want := "Basic " + base64.StdEncoding.EncodeToString([]byte("joe:"+password))
	p.reg.Hook(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Authorization") == want {
			return false
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
		w.WriteHeader(http.StatusUnauthorized)
		return true
	})
	p.refuses(t, ref, "docker login "+p.reg.Host)
	helper := "#!/bin/sh\necho '{\"ServerURL\":\"x\",\"Username\":\"joe\",\"Secret\":\"" + password + "\"}'\n"
	if err := os.WriteFile(filepath.Join(p.home, "docker-credential-test"), []byte(helper), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(p.home, ".docker"), 0o700); err != nil {
		t.Fatal(err)
	}
	config := `{"credHelpers":{"` + p.reg.Host + `":"test"}}`
	if err := os.WriteFile(filepath.Join(p.home, ".docker/config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	out := p.must("template", "pull", ref, "--name", "private", "--json")
	info := p.must("template", "info", "private")
	if strings.Contains(out+info, password) {
		t.Error("the password is in what is told of the template")
	}
	filepath.WalkDir(p.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || strings.Contains(path, "/runtimes/") {
			return nil
		}
		if data, _ := os.ReadFile(path); bytes.Contains(data, []byte(password)) || bytes.Contains(data, []byte(want)) {
			t.Errorf("the password is in %s", path)
		}
		return nil
	})
}

// TestPullDaemon: a daemon that has given its rights up has images pulled by
// the process that kept them.
func TestPullDaemon(t *testing.T) {
	s := serve(t)
	p := &pulls{t: t, bin: s.bin, dir: s.state, home: t.TempDir(), reg: rt.Start(t)}
	img := rt.Image(t, v1.Config{Entrypoint: []string{"/berm-tree"}}, rt.Layer(t, rt.Zstd, rt.Tar(t, rt.Reg("berm-tree", 0o755, lister(t)), rt.Reg("mark", 0o644, ""))))
	ref := p.reg.Push(t, "app:1", img)
	p.must("template", "pull", ref, "--name", "app", "--user", "root")
	if _, ok := p.inside("app")["/mark"]; !ok {
		t.Error("the file of the image is not inside")
	}
	other := p.reg.Push(t, "other:1", rt.Image(t, v1.Config{}, rt.Layer(t, rt.Gzip, rt.Tar(t, rt.Reg("x", 0o644, "x")))))
	p.reg.Hook(func(w http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "/blobs/") {
			w.Write([]byte("not this"))
			return true
		}
		return false
	})
	p.refuses(t, other, "refused")
}

// TestPullProxy: the caller's proxy is asked for a registry on the internet.
func TestPullProxy(t *testing.T) {
	p := newPulls(t)
	var mu sync.Mutex
	var asked []string
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked = append(asked, r.Method+" "+r.Host)
		mu.Unlock()
		w.WriteHeader(http.StatusForbidden)
	}))
	defer proxy.Close()
	cmd := exec.Command(p.bin, "template", "pull", "registry.test/app:1")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + p.home, "BERM_STATE=" + p.dir, "HTTPS_PROXY=" + proxy.URL}
	out, err := cmd.CombinedOutput()
	mu.Lock()
	defer mu.Unlock()
	if err == nil || !slices.Contains(asked, "CONNECT registry.test:443") {
		t.Errorf("the proxy was asked for %q: %v, %s", asked, err, out)
	}
}

// TestRunPulls: a template that is the name of an image is pulled once.
func TestRunPulls(t *testing.T) {
	p := newPulls(t)
	img := rt.Image(t, v1.Config{Entrypoint: []string{"/berm-tree"}}, rt.Layer(t, rt.Gzip, rt.Tar(t, rt.Reg("berm-tree", 0o755, lister(t)), rt.Reg("mark", 0o644, ""))))
	ref := p.reg.Push(t, "app:1", img)
	mark := hex.EncodeToString([]byte("/mark"))
	if out := p.must("run", "--template", ref); !strings.Contains(out, mark) {
		t.Errorf("the first run says %q", out)
	}
	p.reg.Hook(func(w http.ResponseWriter, r *http.Request) bool { return false })
	if out := p.must("run", "--template", ref); !strings.Contains(out, mark) {
		t.Errorf("the second run says %q", out)
	}
	if seen := p.reg.Seen(); len(seen) != 0 {
		t.Errorf("the second run asked the registry: %v", seen)
	}
}
