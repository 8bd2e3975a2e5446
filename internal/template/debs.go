package template

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/deb"
	"github.com/bermhq/berm/internal/image"
)

// dirDebs holds packages that were fetched.
const dirDebs = "debs"

// keepDebs is how long a package stays that no Job has used.
const keepDebs = 14 * 24 * time.Hour

// debs makes a root of packages: what they are is found out and fetched here,
// and a maker unpacks them. Which versions there are today is part of what the
// root is found again by.
func (w *work) debs(ctx context.Context) error {
	if len(w.job.Debs) == 0 {
		return &api.Error{Code: api.CodeBadRequest, Message: "no packages were named", Hint: "berm template build NAME --deb python3,git"}
	}
	dir, done, err := w.s.room()
	if err != nil {
		return err
	}
	defer done()
	opt := deb.Options{Mirror: w.job.Mirror, Suite: w.job.Suite, Cache: filepath.Join(w.s.dir, dirDebs), Slim: true, Progress: w.say}
	if len(w.job.Keyring) > 0 {
		opt.Keyring = filepath.Join(dir, "keyring")
		if err := os.WriteFile(opt.Keyring, w.job.Keyring, 0o600); err != nil {
			return err
		}
	}
	a, err := deb.Open(ctx, opt)
	if err != nil {
		return err
	}
	set, err := a.Resolve(w.job.Debs)
	if err != nil {
		return err
	}
	b, err := json.Marshal(set)
	if err != nil {
		return err
	}
	w.t.Source = fmt.Sprintf("%d packages of %s", len(set.Packages), set.Suite)
	t := task{Kind: taskDebs, Last: true, Set: b}
	key := "debs " + set.Key()
	if made, name, ok, err := w.known(&t, key, nil); ok || err != nil {
		return w.add(t, made, name, err)
	}
	archive, err := w.s.gather(ctx, a, set)
	if err != nil {
		return err
	}
	defer archive.Close()
	w.say(api.TemplateProgress{Phase: "unpack"})
	return w.one(ctx, t, archive, key)
}

// gather fetches the packages of a set and puts them in one file, one after the
// other: a process has only so many descriptors.
func (s *Store) gather(ctx context.Context, a *deb.Archive, set deb.Set) (_ *os.File, err error) {
	list, err := a.Fetch(ctx, set)
	defer func() {
		for _, f := range list {
			f.Close()
		}
	}()
	if err != nil {
		return nil, err
	}
	out, err := s.images.Scratch()
	if err != nil {
		return nil, err
	}
	for i, f := range list {
		n, err := io.Copy(out, io.NewSectionReader(f, 0, set.Packages[i].Size))
		if err == nil && n != set.Packages[i].Size {
			err = io.ErrUnexpectedEOF
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			out.Close()
			return nil, err
		}
	}
	return out, nil
}

// unpack writes the root of a set of packages to the spool, as the archive of k.
func (t task) unpack(k *image.Making, f files) error {
	var set deb.Set
	if err := json.Unmarshal(t.Set, &set); err != nil {
		return err
	}
	var debs []io.ReaderAt
	at := int64(0)
	for _, p := range set.Packages {
		if p.Size < 0 {
			return errors.New("a package of less than nothing")
		}
		debs = append(debs, io.NewSectionReader(f.archive, at, p.Size))
		at += p.Size
	}
	w := &room{f: f.spool, left: t.MaxBytes + t.MaxBytes/4 + 64<<20}
	if err := deb.WriteTar(set, debs, w); err != nil {
		return err
	}
	k.Taken = w.n
	return k.Open(f.spool)
}

// room is a file with only so much of it.
type room struct {
	f       *os.File
	n, left int64
}

func (r *room) Write(b []byte) (int, error) {
	if r.left -= int64(len(b)); r.left < 0 {
		return 0, &api.Error{Code: api.CodeTemplateTooLarge, Message: "the packages unpack to more than the limit", Hint: "name fewer, or raise the limit with --template-max"}
	}
	n, err := r.f.WriteAt(b, r.n)
	r.n += int64(n)
	return n, err
}
