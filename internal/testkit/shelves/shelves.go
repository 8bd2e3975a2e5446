// Package shelves is for tests only: templates and builds in memory, for those
// who talk to a server about them.
package shelves

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/build"
	"github.com/bermhq/berm/internal/image"
	"github.com/bermhq/berm/internal/template"
)

// A Shelf is a template.Service that keeps archives as they came: they are not
// looked into, but one that begins with "bad" is no archive.
type Shelf struct {
	mu       sync.Mutex
	records  map[string]api.Template
	archives map[string][]byte // by layer
	Jobs     []template.Job    // that were done
}

// New is a shelf with the template host.
func New() *Shelf {
	s := &Shelf{records: map[string]api.Template{}, archives: map[string][]byte{}}
	s.records["host"] = api.Template{Name: "host", SizeBytes: 1 << 20, CPU: 1, MemoryMB: 512, IsGlobal: true, Source: "host", Label: "the tools of this host"}
	return s
}

func missing(name string) error {
	return &api.Error{Code: api.CodeTemplateNotFound, Message: fmt.Sprintf("template %q does not exist", name), Hint: "berm template ls"}
}

func root(t api.Template) image.Root {
	r := image.Root{Defaults: image.Defaults{TemplateConfig: t.Config, Root: t.Root}}
	for _, l := range t.Layers {
		r.Layers = append(r.Layers, l.Name)
	}
	return r
}

// Resolve is of template.Service.
func (s *Shelf) Resolve(ctx context.Context, name string) (image.Root, error) {
	t, err := s.Get(ctx, name)
	return root(t), err
}

// List is of template.Service.
func (s *Shelf) List(context.Context) ([]api.Template, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := slices.Sorted(maps.Keys(s.records))
	out := make([]api.Template, 0, len(names))
	for _, n := range names {
		out = append(out, s.records[n])
	}
	return out, nil
}

// Get is of template.Service.
func (s *Shelf) Get(_ context.Context, name string) (api.Template, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, ok := s.records[name]
	if !ok {
		return t, missing(name)
	}
	return t, nil
}

// Remove is of template.Service.
func (s *Shelf) Remove(_ context.Context, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.records[name]; !ok {
		return missing(name)
	}
	delete(s.records, name)
	return nil
}

// Cached is of template.Service: nothing is.
func (s *Shelf) Cached(context.Context, string) (image.Root, bool) { return image.Root{}, false }

// Do is of template.Service.
func (s *Shelf) Do(ctx context.Context, job template.Job, in io.Reader, progress func(api.TemplateProgress)) (template.Made, error) {
	var b []byte
	if in != nil {
		var err error
		if b, err = io.ReadAll(in); err != nil {
			return template.Made{}, fmt.Errorf("read the archive: %w", err)
		}
	}
	if bytes.HasPrefix(b, []byte("bad")) {
		return template.Made{}, &api.Error{Code: api.CodeTemplateInvalid, Message: "the archive is none that is known", Hint: "a tar, what docker save writes, or an OCI layout"}
	}
	if progress != nil {
		progress(api.TemplateProgress{Phase: "pack", Done: int64(len(b)), Total: int64(len(b))})
	}
	if err := ctx.Err(); err != nil {
		return template.Made{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, there := s.records[job.Name]; there && !job.Replace {
		return template.Made{}, &api.Error{Code: api.CodeTemplateExists, Message: fmt.Sprintf("template %q exists", job.Name)}
	}
	sum := sha256.Sum256(b)
	layer := api.TemplateLayer{Name: hex.EncodeToString(sum[:8]), SizeBytes: int64(len(b))}
	s.archives[layer.Name] = b
	t := api.Template{
		Name: job.Name, CPU: 1, MemoryMB: 512, IsGlobal: true, CreatedAt: time.Now().UTC().Format(time.RFC3339Nano), Source: job.Source,
		Config: job.Config, Root: job.Config.User == "root",
	}
	if t.Source == "" {
		t.Source = map[string]string{template.JobImport: "archive", template.JobPull: job.Ref}[job.Kind]
	}
	if job.Below != nil {
		for _, name := range job.Below.Layers {
			t.Layers = append(t.Layers, api.TemplateLayer{Name: name, SizeBytes: int64(len(s.archives[name]))})
		}
	}
	t.Layers = append(t.Layers, layer)
	for _, l := range t.Layers {
		t.SizeBytes += l.SizeBytes
	}
	if job.Name != "" {
		s.records[job.Name] = t
	}
	s.Jobs = append(s.Jobs, job)
	return template.Made{Template: t, Root: root(t)}, nil
}

// Export is of template.Service: the last archive, as it came.
func (s *Shelf) Export(ctx context.Context, name, format string, out io.Writer) error {
	t, err := s.Get(ctx, name)
	if err != nil {
		return err
	}
	if len(t.Layers) > 0 {
		s.mu.Lock()
		b := s.archives[t.Layers[len(t.Layers)-1].Name]
		s.mu.Unlock()
		_, err = out.Write(b)
	}
	return err
}

// Builds makes templates of a Shelf at once. One that is called fail... fails,
// one that is called slow... goes on until it is cancelled.
type Builds struct {
	Shelf *Shelf

	mu     sync.Mutex
	all    []*job
	Asked  []api.BuildRequest
	Inputs []string // what came with each of them
}

type job struct {
	api.Build
	lines []string
	over  chan struct{}
}

// Start is of server.Builds.
func (b *Builds) Start(ctx context.Context, req api.BuildRequest, in build.Input) (api.Build, error) {
	var came []byte
	for _, r := range []io.Reader{in.Context, in.Rootfs} {
		if r == nil {
			continue
		}
		p, err := io.ReadAll(r)
		if err != nil {
			return api.Build{}, err
		}
		came = append(came, p...)
	}
	if _, err := b.Shelf.Get(ctx, req.Name); err == nil && !req.Replace {
		return api.Build{}, &api.Error{Code: api.CodeTemplateExists, Message: fmt.Sprintf("template %q exists", req.Name)}
	}
	now := func() string { return time.Now().UTC().Format(time.RFC3339Nano) }
	j := &job{over: make(chan struct{}), Build: api.Build{
		ID: api.NewID(api.KindBuild), Name: req.Name, Status: api.BuildRunning, StartedAt: now(), Bytes: int64(len(came)),
		Progress: &api.TemplateProgress{Phase: "step", Item: "1/1", Done: 1, Total: 2},
	}}
	j.lines = []string{"step 1/1: " + req.Name, "caf\u00e9\u2028\x1b[31mred", "end"}
	switch {
	case strings.HasPrefix(req.Name, "slow"):
	case strings.HasPrefix(req.Name, "fail"):
		j.end(api.CodeBuildFailed, "step 1/1: exit status 7")
	default:
		made, err := b.Shelf.Do(ctx, template.Job{Kind: template.JobPull, Name: req.Name, Ref: req.ImageRef, Replace: req.Replace, Config: req.Config, Source: "build"}, bytes.NewReader(came), nil)
		if err != nil {
			return api.Build{}, err
		}
		j.Template = &made.Template
		j.end("", "")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all = append(b.all, j)
	b.Asked, b.Inputs = append(b.Asked, req), append(b.Inputs, string(came))
	return j.Build, nil
}

func (j *job) end(code, why string) {
	if j.Status != api.BuildRunning {
		return
	}
	j.Status, j.EndedAt = api.BuildDone, time.Now().UTC().Format(time.RFC3339Nano)
	if code != "" {
		j.Status, j.Code, j.Error, j.Hint = api.BuildFailed, code, why, api.Hint(code)
	}
	close(j.over)
}

// List is of server.Builds.
func (b *Builds) List(context.Context) (out []api.Build) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, j := range slices.Backward(b.all) {
		out = append(out, j.Build)
	}
	return out
}

func (b *Builds) find(id string) (*job, error) {
	for _, j := range b.all {
		if j.ID == id {
			return j, nil
		}
	}
	return nil, &api.Error{Code: api.CodeBuildNotFound, Message: "there is no such build"}
}

// Get is of server.Builds.
func (b *Builds) Get(_ context.Context, id string) (api.Build, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	j, err := b.find(id)
	if err != nil {
		return api.Build{}, err
	}
	return j.Build, nil
}

// Cancel is of server.Builds.
func (b *Builds) Cancel(_ context.Context, id string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	j, err := b.find(id)
	if err == nil {
		j.end(api.CodeInterrupted, "the build was cancelled")
	}
	return err
}

// Lines is of server.Builds.
func (b *Builds) Lines(ctx context.Context, id string, follow bool, f func(string) error) error {
	b.mu.Lock()
	j, err := b.find(id)
	b.mu.Unlock()
	if err != nil {
		return err
	}
	for _, l := range j.lines {
		if err := f(l); err != nil {
			return err
		}
	}
	if follow {
		select {
		case <-j.over:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
