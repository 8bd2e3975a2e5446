package here

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
)

// Limits bound what may come out of a sandbox. The zero value is the default.
type Limits struct {
	Bytes   int64 // of all files; 0: 1 GiB
	Entries int   // 0: 200,000
	// Pass are paths that are none of the tree's, with all below: they went in
	// beside it.
	Pass []string
}

func (l Limits) orDefault() Limits {
	if l.Bytes <= 0 {
		l.Bytes = 1 << 30
	}
	if l.Entries <= 0 {
		l.Entries = 200_000
	}
	return l
}

// What a Change is.
const (
	Added   = "added"
	Changed = "changed"
	Removed = "removed"
)

// A Side is what is at a path, before or after.
type Side struct {
	Kind   string `json:"kind"` // file, dir, symlink
	Mode   uint32 `json:"mode"` // permission bits
	Size   int64  `json:"size,omitempty"`
	SHA256 string `json:"sha256,omitempty"` // of a file
	Target string `json:"target,omitempty"` // of a symlink
}

// A Change is one path that is not what it was.
type Change struct {
	Path   string `json:"path"`
	What   string `json:"what"`
	Before *Side  `json:"before,omitempty"`
	After  *Side  `json:"after,omitempty"`

	// Where the contents lie in what is kept; At counts for an After that is a
	// file, Old is -1 for one that is not kept.
	At  int64 `json:"at,omitempty"`
	Old int64 `json:"old"`
}

// Left is something that came out and is not believed, or not kept.
type Left struct {
	Path string `json:"path"`
	Why  string `json:"why"`
}

// Changes is what a sandbox did to a tree.
type Changes struct {
	List []Change `json:"list"` // sorted
	Left []Left   `json:"left,omitempty"`
	// Cut says why the list is not whole; "" if it is.
	Cut   string `json:"cut,omitempty"`
	Bytes int64  `json:"bytes"` // of the files that are kept
}

const maxLeft = 1000

func (c *Changes) leave(p, why string) {
	if len(c.Left) < maxLeft {
		c.Left = append(c.Left, Left{Printable(p), why})
	}
}

// side is how an entry is written down.
func side(e *Entry) *Side {
	switch e.Kind {
	case Dir:
		return &Side{Kind: "dir", Mode: e.Mode}
	case Link:
		return &Side{Kind: "symlink", Mode: 0o777, Target: e.Target}
	}
	return &Side{Kind: "file", Mode: e.Mode, Size: e.Size, SHA256: hex.EncodeToString(e.Hash[:])}
}

func (s *Side) same(o *Side) bool { return s != nil && o != nil && *s == *o }

func (s *Side) is(kind string) bool { return s != nil && s.Kind == kind }

// An upper is one entry that came.
type upper struct {
	side Side
	at   int64
}

// reader collects what a tar says. Everything in it is hostile.
type reader struct {
	lim    Limits
	out    *Changes
	data   io.Writer
	names  int
	upper  map[string]upper
	white  map[string]bool
	opaque map[string]bool
	left   map[string]bool // came, and was not kept
}

// ReadChanges reads a tar of changes, which nobody trusts, and compares it with
// what was there before: sorted entries. Contents of files go to data, one after
// the other. What cannot be is listed as left; a stream that breaks off, or that
// is longer than lim, leaves what came until then, and Cut says so. The error is
// data's.
func ReadChanges(r io.Reader, before []Entry, data io.Writer, lim Limits) (*Changes, error) {
	lim = lim.orDefault()
	rd := &reader{lim: lim, out: &Changes{}, data: data, upper: map[string]upper{}, white: map[string]bool{}, opaque: map[string]bool{}, left: map[string]bool{}}
	// Names, links and padding: what a tar of that many entries may need.
	raw := &io.LimitedReader{R: r, N: 2*lim.Bytes + int64(lim.Entries)*4096 + 1<<20}
	tr := tar.NewReader(raw)
	for {
		h, err := tr.Next()
		if err == io.EOF {
			break
		}
		if rd.names++; err == nil && rd.names > lim.Entries {
			err = fmt.Errorf("it has more than %d entries", lim.Entries)
		}
		if err == nil {
			err = rd.entry(h, tr)
		}
		var de dataError
		if errors.As(err, &de) {
			return nil, de.error
		}
		if err != nil {
			if raw.N <= 0 {
				err = errors.New("it is longer than allowed")
			}
			rd.out.Cut = err.Error()
			break
		}
	}
	rd.compare(before)
	return rd.out, nil
}

// dataError is trouble with what is written, not with what is read.
type dataError struct{ error }

// cleanName is the path that a name in a tar means, or why it means none.
func cleanName(name string) (string, string) {
	name = strings.TrimSuffix(strings.TrimPrefix(name, "./"), "/")
	switch {
	case name == "" || name == ".":
		return "", ""
	case len(name) > maxPath:
		return "", "its name is too long"
	case strings.HasPrefix(name, "/"):
		return "", "its name is absolute"
	case strings.ContainsRune(name, 0):
		return "", "its name holds a zero byte"
	}
	parts := strings.Split(name, "/")
	if len(parts) > maxDepth {
		return "", "it lies too deep"
	}
	for _, p := range parts {
		switch {
		case p == "" || p == "." || p == "..":
			return "", "its name has a part that is empty or a dot"
		case len(p) > maxName:
			return "", "its name is too long"
		}
	}
	return name, ""
}

func (rd *reader) passed(name string) bool {
	return strings.HasPrefix(base(name), tmpPrefix) || slices.ContainsFunc(rd.lim.Pass, func(p string) bool {
		return name == p || strings.HasPrefix(name, p+"/")
	})
}

func (rd *reader) entry(h *tar.Header, r io.Reader) error {
	name, why := cleanName(h.Name)
	if why != "" {
		rd.out.leave(h.Name, why)
		return nil
	}
	if name == "" || rd.passed(name) { // the folder itself, or what is none of the tree's
		return nil
	}
	if gone, ok := strings.CutPrefix(base(name), ".wh."); ok {
		switch {
		case gone == ".wh..opq":
			rd.opaque[parent(name)] = true
		case gone == "" || strings.HasPrefix(gone, ".wh.") || gone == "." || gone == "..":
			rd.out.leave(name, "it is no name of something that is gone")
		default:
			rd.white[path.Join(parent(name), gone)] = true
		}
		return nil
	}
	rd.left[name] = true
	u := upper{side: Side{Mode: uint32(h.Mode) & 0o777}}
	switch h.Typeflag {
	case tar.TypeDir:
		u.side.Kind = "dir"
	case tar.TypeSymlink:
		if h.Linkname == "" || len(h.Linkname) > maxPath || strings.ContainsRune(h.Linkname, 0) {
			rd.out.leave(name, "it is a symlink to nothing")
			return nil
		}
		u.side = Side{Kind: "symlink", Mode: 0o777, Target: h.Linkname}
	case tar.TypeLink:
		to, why := cleanName(h.Linkname)
		other, ok := rd.upper[to]
		if why != "" || !ok || other.side.Kind != "file" {
			rd.out.leave(name, "it is a hard link to what did not come")
			return nil
		}
		u = other
	case tar.TypeReg, tar.TypeGNUSparse:
		if h.Size < 0 || h.Size > rd.lim.Bytes-rd.out.Bytes {
			rd.out.leave(name, fmt.Sprintf("it has %d bytes, and %d may still come", h.Size, rd.lim.Bytes-rd.out.Bytes))
			return nil
		}
		if err := rd.file(&u, h.Size, r); err != nil {
			return err
		}
	default:
		rd.out.leave(name, "it is neither file, folder nor symlink")
		return nil
	}
	rd.upper[name] = u
	delete(rd.left, name)
	return nil
}

// file writes the content of one to data.
func (rd *reader) file(u *upper, size int64, r io.Reader) error {
	hash := sha256.New()
	w := &writeSide{w: rd.data}
	n, err := io.Copy(io.MultiWriter(w, hash), io.LimitReader(r, size))
	u.at = rd.out.Bytes
	rd.out.Bytes += n
	switch {
	case w.err != nil:
		return dataError{w.err}
	case err != nil:
		return err
	case n != size:
		return io.ErrUnexpectedEOF
	}
	u.side.Kind, u.side.Size, u.side.SHA256 = "file", size, hex.EncodeToString(hash.Sum(nil))
	return nil
}

// writeSide remembers that it was the writer that failed.
type writeSide struct {
	w   io.Writer
	err error
}

func (w *writeSide) Write(p []byte) (int, error) {
	n, err := w.w.Write(p)
	if err != nil {
		w.err = err
	}
	return n, err
}

// compare makes the list.
func (rd *reader) compare(before []Entry) {
	if rd.out.Cut != "" { // what replaces a folder may not have come
		clear(rd.opaque)
	}
	for name := range rd.upper { // a name may come twice, as another kind
		for up := parent(name); up != ""; up = parent(up) {
			if u, ok := rd.upper[up]; ok && u.side.Kind != "dir" {
				rd.out.leave(name, "it lies in what is no folder")
				delete(rd.upper, name)
				break
			}
		}
	}
	list := []Change{}
	for name, u := range rd.upper {
		c := Change{Path: name, What: Added, After: &u.side, At: u.at, Old: -1}
		if e := lookup(before, name); e != nil {
			c.Before, c.What = side(e), Changed
			if c.Before.same(c.After) {
				continue
			}
		}
		list = append(list, c)
	}
	hidden := map[string]bool{}
	for i := range before {
		e := &before[i]
		up := parent(e.Path)
		u, came := rd.upper[up]
		if !(rd.white[e.Path] || hidden[up] || rd.opaque[up] || came && u.side.Kind != "dir") {
			continue
		}
		if e.Kind == Dir {
			hidden[e.Path] = true
		}
		if _, ok := rd.upper[e.Path]; !ok && !rd.left[e.Path] {
			list = append(list, Change{Path: e.Path, What: Removed, Before: side(e), Old: -1})
		}
	}
	slices.SortFunc(list, func(a, b Change) int { return strings.Compare(a.Path, b.Path) })
	rd.out.List = list
}
