package build

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/image"
	"github.com/bermhq/berm/internal/sandbox"
	"github.com/bermhq/berm/internal/template"
)

// A world is a service of templates and an engine in memory: layers are maps of
// files, and commands are a few words of our own.
type world struct {
	mu     sync.Mutex
	layers map[string]map[string]node
	named  map[string]template.Made
	keyed  map[string]image.Root
	pulls  []string
	jobs   []template.Job
	boxes  map[string]*box
	made   int // sandboxes
	ran    []string
	egress []string
	events []api.Event
}

type node struct {
	kind     byte
	text     string
	link     string
	mode     int64
	uid, gid int
}

type box struct {
	files, was map[string]node
	root       image.Root
	denied     []api.Denial
}

func newWorld() *world {
	w := &world{layers: map[string]map[string]node{}, named: map[string]template.Made{}, keyed: map[string]image.Root{}, boxes: map[string]*box{}}
	w.layers["base"] = map[string]node{
		"etc":        {kind: tar.TypeDir, mode: 0o755},
		"etc/passwd": {kind: tar.TypeReg, text: "root:x:0:0::/root:/bin/sh\nnode:x:500:501::/home/node:/bin/sh\n"},
		"etc/group":  {kind: tar.TypeReg, text: "staff:x:50:\n"},
		"usr":        {kind: tar.TypeDir, mode: 0o755},
		"usr/bin":    {kind: tar.TypeDir, mode: 0o755},
	}
	w.named["base"] = template.Made{Template: api.Template{Name: "base"}, Root: image.Root{Layers: []string{"base"}, Defaults: image.Defaults{
		TemplateConfig: api.TemplateConfig{Env: []string{"PATH=/bin", "LANG=C"}, Entrypoint: []string{"/entry"}, Cmd: []string{"x"}}}}}
	return w
}

func (w *world) merged(layers []string) map[string]node {
	out := map[string]node{}
	for _, l := range layers {
		for name, n := range w.layers[l] {
			if base := path.Base(name); strings.HasPrefix(base, ".wh.") {
				gone := path.Join(path.Dir(name), base[4:])
				maps.DeleteFunc(out, func(k string, _ node) bool { return k == gone || strings.HasPrefix(k, gone+"/") })
				continue
			}
			out[name] = n
		}
	}
	return out
}

// untar reads an archive; dir is what names are below.
func untar(r io.Reader, dir string, owner *[2]uint32) (map[string]node, error) {
	out := map[string]node{}
	tr := tar.NewReader(r)
	for {
		h, err := tr.Next()
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		text, err := io.ReadAll(tr)
		if err != nil {
			return nil, err
		}
		n := node{h.Typeflag, string(text), h.Linkname, h.Mode, h.Uid, h.Gid}
		if owner != nil {
			n.uid, n.gid = int(owner[0]), int(owner[1])
		}
		name := path.Join(dir, h.Name)
		out[strings.TrimPrefix(name, "/")] = n
	}
}

func (w *world) Resolve(ctx context.Context, name string) (image.Root, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if m, ok := w.named[name]; ok {
		return m.Root, nil
	}
	return image.Root{}, &api.Error{Code: api.CodeTemplateNotFound, Message: "no template " + name}
}

func (w *world) List(context.Context) ([]api.Template, error) { return nil, nil }

func (w *world) Get(ctx context.Context, name string) (api.Template, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if m, ok := w.named[name]; ok {
		return m.Template, nil
	}
	return api.Template{}, &api.Error{Code: api.CodeTemplateNotFound, Message: "no template " + name}
}

func (w *world) Remove(context.Context, string) error { return nil }

func (w *world) Cached(ctx context.Context, key string) (image.Root, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r, ok := w.keyed[key]
	return r, ok
}

func (w *world) Export(context.Context, string, string, io.Writer) error { return nil }

func (w *world) Do(ctx context.Context, job template.Job, in io.Reader, progress func(api.TemplateProgress)) (template.Made, error) {
	var files map[string]node
	var err error
	if in != nil {
		if files, err = untar(in, "/", nil); err != nil {
			return template.Made{}, err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.jobs = append(w.jobs, job)
	var m template.Made
	switch job.Kind {
	case template.JobPull:
		w.pulls = append(w.pulls, job.Ref)
		if !strings.HasPrefix(job.Ref, "registry.test/") {
			return m, &api.Error{Code: api.CodeTemplateNotFound, Message: job.Ref + " is at no registry"}
		}
		m.Root = w.named["base"].Root
	case template.JobDebs:
		m.Root = image.Root{Layers: []string{"base"}}
	case template.JobImport, template.JobLayer:
		sum := sha256.New()
		for _, k := range slices.Sorted(maps.Keys(files)) {
			fmt.Fprintf(sum, "%q %+v\n", k, files[k])
		}
		name := hex.EncodeToString(sum.Sum(nil))
		w.layers[name] = files
		if job.Below != nil {
			m.Root = *job.Below
		}
		m.Root.Layers = append(slices.Clone(m.Root.Layers), name)
	case template.JobTag:
		m.Root = *job.Below
		m.Root.Defaults.Root = job.Config.User == "root"
	}
	m.Template = api.Template{Name: job.Name, SizeBytes: 1 << 20, Config: job.Config, Root: m.Root.Defaults.Root}
	if job.Key != "" {
		w.keyed[job.Key] = m.Root
	}
	if job.Name != "" {
		w.named[job.Name] = m
	}
	return m, nil
}

func (w *world) CreateOn(ctx context.Context, req api.CreateRequest, root image.Root) (api.Sandbox, error) {
	if err := ctx.Err(); err != nil {
		return api.Sandbox{}, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.made++
	if !req.Track || !req.Bound || !root.Defaults.Root {
		return api.Sandbox{}, fmt.Errorf("a step's sandbox: %+v %+v", req, root)
	}
	id := api.NewID(api.KindSandbox)
	w.egress = append(w.egress, string(req.Egress))
	w.boxes[id] = &box{files: w.merged(root.Layers), was: w.merged(root.Layers), root: root}
	if req.Egress != nil {
		w.boxes[id].files["home/agent/.npmrc"] = node{kind: tar.TypeReg, text: "registry of the host"}
	}
	return api.Sandbox{SandboxID: id}, nil
}

func (w *world) Delete(ctx context.Context, id string) (api.EndReport, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	b := w.boxes[id]
	delete(w.boxes, id)
	if b == nil {
		return api.EndReport{}, errors.New("no such sandbox")
	}
	return api.EndReport{Denied: b.denied}, ctx.Err()
}

func (w *world) box(id string) *box {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.boxes[id]
}

// Exec knows: write PATH TEXT; rm PATH; say TEXT; env NAME; id; fail N; wait; reach HOST; flood.
func (w *world) Exec(ctx context.Context, id string, req api.ExecRequest, s sandbox.Streams) (api.ExecResult, error) {
	b := w.box(id)
	text := strings.Join(req.Args, " ")
	if len(req.Args) == 3 && req.Args[1] == "-c" {
		text = req.Args[2]
	}
	w.mu.Lock()
	w.ran = append(w.ran, text)
	w.mu.Unlock()
	say := func(v any) { s.Output(sandbox.Stdout, []byte(fmt.Sprintln(v))) }
	res := api.ExecResult{Ending: api.EndExit}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		switch f[0] {
		case "write":
			name := f[1]
			if !path.IsAbs(name) {
				name = path.Join(req.Dir, name)
			}
			b.files[strings.TrimPrefix(name, "/")] = node{kind: tar.TypeReg, text: strings.Join(f[2:], " "), uid: int(b.root.Defaults.UID)}
		case "rm":
			delete(b.files, f[1][1:])
		case "say":
			say(strings.Join(f[1:], " "))
		case "env":
			say(f[1] + "=" + req.Env[f[1]])
		case "id":
			say(b.root.Defaults.UID)
		case "fail":
			fmt.Sscan(f[1], &res.ExitCode)
			return res, nil
		case "wait":
			<-ctx.Done()
			res.Ending = api.EndKilled
			return res, nil
		case "reach":
			b.denied = append(b.denied, api.Denial{Kind: "egress", Target: f[1], Reason: "no rule allows it", Fix: f[1]})
			res.ExitCode = 1
			return res, nil
		case "flood":
			for range 3000 {
				say(strings.Repeat("\x1b[31mx", 200))
			}
		default:
			res.ExitCode, res.NotStarted = 127, f[0]+": not found"
			return res, nil
		}
	}
	return res, nil
}

func (w *world) Unpack(ctx context.Context, id, dir string, owner *[2]uint32, r io.Reader) error {
	files, err := untar(r, dir, owner)
	if err != nil {
		return err
	}
	b := w.box(id)
	if dir != "/" {
		files[dir[1:]] = node{kind: tar.TypeDir, mode: 0o755}
		if owner != nil {
			files[dir[1:]] = node{kind: tar.TypeDir, mode: 0o755, uid: int(owner[0]), gid: int(owner[1])}
		}
		if had, ok := b.files[dir[1:]]; ok {
			files[dir[1:]] = had
		}
	}
	maps.Copy(b.files, files)
	return nil
}

func (w *world) TarOut(ctx context.Context, id, dir string, paths []string) (io.ReadCloser, error) {
	b := w.box(id)
	var buf bytes.Buffer
	tw := tar.NewWriter(&buf)
	for _, name := range slices.Sorted(maps.Keys(b.files)) {
		rel, ok := strings.CutPrefix("/"+name, strings.TrimSuffix(path.Join(dir, paths[0]), "/"))
		if !ok || rel != "" && rel[0] != '/' {
			continue
		}
		n := b.files[name]
		rel = path.Join(paths[0], rel)
		if rel == "." {
			rel = "./"
		}
		tw.WriteHeader(&tar.Header{Typeflag: n.kind, Name: rel, Size: int64(len(n.text)), Linkname: n.link, Mode: n.mode, Uid: n.uid, Gid: n.gid})
		io.WriteString(tw, n.text)
	}
	return io.NopCloser(&buf), tw.Close()
}

func (w *world) Glob(ctx context.Context, id, pattern string) (l api.FileList, err error) {
	b := w.box(id)
	for _, name := range slices.Sorted(maps.Keys(b.files)) {
		if ok, _ := path.Match(pattern, "/"+name); ok {
			i, _ := w.Stat(ctx, id, "/"+name)
			l.Files = append(l.Files, i)
		}
	}
	return l, nil
}

func (w *world) Stat(ctx context.Context, id, name string) (api.FileInfo, error) {
	n, ok := w.box(id).files[strings.TrimPrefix(name, "/")]
	if !ok {
		return api.FileInfo{}, &api.Error{Code: api.CodeFileNotFound, Message: name + " does not exist"}
	}
	return api.FileInfo{Path: name, Kind: map[byte]string{tar.TypeReg: "file", tar.TypeDir: "dir", tar.TypeSymlink: "symlink"}[n.kind]}, nil
}

func (w *world) ReadFile(ctx context.Context, id, name string, most int64) (io.ReadCloser, error) {
	n, ok := w.box(id).files[name[1:]]
	if !ok {
		return nil, &api.Error{Code: api.CodeFileNotFound, Message: name + " does not exist"}
	}
	return io.NopCloser(strings.NewReader(n.text)), nil
}

func (w *world) PresetFiles(ctx context.Context, id string) ([]string, error) {
	return []string{"/home/agent/.npmrc"}, nil
}

func (w *world) Changes(ctx context.Context, id, dir string) (io.ReadCloser, error) {
	b := w.box(id)
	var buf bytes.Buffer
	tw := tar.NewWriter(&buf)
	names := map[string]bool{}
	for name := range b.files {
		names[name] = true
	}
	for name := range b.was {
		if _, ok := b.files[name]; !ok {
			names[path.Join(path.Dir(name), ".wh."+path.Base(name))] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		n, ok := b.files[name]
		if ok && b.was[name] == n {
			continue
		}
		if !ok {
			n.kind = tar.TypeReg
		}
		tw.WriteHeader(&tar.Header{Typeflag: n.kind, Name: name, Size: int64(len(n.text)), Linkname: n.link, Mode: n.mode, Uid: n.uid, Gid: n.gid})
		io.WriteString(tw, n.text)
	}
	return io.NopCloser(&buf), tw.Close()
}

// builds are Builds on w.
func (w *world) builds(t *testing.T, o Options) *Builds {
	o.Templates, o.Engine = w, w
	o.Event = func(ctx context.Context, e api.Event) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.events = append(w.events, e)
		return nil
	}
	b := New(o)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := b.Close(ctx); err != nil {
			t.Error(err)
		}
		if len(w.boxes) > 0 {
			t.Errorf("%d sandboxes are left", len(w.boxes))
		}
	})
	return b
}

var operator = sandbox.Caller{Tenant: api.DefaultTenant, Actor: "t1", Role: api.RoleOperator}

// build makes one to its end and returns it with its log.
func build(t *testing.T, b *Builds, req api.BuildRequest, in Input) (api.Build, string) {
	t.Helper()
	ctx := sandbox.As(t.Context(), operator)
	v, err := b.Start(ctx, req, in)
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	if err := b.Lines(ctx, v.ID, true, func(line string) error { log.WriteString(line + "\n"); return nil }); err != nil {
		t.Fatal(err)
	}
	if v, err = b.Get(ctx, v.ID); err != nil {
		t.Fatal(err)
	}
	return v, log.String()
}

// dir is a context of files by name; a name with a slash at its end is a directory.
func dir(files ...string) io.Reader {
	var buf bytes.Buffer
	tw := tar.NewWriter(&buf)
	for i := 0; i < len(files); i += 2 {
		h := &tar.Header{Name: files[i], Mode: 0o640, Size: int64(len(files[i+1]))}
		if strings.HasSuffix(files[i], "/") {
			h.Typeflag, h.Mode, h.Size = tar.TypeDir, 0o750, 0
		}
		tw.WriteHeader(h)
		if h.Typeflag != tar.TypeDir {
			io.WriteString(tw, files[i+1])
		}
	}
	tw.Close()
	return &buf
}

// tree is what a template holds, beside its base.
func (w *world) tree(name string) map[string]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := map[string]string{}
	for p, n := range w.merged(w.named[name].Root.Layers) {
		if w.layers["base"][p] != n {
			out[p] = fmt.Sprintf("%c %d:%d %s%s", n.kind, n.uid, n.gid, n.text, n.link)
		}
	}
	return out
}

type records map[string]json.RawMessage

func (r records) Put(key string, v any) (err error) { r[key], err = json.Marshal(v); return err }
func (r records) Delete(key string) error           { delete(r, key); return nil }
func (r records) Each(f func(string, json.RawMessage) error) error {
	for k, v := range r {
		if err := f(k, v); err != nil {
			return err
		}
	}
	return nil
}
