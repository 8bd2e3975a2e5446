package template

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/image"
)

// Do makes what a Job asks for. What it made stays only if it is whole: after an
// error nothing is left, after a crash nothing that the next collection does not
// take.
func (s *Store) Do(ctx context.Context, job Job, in io.Reader, progress func(api.TemplateProgress)) (Made, error) {
	made, err := s.do(ctx, job, in, progress)
	if err != nil { // layers that were good belong to nobody now
		s.Collect(context.WithoutCancel(ctx))
	}
	return made, s.broken("make template", err)
}

func (s *Store) do(ctx context.Context, job Job, in io.Reader, progress func(api.TemplateProgress)) (Made, error) {
	if err := s.check(job); err != nil {
		return Made{}, err
	}
	p, err := s.pin()
	if err != nil {
		return Made{}, err
	}
	defer p.release()
	if r, ok := s.keyed(job.Key); ok && job.Kind != JobDebs { // those may be of other versions today
		if err := p.add(r.Root.Layers...); err != nil {
			return Made{}, err
		}
		return s.finish(job, work{root: r.Root, t: r.Template})
	}
	w := work{s: s, job: job, pin: p, progress: progress}
	switch job.Kind {
	case JobImport:
		err = w.archive(ctx, in)
	case JobLayer:
		err = w.layer(ctx, in)
	case JobTag:
		err = w.tag(ctx)
	case JobPull:
		err = w.pull(ctx)
	case JobDebs:
		err = w.debs(ctx)
	default:
		err = &api.Error{Code: api.CodeBadRequest, Message: fmt.Sprintf("%.40q is no kind of work on templates", job.Kind), Hint: "berm help template"}
	}
	if err == nil {
		err = w.squash(ctx)
	}
	if err != nil {
		return Made{}, err
	}
	return s.finish(job, w)
}

// check refuses a Job that cannot end well before it costs anything.
func (s *Store) check(job Job) error {
	if job.Name != "" {
		if err := checkName(job.Name); err != nil {
			return err
		}
		if job.Name == image.Host {
			return &api.Error{Code: api.CodeTemplateInvalid, Message: "the name host is taken by this host's own tools", Hint: "take another name"}
		}
		if !job.Replace {
			var r record
			if read(s.path(dirNames, job.Name), &r) && r.Name == job.Name {
				return exists(job.Name)
			}
		}
	}
	if job.Below != nil && !s.whole(*job.Below) {
		return &api.Error{Code: api.CodeTemplateNotFound, Message: "what this goes on top of is not here any more", Hint: "make it again"}
	}
	for _, kv := range job.Config.Env {
		if name, _, ok := strings.Cut(kv, "="); !ok || name == "" || strings.ContainsRune(kv, 0) {
			return &api.Error{Code: api.CodeBadRequest, Message: fmt.Sprintf("env %.60q is no NAME=VALUE", kv), Hint: "berm help template"}
		}
	}
	return nil
}

func exists(name string) error {
	return &api.Error{Code: api.CodeTemplateExists, Message: fmt.Sprintf("there is a template %.140q already", name),
		Hint: "take another name, or say --replace"}
}

// work is one Job on its way.
type work struct {
	s        *Store
	job      Job
	pin      *pin
	progress func(api.TemplateProgress)
	item     string // what is worked on, for progress

	root image.Root
	t    api.Template
}

// archive makes a root of what an archive holds: a file system, or an image as
// docker save or an OCI layout has it.
func (w *work) archive(ctx context.Context, in io.Reader) error {
	f, done, err := w.s.spooled(ctx, in, w.limit(), w.say)
	if err != nil {
		return err
	}
	defer done()
	w.t.Source = "archive"
	plain, m, done, err := w.plain(ctx, f, true)
	if err != nil {
		return err
	}
	defer done()
	if m.Image == nil {
		return w.one(ctx, task{Kind: taskRoot, Last: true}, plain, "")
	}
	img := m.Image
	w.t.Digest, w.t.Platform, w.t.Config = img.Digest, img.Platform, img.Config
	if img.Ref != "" {
		w.t.Source = "archive of " + img.Ref
	}
	for i := range img.Layers {
		w.item = fmt.Sprintf("layer %d of %d", i+1, img.Layers)
		if err := w.one(ctx, task{Kind: taskLayer, Pick: i + 1, Platform: w.job.Platform}, plain, ""); err != nil {
			return err
		}
	}
	w.item = ""
	return w.one(ctx, task{Kind: taskGuest, Last: true}, nil, "guest")
}

// plain is an archive without compression, and what a maker says of it.
func (w *work) plain(ctx context.Context, f *os.File, images bool) (*os.File, made, func(), error) {
	spool, err := w.s.images.Scratch()
	if err != nil {
		return nil, made{}, nil, err
	}
	m, err := w.s.make(ctx, task{Kind: taskPlain, MaxBytes: w.limit(), Platform: w.job.Platform, Images: images}, files{archive: f, spool: spool}, w.say)
	if err != nil {
		spool.Close()
		return nil, m, nil, err
	}
	if m.Spooled {
		return spool, m, func() { spool.Close() }, nil
	}
	spool.Close()
	return f, m, func() {}, nil
}

// layer makes a layer of changes on top of what is below.
func (w *work) layer(ctx context.Context, in io.Reader) error {
	if w.job.Below != nil {
		w.root = *w.job.Below
		w.root.Layers = slices.Clone(w.root.Layers)
	}
	f, done, err := w.s.spooled(ctx, in, w.limit(), w.say)
	if err != nil {
		return err
	}
	defer done()
	w.t.Source = "build"
	plain, _, done, err := w.plain(ctx, f, false)
	if err != nil {
		return err
	}
	defer done()
	return w.one(ctx, task{Kind: taskLayer, Last: true, Prefix: w.job.Prefix, Owner: w.job.Owner}, plain, "")
}

// tag gives what is below a name, and defaults.
func (w *work) tag(ctx context.Context) error {
	if w.job.Below == nil {
		return &api.Error{Code: api.CodeBadRequest, Message: "nothing to give a name to", Hint: "say what root it is"}
	}
	w.root = *w.job.Below
	w.root.Layers = slices.Clone(w.root.Layers)
	if err := w.pin.add(w.root.Layers...); err != nil {
		return err
	}
	w.t.Source = "build"
	below, done, err := w.s.open(w.root.Layers)
	if err != nil {
		return err
	}
	defer done()
	made, err := w.s.make(ctx, task{Kind: taskLook, User: w.user(), MaxBytes: w.limit()}, files{below: below}, w.say)
	if err != nil {
		return err
	}
	w.account(made.Account)
	return nil
}

func (w *work) limit() int64 { return cmp.Or(w.job.MaxBytes, image.DefaultMaxBytes) }

func (w *work) say(p api.TemplateProgress) {
	if w.progress != nil {
		p.Item = cmp.Or(p.Item, w.item)
		w.progress(p)
	}
}

// one makes one image on top of the root so far and adds it. key, where it is
// set, says what it is made of, so that it is made once.
func (w *work) one(ctx context.Context, t task, archive *os.File, key string) error {
	made, name, err := w.image(ctx, t, archive, w.root.Layers, key)
	return w.add(t, made, name, err)
}

// add puts an image that a task made on top of the root.
func (w *work) add(t task, made made, name string, err error) error {
	if err != nil {
		return err
	}
	w.root.Layers = append(w.root.Layers, name)
	w.note(made.Dropped)
	if t.Kind != taskLayer || t.Last {
		w.account(made.Account)
	}
	return nil
}

// squash makes one of the lowest layers where there are too many for a sandbox:
// of so many that the next ones have room again.
func (w *work) squash(ctx context.Context) error {
	if len(w.root.Layers) <= w.s.opt.MostLayers {
		return nil
	}
	n := len(w.root.Layers) - w.s.opt.MostLayers*2/3 + 1
	_, name, err := w.image(ctx, task{Kind: taskSquash}, nil, w.root.Layers[:n], "squash")
	if err != nil {
		return err
	}
	w.root.Layers = append([]string{name}, w.root.Layers[n:]...)
	return nil
}

// image has a task make one image over others, unless that was done before.
func (w *work) image(ctx context.Context, t task, archive *os.File, over []string, key string) (made, string, error) {
	fail := func(err error) (made, string, error) { return made{}, "", err }
	if m, name, ok, err := w.known(&t, key, over); ok || err != nil {
		return m, name, err
	}
	if err := w.pin.add(over...); err != nil {
		return fail(err)
	}
	below, done, err := w.s.open(over)
	if err != nil {
		return fail(err)
	}
	defer done()
	out, err := w.s.images.Output()
	if err != nil {
		return fail(err)
	}
	defer out.Discard()
	spool, err := w.s.images.Scratch()
	if err != nil {
		return fail(err)
	}
	defer spool.Close()
	m, err := w.s.make(ctx, t, files{archive: archive, spool: spool, out: out.File, below: below}, w.say)
	if err != nil {
		return fail(err)
	}
	img, err := w.s.keep(ctx, out, image.Manifest{Template: layerTemplate, Inodes: m.Inodes}, w)
	if err != nil {
		return fail(err)
	}
	if key != "" {
		err = w.s.write(w.chain(t, key, over), chain{img.Name, m.Made})
	}
	return m, img.Name, err
}

// chain is where it is noted what a task made over others.
func (w *work) chain(t task, key string, over []string) string {
	return w.s.path(dirChains, append([]string{t.Kind, chainVersion, key, t.User}, over...)...)
}

// known completes a task, and finds what it made if that was done before and is
// still here. It is pinned then.
func (w *work) known(t *task, key string, over []string) (m made, name string, ok bool, err error) {
	t.MaxBytes = w.limit()
	if t.Last {
		t.User = w.user()
	}
	var c chain
	if key == "" || !read(w.chain(*t, key, over), &c) {
		return m, "", false, nil
	}
	if err := w.pin.add(c.Layer); err != nil {
		return m, "", false, err
	}
	_, gone := w.s.images.Size(c.Layer)
	return made{Made: c.Made}, c.Layer, gone == nil, nil
}

// keep names an image and pins it, with nobody collecting in between.
func (s *Store) keep(ctx context.Context, out *image.Output, man image.Manifest, w *work) (image.Image, error) {
	img, err := out.Keep(ctx, man, func(p image.Progress) {
		w.say(api.TemplateProgress{Phase: p.Phase, Done: p.Done, Total: p.Total})
	}, func(name string) error { return w.pin.add(name) })
	return img, err
}

// chainVersion changes when the same archive on the same layers must become
// another image.
const chainVersion = "1"

// layerTemplate marks images that a Store has made, in their manifest.
const layerTemplate = "layer"

// note says what of an archive an image could not hold.
func (w *work) note(d image.Dropped) {
	for _, n := range []struct {
		count int
		what  string
	}{
		{d.Devices, "device nodes, pipes or sockets left out"},
		{d.Attributes, "files lost their extended attributes"},
	} {
		if n.count > 0 {
			w.t.Notes = append(w.t.Notes, fmt.Sprintf("%d %s", n.count, n.what))
		}
	}
}

// user is who the root's commands run as, as far as somebody said so.
func (w *work) user() string {
	switch {
	case w.job.Config.User != "":
		return w.job.Config.User
	case w.t.Config.User != "":
		return w.t.Config.User
	}
	return w.root.Defaults.User
}

// account settles the defaults of the root: what was below, what the source
// says, what the Job says, each over the one before.
func (w *work) account(a image.Account) {
	d := &w.root.Defaults
	granted := isRoot(w.job.Config.User) || w.job.Config.User == "" && w.t.Config.User == "" && d.Root
	d.TemplateConfig = laid(laid(d.TemplateConfig, w.t.Config), w.job.Config)
	d.UID, d.GID, d.Home, d.Root = a.UID, a.GID, a.Home, false
	if a.UID != 0 {
		return
	}
	if granted {
		d.Root = true
		return
	}
	w.t.Notes = append(w.t.Notes, "its user "+d.User+" was not granted: commands run as the agent (--user root grants it)")
	d.User, d.UID, d.GID, d.Home = "", 1000, 1000, "/home/agent"
}

// isRoot says that who wrote a user meant root. Another name that an image's own
// list of users gives root's number is the image's word, not theirs.
func isRoot(user string) bool {
	name, _, _ := strings.Cut(user, ":")
	return name == "root" || name == "0"
}

// laid lays one configuration over another, field by field; of variables each
// by its name.
func laid(c, over api.TemplateConfig) api.TemplateConfig {
	c.Env = env(c.Env, over.Env)
	c.User = cmp.Or(over.User, c.User)
	c.Workdir = cmp.Or(over.Workdir, c.Workdir)
	if over.Entrypoint != nil {
		c.Entrypoint = over.Entrypoint
	}
	if over.Cmd != nil {
		c.Cmd = over.Cmd
	}
	return c
}

func env(base, over []string) []string {
	out := slices.Clone(base)
	for _, kv := range over {
		name, _, _ := strings.Cut(kv, "=")
		i := slices.IndexFunc(out, func(have string) bool { return strings.HasPrefix(have, name+"=") })
		if i < 0 {
			out = append(out, kv)
		} else {
			out[i] = kv
		}
	}
	return out
}

// finish keeps the root by its name and by its key.
func (s *Store) finish(job Job, w work) (Made, error) {
	t := w.t
	t.Name, t.Resolved = job.Name, ""
	t.CPU, t.MemoryMB, t.IsGlobal = api.DefaultCPUs, api.DefaultMemoryBytes>>20, true
	t.CreatedAt = time.Now().UTC().Format(time.RFC3339)
	t.Source = cmp.Or(job.Source, t.Source)
	t.Platform = cmp.Or(t.Platform, "linux/"+runtime.GOARCH)
	t.Config, t.Root = w.root.Defaults.TemplateConfig, w.root.Defaults.Root
	t.Layers, t.SizeBytes = nil, 0
	for _, name := range w.root.Layers {
		n, err := s.images.Size(name)
		if err != nil {
			return Made{}, err
		}
		t.Layers = append(t.Layers, api.TemplateLayer{Name: name, SizeBytes: n})
		t.SizeBytes += n
	}
	notes := map[string]bool{}
	for _, n := range t.Notes {
		notes[n] = true
	}
	t.Notes = slices.Sorted(maps.Keys(notes))
	r := record{Name: job.Name, Template: t, Root: w.root}
	if job.Key != "" {
		r := r
		r.Name, r.Template.Name, r.Key = "", "", job.Key
		if err := s.write(s.path(dirKeys, job.Key), r); err != nil {
			return Made{}, err
		}
	}
	if job.Name != "" {
		if err := s.write(s.path(dirNames, job.Name), r); err != nil {
			return Made{}, err
		}
	}
	return Made{Template: t, Root: w.root}, nil
}
