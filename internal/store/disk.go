package store

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// A disk is what the log needs of a file system. Tests put one under it that
// forgets, tears and fails.
type disk interface {
	mkdir(dir string) error
	open(name string) (file, error)   // to read and write; it must exist
	create(name string) (file, error) // empty, whatever was there
	reserve(name string, size int64) error
	rename(from, to string) error
	remove(name string) error
	list(dir string) ([]string, error)
	syncDir(dir string) error
	same(f file, name string) (bool, error) // what is there now is f
}

type file interface {
	io.ReaderAt
	io.WriterAt
	Sync() error
	Truncate(size int64) error
	Size() (int64, error)
	Close() error
}

// osDisk is the real one. Paths below /proc/self/fd are opened as they are.
type osDisk struct{}

type osFile struct{ *os.File }

func (f osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (osDisk) mkdir(dir string) error { return os.MkdirAll(dir, 0o700) }

func (osDisk) open(name string) (file, error) {
	f, err := os.OpenFile(name, os.O_RDWR|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (osDisk) create(name string) (file, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

// reserve makes a file that really takes up its size.
func (d osDisk) reserve(name string, size int64) error {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	err = syscall.Fallocate(int(f.Fd()), 0, 0, size)
	if errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.ENOSYS) {
		zeros := make([]byte, 64<<10)
		for at := int64(0); at < size; at += int64(len(zeros)) {
			if _, err = f.WriteAt(zeros[:min(int64(len(zeros)), size-at)], at); err != nil {
				break
			}
		}
	}
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		_ = os.Remove(name)
	}
	return err
}

func (osDisk) rename(from, to string) error { return os.Rename(from, to) }
func (osDisk) remove(name string) error     { return os.Remove(name) }

func (osDisk) list(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, nil
}

func (osDisk) syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = f.Sync()
	if e := f.Close(); err == nil {
		err = e
	}
	return err
}

func (osDisk) same(f file, name string) (bool, error) {
	there, err := os.Lstat(name)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	ours, err := f.(osFile).Stat()
	return err == nil && os.SameFile(ours, there), err
}

// replace writes a small file so that it is there whole or not at all.
func replace(d disk, dir, name string, data []byte) error {
	path := filepath.Join(dir, name)
	f, err := d.create(path + ".new")
	if err != nil {
		return err
	}
	if _, err = f.WriteAt(data, 0); err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = d.rename(path+".new", path)
	}
	if err == nil {
		err = d.syncDir(dir)
	}
	return err
}

// contents reads a small file; nil if there is none.
func contents(d disk, name string) ([]byte, error) {
	f, err := d.open(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if size > 64<<10 {
		return nil, errors.New(name + " is far too big to be ours")
	}
	data := make([]byte, size)
	if n, err := f.ReadAt(data, 0); n < len(data) {
		return nil, err
	}
	return data, nil
}
