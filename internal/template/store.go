package template

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/image"
)

// Options are what a Store needs beside its directory.
type Options struct {
	// Host finds the image of the template that is this host's own tools, and
	// with build makes it if there is none; CodeTemplateNotFound otherwise. nil:
	// there is no such template.
	Host func(ctx context.Context, build bool) (image.Image, error)
	// Maker starts makers: the program to run, which calls RunMaker. "" makes
	// images in this process, for tests.
	Maker string
	// MostLayers is how many layers a root may have; 0: 30.
	MostLayers int
}

// A Store keeps templates in the directory of a store of images. Any number of
// processes may share one. It is safe for concurrent use.
type Store struct {
	dir    string
	images *image.Store
	opt    Options
	makers chan struct{} // places of makers that read what strangers wrote
}

// maxMakers bounds the makers of one Store that run at a time: each may take
// most of a gigabyte for a small archive of very many names.
const maxMakers = 4

// New returns the store beside images. It does no I/O.
func New(images *image.Store, o Options) *Store {
	if o.MostLayers == 0 {
		o.MostLayers = 30
	}
	return &Store{dir: images.Dir(), images: images, opt: o, makers: make(chan struct{}, maxMakers)}
}

var _ Service = (*Store)(nil)

func notFound(name string) error {
	return &api.Error{Code: api.CodeTemplateNotFound, Message: fmt.Sprintf("no template %.140q", name), Hint: "berm template ls"}
}

// broken is an error of the host that a caller can do something about.
func (s *Store) broken(what string, err error) error {
	var known *api.Error
	if err == nil || errors.As(err, &known) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return &api.Error{Code: api.CodeHostFailure, Message: what + ": " + err.Error(), Hint: "check space and permissions of " + s.dir}
}

// Resolve finds the root of a name.
func (s *Store) Resolve(ctx context.Context, name string) (image.Root, error) {
	if r, ok := s.find(name); ok {
		if !s.whole(r.Root) {
			return image.Root{}, &api.Error{Code: api.CodeTemplateNotFound, Message: fmt.Sprintf("a layer of template %.140q is not here any more", name),
				Hint: "berm template rm " + r.Name + ", and make it again"}
		}
		return r.Root, nil
	}
	if name == image.Host && s.opt.Host != nil {
		img, err := s.opt.Host(ctx, true)
		return image.Root{Layers: []string{img.Name}}, err
	}
	return image.Root{}, notFound(name)
}

// List returns all templates with a name, workspaces too, in the order of names.
func (s *Store) List(context.Context) ([]api.Template, error) {
	var out []api.Template
	err := each(s, dirNames, func(_ string, _ time.Time, r record) { out = append(out, r.Template) })
	slices.SortFunc(out, func(a, b api.Template) int { return strings.Compare(a.Name, b.Name) })
	return out, s.broken("list templates", err)
}

// Get says all there is to say of one template.
func (s *Store) Get(ctx context.Context, name string) (api.Template, error) {
	if r, ok := s.find(name); ok {
		t := r.Template
		if t.Name != name {
			t.Name, t.Resolved = name, r.Name
		}
		return t, nil
	}
	if name == image.Host && s.opt.Host != nil {
		img, err := s.opt.Host(ctx, false)
		if err != nil {
			return api.Template{}, err
		}
		return HostTemplate(img), nil
	}
	return api.Template{}, notFound(name)
}

// HostTemplate describes the template of this host's own tools.
func HostTemplate(img image.Image) api.Template {
	return api.Template{Name: image.Host, SizeBytes: img.Bytes, CPU: api.DefaultCPUs, MemoryMB: api.DefaultMemoryBytes >> 20, IsGlobal: true,
		Label: "the tools of this host", Source: "host", Layers: []api.TemplateLayer{{Name: img.Name, SizeBytes: img.Bytes}}}
}

// Remove forgets a name and collects what nothing else uses.
func (s *Store) Remove(ctx context.Context, name string) error {
	r, ok := s.find(name)
	if !ok {
		if name == image.Host {
			return &api.Error{Code: api.CodeTemplateInvalid, Message: "the template host is this host's own tools", Hint: "it is made anew when they change"}
		}
		return notFound(name)
	}
	if err := os.Remove(s.path(dirNames, r.Name)); err != nil && !os.IsNotExist(err) {
		return s.broken("remove template", err)
	}
	return s.Collect(ctx)
}

// Cached is the root that a Job with this Key made. It counts as a use of it.
func (s *Store) Cached(_ context.Context, key string) (image.Root, bool) {
	r, ok := s.keyed(key)
	return r.Root, ok
}

func (s *Store) keyed(key string) (record, bool) {
	if key == "" {
		return record{}, false
	}
	path := s.path(dirKeys, key)
	var r record
	if !read(path, &r) || r.Key != key || !s.whole(r.Root) {
		return record{}, false
	}
	now := time.Now()
	os.Chtimes(path, now, now) // at worst it goes a little early
	return r, true
}

// whole says whether all layers of a root are there.
func (s *Store) whole(r image.Root) bool {
	for _, name := range r.Layers {
		if _, err := s.images.Size(name); err != nil {
			return false
		}
	}
	return len(r.Layers) > 0
}
