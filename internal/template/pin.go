package template

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// A pin keeps images from being collected while a Job works with them: a file
// with their names, locked as long as the Job lives. A process that dies loses
// the lock, and with it the pin.
type pin struct {
	s     *Store
	f     *os.File
	mu    sync.Mutex
	names map[string]bool
}

func (s *Store) pin() (*pin, error) {
	dir := filepath.Join(s.dir, dirPins)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	unlock, err := s.lock()
	if err != nil {
		return nil, err
	}
	unlock()
	for {
		f, err := os.CreateTemp(dir, "pin-*")
		if err != nil {
			return nil, err
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
			if _, err := os.Lstat(f.Name()); err == nil {
				return &pin{s: s, f: f, names: map[string]bool{}}, nil
			}
		}
		f.Close() // collected in the instant before the lock
	}
}

// add pins images. What is there when it returns stays.
func (p *pin) add(names ...string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	more := false
	for _, n := range names {
		more = more || !p.names[n]
		p.names[n] = true
	}
	if !more {
		return nil
	}
	unlock, err := p.s.lock()
	if err != nil {
		return err
	}
	defer unlock()
	list := make([]string, 0, len(p.names))
	for n := range p.names {
		list = append(list, n)
	}
	b, err := json.Marshal(list)
	if err != nil {
		return err
	}
	_, err = p.f.WriteAt(append(b, '\n'), 0) // a list only grows
	return err
}

func (p *pin) release() {
	os.Remove(p.f.Name())
	p.f.Close()
}

// pinned are the images that living Jobs hold. The lock must be held.
func (s *Store) pinned() (map[string]bool, error) {
	out := map[string]bool{}
	dir := filepath.Join(s.dir, dirPins)
	list, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for _, e := range list {
		path := filepath.Join(dir, e.Name())
		f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
		if err != nil {
			continue // released meanwhile
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			os.Remove(path) // nobody lives who held it
			f.Close()
			continue
		}
		var names []string
		info, err := f.Stat()
		if err == nil && info.Size() > 0 {
			err = json.NewDecoder(f).Decode(&names)
		}
		f.Close()
		if err != nil {
			return nil, err // rather nothing is collected than what somebody needs
		}
		for _, n := range names {
			out[n] = true
		}
	}
	return out, nil
}

// collectLock is there from the first Job on. Its time is that of the last
// collection.
const collectLock = "collect.lock"

// lock keeps pins from being added while images are collected, and the other way
// round. It is held for moments.
func (s *Store) lock() (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(s.dir, collectLock), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		f.Close()
		return nil, err
	}
	return func() { f.Close() }, nil
}
