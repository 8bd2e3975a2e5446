package image

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// GC removes the images for which keep says no, with their manifests, and index
// entries that lead nowhere. An image that a sandbox has open stays readable
// for it. An image that is being resolved by another process meanwhile is safe
// only if keep says so; a missing one is built again at its next use.
func (s *Store) GC(keep func(name string) bool) error {
	list, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	remove := func(p string) {
		if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	for _, e := range list {
		name, ok := strings.CutSuffix(e.Name(), ".erofs")
		if ok && validName.MatchString(name) && !keep(name) {
			remove(s.Path(name))
			remove(filepath.Join(s.dir, name+".json"))
		}
		if name, ok := strings.CutSuffix(e.Name(), ".json"); ok && validName.MatchString(name) {
			info, err := e.Info()
			if _, gone := s.Size(name); gone != nil && err == nil && time.Since(info.ModTime()) > time.Minute {
				remove(filepath.Join(s.dir, e.Name())) // its builder died before the image had its name
			}
		}
	}
	index, _ := os.ReadDir(filepath.Join(s.dir, "index"))
	for _, e := range index {
		if key, ok := strings.CutSuffix(e.Name(), ".json"); ok {
			if _, ok := s.lookup(key); !ok {
				remove(s.indexPath(key))
			}
		}
	}
	s.sweep()
	return errors.Join(errs...)
}

// Sweep removes what builders that were killed have left. It costs one look
// where there is nothing.
func (s *Store) Sweep() { s.sweep() }
