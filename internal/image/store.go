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

var validName = regexp.MustCompile(`^[a-z0-9]{16,64}$`)

// Path is where the image of a name is, whether or not it exists. A name that
// is none gives a path that never exists.
func (s *Store) Path(name string) string {
	if !validName.MatchString(name) {
		name = "invalid"
	}
	return filepath.Join(s.dir, name+".erofs")
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

// Find is Resolve where the store has the image; it builds none.
func (s *Store) Find(ref string, opt Options) (Image, bool) {
	r, err := s.recipe(ref, opt)
	if err != nil {
		return Image{}, false
	}
	key, err := r.key()
	if err != nil {
		return Image{}, false
	}
	return s.lookup(key)
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
	if err := s.dirs(); err != nil {
		return Image{}, err
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

func maxBytes(template string, opt Options) int64 {
	switch {
	case opt.MaxBytes > 0:
		return opt.MaxBytes
	case template == Host:
		return DefaultMaxHostBytes
	}
	return DefaultMaxBytes
}
