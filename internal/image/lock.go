package image

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// lockFile takes the lock of a path, which goes away with the process that
// holds it. It calls wait once if it has to. The file is removed on unlock,
// hence the check that the locked file is still the one with that name.
func lockFile(ctx context.Context, path string, wait func()) (unlock func(), err error) {
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, err
		}
		for {
			err = tryLock(f)
			if !errors.Is(err, syscall.EWOULDBLOCK) {
				break
			}
			if wait != nil {
				wait()
				wait = nil
			}
			select {
			case <-ctx.Done():
				f.Close()
				return nil, ctx.Err()
			case <-time.After(20 * time.Millisecond):
			}
		}
		if err != nil {
			f.Close()
			return nil, err
		}
		if named(f, path) {
			return func() {
				os.Remove(path)
				f.Close()
			}, nil
		}
		f.Close()
	}
}

func tryLock(f *os.File) error {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}

// named says whether path still is the file f.
func named(f *os.File, path string) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := os.Lstat(path)
	return err == nil && os.SameFile(a, b)
}

// tempFile is a file in tmp/, locked as long as somebody works on it.
type tempFile struct{ *os.File }

// discard closes the file and removes it unless it was renamed.
func (t tempFile) discard() {
	os.Remove(t.Name())
	t.Close()
}

func (s *Store) temp() (tempFile, error) {
	for {
		f, err := os.CreateTemp(filepath.Join(s.dir, "tmp"), "new-*")
		if err != nil {
			return tempFile{}, err
		}
		err = tryLock(f)
		if err == nil && named(f, f.Name()) {
			return tempFile{f}, nil
		}
		f.Close() // swept in the instant before the lock
		if err != nil && !errors.Is(err, syscall.EWOULDBLOCK) {
			return tempFile{}, err
		}
	}
}

// sweep removes what builders that died have left in tmp/.
func (s *Store) sweep() {
	dir := filepath.Join(s.dir, "tmp")
	list, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range list {
		path := filepath.Join(dir, e.Name())
		f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
		if err != nil {
			continue
		}
		if tryLock(f) == nil && named(f, path) {
			os.Remove(path)
		}
		f.Close()
	}
}
