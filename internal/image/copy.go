package image

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// Whence values of lseek(2) for sparse files.
const (
	seekData = 3
	seekHole = 4
)

// openRegular opens a regular file below root for reading. Neither a symlink
// nor a pipe put in its place meanwhile is followed or waited for.
func openRegular(root *os.Root, path string) (*os.File, error) {
	f, err := root.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file any more: %w", path, fs.ErrNotExist)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// isSparse says whether a file takes notably less space than its size.
func isSparse(f *os.File, size int64) bool {
	info, err := f.Stat()
	if err != nil || size < 1<<20 {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && st.Blocks*512 < size/2
}

// copySparse copies the parts of src that hold data.
func copySparse(f *os.File, at int64, src *os.File, size int64, m *meter) error {
	for off := int64(0); off < size; {
		data, err := src.Seek(off, seekData)
		if errors.Is(err, syscall.ENXIO) {
			return nil // a hole up to the end
		}
		if err != nil { // a filesystem without the call
			if _, err := src.Seek(off, io.SeekStart); err != nil {
				return err
			}
			return copyRange(f, at+off, src, size-off, m)
		}
		hole, err := src.Seek(data, seekHole)
		if err != nil {
			return err
		}
		if hole = min(hole, size); data >= hole {
			return nil
		}
		if _, err := src.Seek(data, io.SeekStart); err != nil {
			return err
		}
		if err := copyRange(f, at+data, src, hole-data, m); err != nil {
			return err
		}
		off = hole
	}
	return nil
}
