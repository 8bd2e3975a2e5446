package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/bermhq/berm/api"
)

// tarRecipe takes a tar archive of a root filesystem, plain or gzipped.
func tarRecipe(file string, opt Options, s *Store) recipe {
	return recipe{
		template: file,
		key: func() (string, error) {
			h := newKey("tar", opt)
			hashStat(h, file)
			return nameOf(h.Sum(nil)), nil
		},
		build: func(m *meter) (built, error) { return buildTar(file, opt, s, m) },
	}
}

func buildTar(file string, opt Options, s *Store, m *meter) (b built, err error) {
	f, err := os.Open(file)
	if err != nil {
		return built{}, unreadable(file, err)
	}
	sp := &spool{dir: filepath.Join(s.dir, "tmp"), left: maxBytes(file, opt)}
	closeAll := func() { f.Close(); sp.close() }
	defer func() {
		if err != nil {
			closeAll()
		}
	}()
	src, size, err := plainTar(f, sp, m)
	if err != nil {
		return built{}, archiveError(file, opt, err)
	}
	m.phase(PhaseScan, size)
	t, err := readTar(src, size, sp, m)
	if err == nil {
		for _, p := range opt.Exclude {
			t.remove(p)
		}
		err = completeGuest(t)
	}
	if err != nil {
		return built{}, archiveError(file, opt, err)
	}
	return built{tree: t, close: closeAll}, nil
}

// errNoTar says that a file is something else.
var errNoTar = errors.New("it is no tar archive, or an empty one")

// errSpool says that an archive unpacks to more than an image may have.
var errSpool = errors.New("it unpacks to more than the limit")

func archiveError(file string, opt Options, err error) error {
	if errors.Is(err, errSpool) {
		return fail(api.CodeTemplateTooLarge, fmt.Sprintf("template %s: %v of %s", file, err, human(maxBytes(file, opt))),
			"make a smaller archive, or raise the limit with --template-max")
	}
	if errors.Is(err, errNoTar) {
		return fail(api.CodeTemplateInvalid, fmt.Sprintf("template %s: %v", file, errNoTar),
			"name a folder or a tar archive of a root filesystem; a program to run comes after the flags, without --template")
	}
	return unreadable(file, err)
}

// plainTar returns f, or what it unpacks to.
func plainTar(f *os.File, sp *spool, m *meter) (io.ReaderAt, int64, error) {
	var magic [6]byte
	n, _ := f.ReadAt(magic[:], 0)
	for name, sign := range map[string]string{"zstd": "\x28\xb5\x2f\xfd", "xz": "\xfd7zXZ", "bzip2": "BZh"} {
		if bytes.HasPrefix(magic[:n], []byte(sign)) {
			return nil, 0, fail(api.CodeTemplateInvalid, fmt.Sprintf("template %s is compressed with %s", f.Name(), name),
				"decompress it first, or use gzip")
		}
	}
	info, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	if !bytes.HasPrefix(magic[:n], []byte{0x1f, 0x8b}) {
		return f, info.Size(), nil
	}
	m.phase(PhaseUnpack, info.Size())
	z, err := gzip.NewReader(progressReader{f, m})
	if err != nil {
		return nil, 0, err
	}
	defer z.Close()
	piece, err := sp.take(z, false)
	if err != nil {
		return nil, 0, fmt.Errorf("unpack: %w", err)
	}
	return io.NewSectionReader(sp.file, piece.off, piece.size), piece.size, nil
}

// progressReader counts what is read, and ends when the build is cancelled.
type progressReader struct {
	r io.Reader
	m *meter
}

func (p progressReader) Read(b []byte) (int, error) {
	n, err := p.r.Read(b)
	if stop := p.m.add(int64(n), 0); stop != nil {
		return n, stop
	}
	return n, err
}

// readTar reads an archive of size bytes into a tree. Entries of kinds that an
// image does not have are left out; of several with one name the last counts.
func readTar(src io.ReaderAt, size int64, sp *spool, m *meter) (*tree, error) {
	t := newTree()
	at := io.NewSectionReader(src, 0, size)
	r := tar.NewReader(at)
	for count := 0; ; count++ {
		h, err := r.Next()
		if err == io.EOF {
			if count == 0 {
				return nil, errNoTar
			}
			return t, nil
		}
		if count == 0 && (err == tar.ErrHeader || err == io.ErrUnexpectedEOF) {
			return nil, errNoTar
		}
		if err != nil {
			return nil, fmt.Errorf("entry %d: %w", count+1, err)
		}
		if count >= maxNodes {
			return nil, errTooMany
		}
		pos, err := at.Seek(0, io.SeekCurrent)
		if err != nil {
			return nil, err
		}
		if err := m.add(0, 1); err != nil {
			return nil, err
		}
		if err := addEntry(t, h, r, rangeSource{src, pos, h.Size}, sp); err != nil {
			return nil, err
		}
		m.now.Done = pos
	}
}

func addEntry(t *tree, h *tar.Header, r io.Reader, content rangeSource, sp *spool) error {
	n := &node{mode: uint32(h.Mode & 0o1777), uid: id32(h.Uid), gid: id32(h.Gid), mtime: epoch}
	if sec := h.ModTime.Unix(); sec >= 0 && sec < 1<<36 {
		n.mtime, n.nsec = sec, uint32(h.ModTime.Nanosecond())
	}
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeCont, tar.TypeGNUSparse:
		if h.Size < 0 {
			return fmt.Errorf("%.200q: negative size", h.Name)
		}
		n.mode, n.size, n.src = n.mode|typeFile, h.Size, content
		if isSparseEntry(h) {
			if h.Size > sp.left {
				return errSpool
			}
			piece, err := sp.take(r, true)
			if err != nil {
				return fmt.Errorf("%.200q: %w", h.Name, err)
			}
			n.src, n.size = piece, piece.size
		}
	case tar.TypeDir:
		n.mode, n.kids = n.mode|typeDir, map[string]*node{}
	case tar.TypeSymlink:
		if h.Linkname == "" || len(h.Linkname) >= maxPath || strings.IndexByte(h.Linkname, 0) >= 0 {
			return fmt.Errorf("%.200q: symlink target of %d bytes: %w", h.Name, len(h.Linkname), errBadName)
		}
		n.mode, n.target = typeLink|0o777, h.Linkname
	case tar.TypeLink:
		names, err := split(h.Linkname)
		if err != nil {
			return fmt.Errorf("%.200q: link to %.200q: %w", h.Name, h.Linkname, err)
		}
		old, err := t.walk(names, false, false)
		if err != nil || old.isDir() {
			return fmt.Errorf("%.200q: link to %.200q, which is no file of this archive so far", h.Name, h.Linkname)
		}
		n = old
	default: // devices, pipes, and what later versions may add
		return nil
	}
	return t.add(h.Name, n)
}

func isSparseEntry(h *tar.Header) bool {
	if h.Typeflag == tar.TypeGNUSparse {
		return true
	}
	for k := range h.PAXRecords {
		if strings.HasPrefix(k, "GNU.sparse.") {
			return true
		}
	}
	return false
}

func id32(id int) uint32 {
	if id < 0 || int64(id) >= 1<<32-1 {
		return 65534
	}
	return uint32(id)
}
