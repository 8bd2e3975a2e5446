package image

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/bermhq/berm/api"
)

// An Output is an image that somebody else writes. It has no name before Keep,
// and does not outlive its maker: what a crash leaves of it, the next sweep
// takes.
type Output struct {
	File *os.File
	temp tempFile
	s    *Store
}

// Output makes an empty one. Discard must be called, after Keep too.
func (s *Store) Output() (*Output, error) {
	if err := s.dirs(); err != nil {
		return nil, err
	}
	f, err := s.temp()
	if err != nil {
		return nil, err
	}
	return &Output{File: f.File, temp: f, s: s}, nil
}

// Discard removes what was not kept.
func (o *Output) Discard() { o.temp.discard() }

// Keep names what was written by its content and puts it in the store, once hold
// has agreed to the name. Nothing of it is believed: a name is the digest of
// these bytes.
func (o *Output) Keep(ctx context.Context, man Manifest, progress func(Progress), hold func(name string) error) (Image, error) {
	info, err := o.File.Stat()
	if err != nil {
		return Image{}, err
	}
	man.Bytes = info.Size()
	if man.Bytes == 0 || man.Bytes%blockSize != 0 {
		return Image{}, fail(api.CodeTemplateInvalid, fmt.Sprintf("an image of %d bytes was made", man.Bytes), "run the same command again")
	}
	man.Created = time.Now().UTC().Truncate(time.Second)
	return o.s.keep(o.temp, newMeter(ctx, progress), man, hold)
}

// Scratch is a file without a name in the store's directory.
func (s *Store) Scratch() (*os.File, error) {
	if err := s.dirs(); err != nil {
		return nil, err
	}
	f, err := s.temp()
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		f.Close()
		return nil, err
	}
	return f.File, nil
}

// Dir is where files of a caller may lie for the time of its work.
func (s *Store) Dir() string { return s.dir }

// dirs makes what the store needs.
func (s *Store) dirs() error {
	for _, sub := range []string{"index", "locks", "tmp"} {
		if err := os.MkdirAll(filepath.Join(s.dir, sub), 0o700); err != nil {
			return err
		}
	}
	return nil
}

// Size is how large an image is; an error if there is none of that name.
func (s *Store) Size(name string) (int64, error) {
	info, err := os.Lstat(s.Path(name))
	if err == nil && !info.Mode().IsRegular() {
		err = os.ErrNotExist
	}
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}
