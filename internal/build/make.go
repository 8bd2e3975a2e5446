package build

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/build/dockerfile"
	"github.com/bermhq/berm/internal/image"
	"github.com/bermhq/berm/internal/policy"
	"github.com/bermhq/berm/internal/sandbox"
	"github.com/bermhq/berm/internal/template"
	"github.com/bermhq/berm/recipes"
)

// A plan is a request that was understood.
type plan struct {
	source string // for the log: dockerfile, debs, ...
	file   *dockerfile.File
	run    []string // lines of a recipe
}

var validName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/:@-]{0,127}$`)

func bad(format string, args ...any) error {
	return &api.Error{Code: api.CodeBadRequest, Message: "build: " + fmt.Sprintf(format, args...), Hint: "berm help template"}
}

// check refuses what cannot be built, before anything is read or done.
func (b *Builds) check(ctx context.Context, req *api.BuildRequest, in Input) (p plan, err error) {
	if req.Recipe != "" {
		if p.run, err = b.recipe(req); err != nil {
			return p, err
		}
	}
	var sources []string
	for _, s := range []struct {
		name string
		is   bool
	}{
		{"image_ref", req.ImageRef != ""}, {"from", req.From != ""}, {"debs", len(req.Debs) > 0},
		{"dockerfile", req.Dockerfile != ""}, {"rootfs", in.Rootfs != nil},
	} {
		if s.is {
			sources = append(sources, s.name)
		}
	}
	switch {
	case len(sources) == 0:
		return p, bad("it is said of nothing what the template is made from: debs, from, image_ref, a dockerfile, a recipe or an archive")
	case len(sources) > 1:
		return p, bad("%s: only one of them can be what it is made from", strings.Join(sources, " and "))
	case req.Dockerfile != "" && len(req.Pips)+len(req.Npms) > 0:
		return p, bad("pips and npms go into the Dockerfile: RUN pip install ...")
	case in.Context != nil && req.Dockerfile == "":
		return p, bad("a context goes with a Dockerfile only")
	}
	p.source = cmp.Or(req.Recipe, sources[0])
	if req.Name = cmp.Or(req.Name, req.ImageRef); !validName.MatchString(req.Name) || strings.HasPrefix(req.Name, "workspace/") || req.Name == image.Host {
		return p, bad("%.60q cannot be the name of a template", req.Name)
	}
	for _, list := range [][]string{req.Pips, req.Npms} {
		for _, w := range list {
			if w == "" || w[0] == '-' || strings.ContainsAny(w, "\x00\n\r") || len(w) > 500 {
				return p, bad("%.60q is not a package", w)
			}
		}
	}
	if err := environment(req.Config.Env); err != nil {
		return p, err
	}
	if req.Dockerfile != "" {
		if p.file, err = dockerfile.Parse(req.Dockerfile); err != nil {
			return p, &api.Error{Code: api.CodeTemplateInvalid, Message: "Dockerfile:" + err.Error(), Hint: "mend that line"}
		}
	}
	if !req.Replace {
		if _, err := b.opt.Templates.Get(ctx, req.Name); err == nil {
			return p, &api.Error{Code: api.CodeTemplateExists, Message: fmt.Sprintf("there is a template %q already", req.Name), Hint: "build it with --replace, or under another name"}
		}
	}
	return p, nil
}

func environment(env []string) error {
	for _, kv := range env {
		if k, _, ok := strings.Cut(kv, "="); !ok || k == "" || strings.ContainsRune(kv, 0) {
			return bad("env: %.60q is not NAME=value", kv)
		}
	}
	return nil
}

// recipe lays a recipe under what a request says, and returns its lines.
func (b *Builds) recipe(req *api.BuildRequest) ([]string, error) {
	r, err := recipes.Read(req.Recipe)
	if err != nil {
		return nil, &api.Error{Code: api.CodeTemplateNotFound, Message: fmt.Sprintf("recipe %.60q: %v", req.Recipe, err), Hint: "one of " + strings.Join(recipes.Names(), ", ")}
	}
	req.Name = cmp.Or(req.Name, req.Recipe)
	if req.From == "" && req.ImageRef == "" {
		req.Debs = slices.Concat(r.Debs, req.Debs)
	}
	req.Pips, req.Npms = slices.Concat(r.Pips, req.Pips), slices.Concat(r.Npms, req.Npms)
	req.Config.Env = slices.Concat(r.Env, req.Config.Env)
	req.Config.User, req.Config.Workdir = cmp.Or(req.Config.User, r.User), cmp.Or(req.Config.Workdir, r.Workdir)
	if req.Config.Entrypoint == nil && req.Config.Cmd == nil {
		req.Config.Cmd = r.Cmd
	}
	return r.Run, nil
}

// A work is one build while it is being made.
type work struct {
	b      *Builds
	j      *job
	limits api.Limits
	allow  []string // presets and targets of steps that run something, once they are known
	stages []*stage
	steps  int // there will be
	step   int
	noted  map[string]bool
}

// make makes the template of a job.
func (b *Builds) make(ctx context.Context, j *job) (api.Template, error) {
	w := &work{b: b, j: j, limits: laid(j.req.Limits), noted: map[string]bool{}}
	req := j.req
	switch {
	case j.rootfs != nil:
		return w.do(ctx, template.Job{Kind: template.JobImport, Config: req.Config, Platform: req.Platform}, j.rootfs)
	case req.ImageRef != "" && len(req.Pips)+len(req.Npms) == 0:
		return w.do(ctx, w.pull(req.ImageRef, req.Platform, req.PlainHTTP), nil)
	}
	var st *stage
	var err error
	if j.plan.file != nil {
		st, err = w.dockerfile(ctx, j.plan.file)
	} else {
		st, err = w.packages(ctx)
	}
	if err != nil {
		return api.Template{}, err
	}
	st.overlay(req.Config)
	root := st.root
	root.Defaults = image.Defaults{TemplateConfig: st.config()}
	return w.do(ctx, template.Job{Kind: template.JobTag, Below: &root, Config: root.Defaults.TemplateConfig}, nil)
}

// laid is the step's limits with what the request says.
func laid(l api.Limits) api.Limits {
	d := stepLimits
	return api.Limits{
		TimeoutSeconds: cmp.Or(l.TimeoutSeconds, d.TimeoutSeconds), MemoryBytes: cmp.Or(l.MemoryBytes, d.MemoryBytes), CPUs: cmp.Or(l.CPUs, d.CPUs),
		Pids: cmp.Or(l.Pids, d.Pids), DiskBytes: cmp.Or(l.DiskBytes, d.DiskBytes), OutputBytes: cmp.Or(l.OutputBytes, d.OutputBytes),
	}
}

// do is the job that gives the template its name.
func (w *work) do(ctx context.Context, job template.Job, in interface{ Read([]byte) (int, error) }) (api.Template, error) {
	job.Name, job.Replace = w.j.req.Name, w.j.req.Replace
	if job.Kind == template.JobTag {
		job.Source = "build"
	}
	if err := ctx.Err(); err != nil {
		return api.Template{}, err
	}
	made, err := w.b.opt.Templates.Do(ctx, job, in, w.j.progress)
	if err != nil {
		return api.Template{}, err
	}
	t := made.Template
	w.j.log.add(fmt.Sprintf("Made %s: %d MiB in %s.", t.Name, (t.SizeBytes+1<<20-1)>>20, layers(len(made.Root.Layers))))
	return t, nil
}

func (w *work) pull(ref, platform string, plain bool) template.Job {
	return template.Job{Kind: template.JobPull, Ref: ref, Platform: platform, PlainHTTP: plain, Config: w.j.req.Config}
}

// key is the name of a result by what it was made from.
func (w *work) key(parts ...any) string {
	if w.j.req.NoCache {
		parts = append(parts, w.j.id)
	}
	raw, err := json.Marshal(append([]any{"berm step 1"}, parts...))
	if err != nil {
		raw = []byte(w.j.id + fmt.Sprint(parts...)) // none of them can fail; it is a key of its own then
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// base is the root that FROM names: a template, or an image that is fetched.
func (w *work) base(ctx context.Context, name, platform string) (image.Root, error) {
	caller := sandbox.CallerOf(ctx)
	if err := policy.Template(caller.Ceiling, name, name).Err(); err != nil {
		return image.Root{}, err
	}
	root, err := w.b.opt.Templates.Resolve(ctx, name)
	var ae *api.Error
	if err == nil || !errors.As(err, &ae) || ae.Code != api.CodeTemplateNotFound {
		return root, err
	}
	w.j.log.add("Pulling " + name)
	job := w.pull(name, platform, w.j.req.PlainHTTP)
	job.Config, job.Key = api.TemplateConfig{}, w.key("pull", name, platform)
	made, err := w.b.opt.Templates.Do(ctx, job, nil, w.j.progress)
	if errors.As(err, &ae) && slices.Contains(recipes.Names(), name) {
		e := *ae
		e.Hint = "berm template build " + name + " makes the template of that name; if the image is meant: " + e.Hint
		err = &e
	}
	return made.Root, err
}

// empty is what FROM scratch begins with: the places every guest has.
func (w *work) empty(ctx context.Context) (image.Root, error) {
	made, err := w.b.opt.Templates.Do(ctx, template.Job{Kind: template.JobLayer, Key: w.key("scratch")}, strings.NewReader(string(make([]byte, 1024))), nil)
	return made.Root, err
}

// note says something once.
func (w *work) note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if !w.noted[text] {
		w.noted[text] = true
		w.j.log.add("note: " + text)
	}
}

func layers(n int) string {
	if n == 1 {
		return "one layer"
	}
	return fmt.Sprintf("%d layers", n)
}
