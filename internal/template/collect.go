package template

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/bermhq/berm/internal/deb"
	"github.com/bermhq/berm/internal/image"
)

// What is kept only because it was made before, and may be made again.
const (
	keepKeys  = 30 * 24 * time.Hour // since its last use
	keepBytes = 16 << 30            // of layers that only keys hold
)

// Collect removes the layers that no template, no recent key and no Job under
// way holds. A sandbox that runs on one has it open, and keeps it.
func (s *Store) Collect(ctx context.Context) error { return s.collect(ctx, keepKeys, keepBytes) }

// CollectDue is Collect where a Job has died, or nobody has collected for an
// hour. It costs a few looks where there is nothing to do.
func (s *Store) CollectDue(ctx context.Context) error {
	info, err := os.Stat(filepath.Join(s.dir, collectLock))
	if err != nil {
		return nil // no template was ever made here
	}
	due := time.Since(info.ModTime()) > time.Hour
	for _, dir := range []string{dirPins, dirWork} {
		if list, err := os.ReadDir(filepath.Join(s.dir, dir)); err == nil && len(list) > 0 {
			due = true
		}
	}
	if !due {
		return nil
	}
	return s.Collect(ctx)
}

func (s *Store) collect(ctx context.Context, unused time.Duration, most int64) error {
	if _, err := os.Stat(filepath.Join(s.dir, collectLock)); os.IsNotExist(err) {
		return nil // no template was ever made here
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	s.sweepRooms()
	deb.Prune(filepath.Join(s.dir, dirDebs), time.Now().Add(-keepDebs)) // what stays is only there longer
	unlock, err := s.lock()
	if err != nil {
		return s.broken("collect layers", err)
	}
	defer unlock()
	held, err := s.pinned()
	if err != nil {
		return s.broken("collect layers", err)
	}
	if err := each(s, dirNames, func(_ string, _ time.Time, r record) { hold(held, r.Root) }); err != nil {
		return s.broken("collect layers", err)
	}
	if err := s.keepKeyed(held, unused, most); err != nil {
		return s.broken("collect layers", err)
	}
	err = s.images.GC(func(name string) bool {
		if held[name] {
			return true
		}
		m, err := s.images.Manifest(name)
		return err != nil || m.Template != layerTemplate
	})
	if err != nil {
		return s.broken("collect layers", err)
	}
	now := time.Now()
	os.Chtimes(filepath.Join(s.dir, collectLock), now, now)
	return s.broken("collect layers", each(s, dirChains, func(path string, _ time.Time, c chain) {
		if _, err := s.images.Size(c.Layer); err != nil {
			os.Remove(path)
		}
	}))
}

// keepKeyed holds what keys made, as long as they were used of late and, the
// latest first, as long as there is room. The others are forgotten.
func (s *Store) keepKeyed(held map[string]bool, unused time.Duration, most int64) error {
	type use struct {
		path string
		used time.Time
		root image.Root
	}
	var all []use
	err := each(s, dirKeys, func(path string, used time.Time, r record) { all = append(all, use{path, used, r.Root}) })
	if err != nil {
		return err
	}
	slices.SortFunc(all, func(a, b use) int { return cmp.Compare(b.used.UnixNano(), a.used.UnixNano()) })
	total := int64(0)
	for _, u := range all {
		more := int64(0)
		for _, name := range u.root.Layers {
			if n, err := s.images.Size(name); err == nil && !held[name] {
				more += n
			}
		}
		if time.Since(u.used) > unused || total+more > most {
			os.Remove(u.path)
			continue
		}
		total += more
		hold(held, u.root)
	}
	return nil
}

func hold(held map[string]bool, r image.Root) {
	for _, name := range r.Layers {
		held[name] = true
	}
}

// Uses says whether a template or a key holds an image.
func (s *Store) Uses(name string) bool {
	used := false
	for _, dir := range []string{dirNames, dirKeys} {
		err := each(s, dir, func(_ string, _ time.Time, r record) { used = used || slices.Contains(r.Root.Layers, name) })
		used = used || err != nil
	}
	return used
}
