package image

import (
	"bytes"
	"io"
	"os"
)

// A spool is one unnamed file for content that is not to be had by offset.
type spool struct {
	dir  string
	file *os.File
	end  int64
	left int64 // bytes that may still come
}

// take appends all of r. With holes set, blocks of zeros take no space.
func (s *spool) take(r io.Reader, holes bool) (rangeSource, error) {
	if s.file == nil {
		f, err := os.CreateTemp(s.dir, "spool-*")
		if err != nil {
			return rangeSource{}, err
		}
		s.file = f
		if err := os.Remove(f.Name()); err != nil {
			return rangeSource{}, err
		}
	}
	start := s.end
	buf := make([]byte, 256<<10)
	for {
		n, err := fill(r, buf)
		if s.left -= int64(n); s.left < 0 {
			return rangeSource{}, errSpool
		}
		if !holes || len(bytes.Trim(buf[:n], "\x00")) > 0 {
			if _, err := s.file.WriteAt(buf[:n], s.end); err != nil {
				return rangeSource{}, err
			}
		}
		s.end += int64(n)
		if err == io.EOF {
			return rangeSource{s.file, start, s.end - start}, nil
		}
		if err != nil {
			return rangeSource{}, err
		}
	}
}

// fill reads until buf is full or r gives an error, which it keeps as it is.
func fill(r io.Reader, buf []byte) (n int, err error) {
	for n < len(buf) && err == nil {
		var k int
		k, err = r.Read(buf[n:])
		n += k
	}
	return n, err
}

func (s *spool) close() {
	if s.file != nil {
		s.file.Close()
	}
}
