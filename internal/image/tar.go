package image

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

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
		if err = isRoot(t, file); err == nil {
			err = completeGuest(t)
		}
	}
	if err != nil {
		return built{}, archiveError(file, opt, err)
	}
	return built{tree: t, close: closeAll}, nil
}

// isRoot refuses a tree that is a container image and no root file system.
func isRoot(t *tree, template string) error {
	layout := t.find("/oci-layout") != nil && t.find("/index.json") != nil
	if !layout && (t.find("/manifest.json") == nil || t.find("/bin") != nil || t.find("/usr") != nil) {
		return nil
	}
	return fail(api.CodeTemplateInvalid, fmt.Sprintf("template %s is a container image, not a root file system", template),
		"berm template import "+template)
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
	info, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	var magic [6]byte
	n, _ := f.ReadAt(magic[:], 0)
	open := decompressor(magic[:n])
	if open == nil {
		return f, info.Size(), nil
	}
	m.phase(PhaseUnpack, info.Size())
	z, err := open(progressReader{f, m})
	if err != nil {
		return nil, 0, fmt.Errorf("unpack: %w", err)
	}
	piece, err := sp.take(z, true)
	if err != nil {
		return nil, 0, fmt.Errorf("unpack: %w", err)
	}
	if err := sp.file.Truncate(sp.end); err != nil { // zeros at its end are a hole
		return nil, 0, err
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
	u := unpacker{t: newTree(), sp: sp, m: m, perm: 0o1777, at: src}
	return u.t, u.read(io.NewSectionReader(src, 0, size))
}
