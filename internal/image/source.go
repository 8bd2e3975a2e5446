package image

import (
	"bytes"
	"io"
	"os"
)

// A source is where the content of a regular file comes from. Reader returns it
// from its first byte; it may turn out shorter or longer than the node's size.
type source interface {
	reader() (io.Reader, func(), error)
}

type bytesSource []byte

func (b bytesSource) reader() (io.Reader, func(), error) {
	return bytes.NewReader(b), func() {}, nil
}

// fileSource is a file of the host, opened below root and never through a
// symlink at its end.
type fileSource struct {
	root *os.Root
	path string // relative to root
}

func (s fileSource) reader() (io.Reader, func(), error) {
	f, err := openRegular(s.root, s.path)
	if err != nil {
		return nil, nil, err
	}
	return f, func() { f.Close() }, nil
}

// rangeSource is a piece of an archive or a spool.
type rangeSource struct {
	from io.ReaderAt
	off  int64
	size int64
}

func (s rangeSource) reader() (io.Reader, func(), error) {
	from, off := s.from, s.off
	if part, ok := from.(*io.SectionReader); ok { // the kernel copies from files only
		outer, start, _ := part.Outer()
		from, off = outer, off+start
	}
	f, ok := from.(*os.File)
	if !ok {
		return io.NewSectionReader(from, off, s.size), func() {}, nil
	}
	if _, err := f.Seek(off, io.SeekStart); err != nil {
		return nil, nil, err
	}
	return &io.LimitedReader{R: f, N: s.size}, func() {}, nil
}
