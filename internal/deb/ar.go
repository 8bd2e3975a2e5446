package deb

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"
)

var errDeb = errors.New("not a package")

// A member is one file of a .deb, which is an ar archive of three.
type member struct {
	kind string // .xz, .gz, .zst or none
	data *io.SectionReader
}

func (m member) open() (io.ReadCloser, error) { return decompress(m.data, m.kind) }

// openDeb finds the two archives of a .deb of some size: what describes it, and
// what it installs.
func openDeb(r io.ReaderAt, size int64) (control, data member, err error) {
	fail := func(format string, args ...any) (member, member, error) {
		return member{}, member{}, fmt.Errorf("%w: "+format, append([]any{errDeb}, args...)...)
	}
	magic := make([]byte, 8)
	if _, err := r.ReadAt(magic, 0); err != nil || string(magic) != "!<arch>\n" {
		return fail("no ar archive")
	}
	at, state := int64(8), 0
	for state < 3 {
		head := make([]byte, 60)
		if _, err := r.ReadAt(head, at); err != nil {
			return fail("ends early")
		}
		n, err := strconv.ParseInt(strings.TrimRight(string(head[48:58]), " "), 10, 64)
		if err != nil || n < 0 || string(head[58:]) != "`\n" || n > size-at-60 {
			return fail("a broken head at %d", at)
		}
		name := strings.TrimSuffix(strings.TrimRight(string(head[:16]), " "), "/")
		m := member{data: io.NewSectionReader(r, at+60, n)}
		at += 60 + n + n%2
		stem, kind, _ := strings.Cut(name, ".tar")
		m.kind = kind
		switch {
		case state == 0 && name == "debian-binary":
			text := make([]byte, min(n, 4))
			if _, err := m.data.ReadAt(text, 0); err != nil || !strings.HasPrefix(string(text), "2.") {
				return fail("of another format")
			}
			state = 1
		case state == 1 && stem == "control" && strings.Contains(name, ".tar"):
			control, state = m, 2
		case state == 2 && stem == "data" && strings.Contains(name, ".tar"):
			data, state = m, 3
		case state > 0 && strings.HasPrefix(name, "_"): // for later formats, to be ignored
		default:
			return fail("member %q out of place", short(name))
		}
	}
	return control, data, nil
}

// maintainer are the files of a package's control archive that dpkg keeps.
type maintainer struct {
	control   []byte
	files     []infoFile // sorted as they came
	conffiles map[string]bool
}

// An infoFile becomes /var/lib/dpkg/info/PACKAGE.name.
type infoFile struct {
	name string
	mode int64
	data []byte
}

func (m maintainer) file(name string) []byte {
	for _, f := range m.files {
		if f.name == name {
			return f.data
		}
	}
	return nil
}

// readControl reads a control archive.
func readControl(m member) (maintainer, error) {
	plain, err := m.open()
	if err != nil {
		return maintainer{}, err
	}
	defer plain.Close()
	out := maintainer{conffiles: map[string]bool{}}
	in := tar.NewReader(io.LimitReader(plain, maxControl))
	for len(out.files) < 1000 {
		h, err := in.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return maintainer{}, err
		}
		name := path.Clean(h.Name)
		if h.Typeflag == tar.TypeDir {
			continue
		}
		if h.Typeflag != tar.TypeReg || strings.ContainsAny(name, "/\x00\n") || !packageName(strings.ToLower(name)) {
			return maintainer{}, fmt.Errorf("%w: control archive holds %q", errDeb, short(name))
		}
		data, err := io.ReadAll(in)
		if err != nil {
			return maintainer{}, err
		}
		if name == "control" {
			out.control = data
			continue
		}
		out.files = append(out.files, infoFile{name, h.Mode & 0o755, data})
	}
	if out.control == nil {
		return maintainer{}, fmt.Errorf("%w: it has no control file", errDeb)
	}
	for line := range strings.Lines(string(out.file("conffiles"))) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "/") {
			out.conffiles[strings.TrimPrefix(path.Clean(line), "/")] = true
		}
	}
	return out, nil
}
