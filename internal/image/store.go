package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/bermhq/berm/api"
)

// A Store keeps images in a directory:
//
//	<name>.erofs       an image, never changed once it is there
//	<name>.json        its manifest
//	index/<key>.json   from the fingerprint of a source to a name
//	locks/<key>        held by whoever builds for that fingerprint
//	tmp/               unfinished images, each locked by its builder
//
// Any number of processes may share a directory. A Store is safe for
// concurrent use.
type Store struct {
	dir string
}

// Open returns the store in dir. It does no I/O; directories are made by the
// first build.
func Open(dir string) *Store { return &Store{dir: dir} }

// A Manifest says what an image is made of. It is kept beside the image.
type Manifest struct {
	Name     string    `json:"name"`
	Template string    `json:"template"`
	Bytes    int64     `json:"bytes"`
	Inodes   int       `json:"inodes"`
	Created  time.Time `json:"created"`
	Include  []string  `json:"include,omitempty"`
	Exclude  []string  `json:"exclude,omitempty"`
	LeftOut  []string  `json:"left_out,omitempty"` // optional groups that did not fit
}

var validName = regexp.MustCompile(`^[a-z0-9]{16,64}$`)

// Path is where the image of a name is, whether or not it exists. A name that
// is none gives a path that never exists.
func (s *Store) Path(name string) string {
	if !validName.MatchString(name) {
		name = "invalid"
	}
	return filepath.Join(s.dir, name+".erofs")
}

// Manifest reads the manifest of an image.
func (s *Store) Manifest(name string) (Manifest, error) {
	var m Manifest
	if !validName.MatchString(name) {
		return m, fail(api.CodeTemplateNotFound, fmt.Sprintf("no image %.80q", name), "use a template instead of an image name")
	}
	b, err := os.ReadFile(filepath.Join(s.dir, name+".json"))
	if err != nil {
		return m, fmt.Errorf("read manifest: %w", err)
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return m, fmt.Errorf("read manifest: %w", err)
	}
	return m, nil
}

// A recipe is a template that can be built: what identifies its present state,
// and how to read it into a tree.
type recipe struct {
	template string
	key      func() (string, error)
	build    func(m *meter) (built, error)
}

// built is a tree and what goes with it until the image is written.
type built struct {
	tree    *tree
	leftOut []string
	close   func()
}

// Resolve returns the image of a template: "" or "host", the path of a
// directory, or the path of a tar archive, plain or gzipped. It builds the
// image if the store has none of the template's present state; of several
// callers one builds and the others wait.
//
// Errors are *api.Error with CodeTemplateNotFound, CodeTemplateInvalid,
// CodeTemplateTooLarge, or CodeHostFailure when the store cannot be written; or
// the context's.
func (s *Store) Resolve(ctx context.Context, ref string, opt Options) (Image, error) {
	r, err := s.recipe(ref, opt)
	if err != nil {
		return Image{}, err
	}
	return s.resolve(ctx, r, opt)
}

func (s *Store) resolve(ctx context.Context, r recipe, opt Options) (Image, error) {
	key, err := r.key()
	if err != nil {
		return Image{}, err
	}
	if img, ok := s.lookup(key); ok {
		return img, nil
	}
	img, err := s.make(ctx, key, r, opt)
	var known *api.Error
	switch {
	case err == nil, errors.As(err, &known), ctx.Err() != nil:
		return img, err
	}
	return Image{}, fail(api.CodeHostFailure, fmt.Sprintf("build image of %s: %v", r.template, err),
		"check space and permissions of "+s.dir)
}

func (s *Store) recipe(ref string, opt Options) (recipe, error) {
	if err := checkPaths(opt); err != nil {
		return recipe{}, err
	}
	if ref == "" || ref == Host {
		return hostRecipe(opt), nil
	}
	path, err := filepath.Abs(ref)
	if err != nil {
		return recipe{}, fail(api.CodeTemplateNotFound, err.Error(), "give an absolute path")
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return recipe{}, fail(api.CodeTemplateNotFound, fmt.Sprintf("no template %q", ref),
			`use "host", a directory, or a .tar or .tar.gz file of a root filesystem`)
	case err != nil:
		return recipe{}, fail(api.CodeTemplateNotFound, err.Error(), "check the path and its permissions")
	case info.IsDir():
		return dirRecipe(path, opt, s), nil
	case info.Mode().IsRegular():
		return tarRecipe(path, opt, s), nil
	}
	return recipe{}, fail(api.CodeTemplateInvalid, fmt.Sprintf("template %q is neither a directory nor a file", ref),
		"use a directory, or a .tar or .tar.gz file")
}

// lookup answers from the index: one small file read, one stat.
func (s *Store) lookup(key string) (Image, bool) {
	var img Image
	b, err := os.ReadFile(s.indexPath(key))
	if err != nil || json.Unmarshal(b, &img) != nil || !validName.MatchString(img.Name) {
		return Image{}, false
	}
	img.Path, img.Built = s.Path(img.Name), false
	info, err := os.Lstat(img.Path)
	if err != nil || !info.Mode().IsRegular() || info.Size() != img.Bytes {
		return Image{}, false
	}
	return img, true
}

func (s *Store) indexPath(key string) string {
	return filepath.Join(s.dir, "index", key+".json")
}

// make builds under the lock of key, unless that was done meanwhile.
func (s *Store) make(ctx context.Context, key string, r recipe, opt Options) (Image, error) {
	for _, sub := range []string{"index", "locks", "tmp"} {
		if err := os.MkdirAll(filepath.Join(s.dir, sub), 0o700); err != nil {
			return Image{}, err
		}
	}
	m := newMeter(ctx, opt.Progress)
	unlock, err := lockFile(ctx, filepath.Join(s.dir, "locks", key), func() { m.phase(PhaseWait, 0) })
	if err != nil {
		return Image{}, err
	}
	defer unlock()
	if img, ok := s.lookup(key); ok {
		return img, nil
	}
	s.sweep()
	m.phase(PhaseScan, 0)
	b, err := r.build(m)
	if err != nil {
		return Image{}, err
	}
	if b.close != nil {
		defer b.close()
	}
	p, err := layOut(b.tree)
	if err != nil {
		return Image{}, fail(api.CodeTemplateInvalid, fmt.Sprintf("template %s: %v", r.template, err), "repair or exclude it with --template-exclude")
	}
	if limit := maxBytes(r.template, opt); p.blocks*blockSize > limit {
		return Image{}, tooLarge(r.template, p.blocks*blockSize, limit, b.tree)
	}
	img, err := s.commit(p, m, Manifest{Template: r.template, Include: opt.Include, Exclude: opt.Exclude, LeftOut: b.leftOut})
	if err != nil {
		return Image{}, err
	}
	return img, s.writeJSON(s.indexPath(key), img)
}

// commit writes the image under a temporary name and then gives it its own.
func (s *Store) commit(p *plan, m *meter, man Manifest) (Image, error) {
	f, err := s.temp()
	if err != nil {
		return Image{}, err
	}
	defer f.discard()
	if err := p.write(f.File, m); err != nil {
		return Image{}, err
	}
	man.Bytes, man.Inodes, man.Created = p.blocks*blockSize, len(p.nodes), time.Now().UTC().Truncate(time.Second)
	if man.Name, err = contentName(f, man.Bytes, m); err != nil {
		return Image{}, err
	}
	if err := f.Chmod(0o444); err != nil {
		return Image{}, err
	}
	if err := s.writeJSON(filepath.Join(s.dir, man.Name+".json"), man); err != nil {
		return Image{}, err
	}
	// What is there already may be in use, and is the same.
	if info, err := os.Lstat(s.Path(man.Name)); err != nil || info.Size() != man.Bytes {
		if err := os.Rename(f.Name(), s.Path(man.Name)); err != nil {
			return Image{}, err
		}
	}
	return Image{Name: man.Name, Path: s.Path(man.Name), Template: man.Template, Bytes: man.Bytes, Built: true, LeftOut: man.LeftOut}, nil
}

// writeJSON replaces a small file in one step.
func (s *Store) writeJSON(path string, v any) error {
	f, err := s.temp()
	if err != nil {
		return err
	}
	defer f.discard()
	e := json.NewEncoder(f)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

func maxBytes(template string, opt Options) int64 {
	switch {
	case opt.MaxBytes > 0:
		return opt.MaxBytes
	case template == Host:
		return DefaultMaxHostBytes
	}
	return DefaultMaxBytes
}
