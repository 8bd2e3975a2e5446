package image

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Marks of OCI layers for what the layers below have and this one has not.
const (
	markGone   = ".wh."
	markOpaque = ".wh..wh..opq"
	markAUFS   = ".wh..wh." // names of aufs' own; they mean nothing
)

// Dropped counts what an archive has and an image cannot hold.
type Dropped struct {
	Devices    int `json:"devices,omitempty"`    // device nodes, pipes and sockets
	Attributes int `json:"attributes,omitempty"` // files with extended attributes, which they lost
}

// An unpacker puts the entries of one archive into a tree, over what the tree
// had before.
type unpacker struct {
	t     *tree
	sp    *spool
	m     *meter
	perm  uint32      // bits of a mode that are kept
	marks bool        // OCI's marks take away what was there before
	owner *[2]uint32  // whose everything becomes; nil: as the archive says
	at    io.ReaderAt // the archive, for content to be read again; nil: content goes to sp

	dropped Dropped
	fresh   map[edge]bool // names that this archive has bound
	hidden  map[edge]bool // names that it has taken away; "" is all of a directory
}

// read takes all entries of r. Its position must be that of at, if there is one.
func (u *unpacker) read(r io.Reader) error {
	seek, _ := r.(io.Seeker)
	if u.at == nil || seek == nil {
		u.at = nil
	}
	u.fresh, u.hidden = map[edge]bool{}, map[edge]bool{}
	tr := tar.NewReader(r)
	for count := 0; ; count++ {
		h, err := tr.Next()
		if err == io.EOF {
			if count == 0 && !u.marks {
				return errNoTar
			}
			_, err := io.Copy(io.Discard, r) // what checks itself at its end is checked
			return err
		}
		if count == 0 && (err == tar.ErrHeader || err == io.ErrUnexpectedEOF) {
			return errNoTar
		}
		if err != nil {
			return fmt.Errorf("entry %d: %w", count+1, err)
		}
		if count >= maxNodes {
			return errTooMany
		}
		if err := u.m.add(0, 1); err != nil {
			return err
		}
		var pos int64
		if u.at != nil {
			if pos, err = seek.Seek(0, io.SeekCurrent); err != nil {
				return err
			}
			u.m.now.Done = pos
		}
		if err := u.entry(h, tr, pos); err != nil {
			return err
		}
	}
}

// entry takes one entry; its content is at pos of the archive, if that can be
// read again.
func (u *unpacker) entry(h *tar.Header, r io.Reader, pos int64) error {
	names, err := split(h.Name)
	if err != nil {
		return fmt.Errorf("%.200q: %w", h.Name, err)
	}
	if u.marks && slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, markAUFS) && n != markOpaque }) {
		return nil
	}
	if u.marks && len(names) > 0 && strings.HasPrefix(names[len(names)-1], markGone) {
		if err := u.mark(names); err != nil {
			return fmt.Errorf("%.200q: %w", h.Name, err)
		}
		return nil
	}
	n, err := u.node(h, r, pos)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		if n == nil || !n.isDir() {
			return fmt.Errorf("%.200q: %w", h.Name, errNotDir)
		}
		u.t.root.takeOver(n)
		return nil
	}
	last := len(names) - 1
	dir, err := u.t.walk(names[:last], true, true)
	if err == nil && !dir.isDir() {
		err = errNotDir
	}
	if err != nil {
		return fmt.Errorf("%.200q: %w", h.Name, err)
	}
	if n == nil { // it cannot be here, and what was here before is not either
		delete(dir.kids, names[last])
		return nil
	}
	if hasAttributes(h) {
		u.dropped.Attributes++
	}
	u.fresh[edge{dir, names[last]}] = true
	if old := dir.kids[names[last]]; old != nil && old.isDir() && n.isDir() {
		old.takeOver(n)
		return nil
	}
	if err := u.t.put(dir, names[last], n); err != nil {
		return fmt.Errorf("%.200q: %w", h.Name, err)
	}
	return nil
}

// node is what an entry becomes; nil for what an image does not hold.
func (u *unpacker) node(h *tar.Header, r io.Reader, pos int64) (*node, error) {
	n := &node{mode: uint32(h.Mode) & u.perm, uid: id32(h.Uid), gid: id32(h.Gid), mtime: epoch}
	if u.owner != nil {
		n.uid, n.gid = u.owner[0], u.owner[1]
	}
	if sec := h.ModTime.Unix(); sec > -1<<36 && sec < 1<<36 {
		n.mtime, n.nsec = sec, uint32(h.ModTime.Nanosecond())
	}
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeCont, tar.TypeGNUSparse:
		n.mode |= typeFile
		return n, u.content(n, h, r, pos)
	case tar.TypeDir:
		n.mode, n.kids = n.mode|typeDir, map[string]*node{}
	case tar.TypeSymlink:
		if h.Linkname == "" || len(h.Linkname) >= maxPath || strings.IndexByte(h.Linkname, 0) >= 0 {
			return nil, fmt.Errorf("%.200q: symlink target of %d bytes: %w", h.Name, len(h.Linkname), errBadName)
		}
		n.mode, n.target = typeLink|0o777, h.Linkname
	case tar.TypeLink:
		names, err := split(h.Linkname)
		if err != nil {
			return nil, fmt.Errorf("%.200q: link to %.200q: %w", h.Name, h.Linkname, err)
		}
		old, err := u.t.walk(names, false, false)
		if err != nil || old.isDir() {
			return nil, fmt.Errorf("%.200q: link to %.200q, which is no file of this archive so far", h.Name, h.Linkname)
		}
		return old, nil
	default: // devices, pipes, and what later versions may add
		u.dropped.Devices++
		return nil, nil
	}
	return n, nil
}

// content finds out where the bytes of a regular file can be had.
func (u *unpacker) content(n *node, h *tar.Header, r io.Reader, pos int64) error {
	if h.Size < 0 {
		return fmt.Errorf("%.200q: negative size", h.Name)
	}
	if n.size = h.Size; n.size == 0 {
		return nil
	}
	if u.at != nil && !isSparseEntry(h) {
		n.src = rangeSource{u.at, pos, h.Size}
		return nil
	}
	if h.Size > u.sp.left {
		return errSpool
	}
	piece, err := u.sp.take(r, true)
	if err != nil {
		if errors.Is(err, errSpool) {
			return err
		}
		return fmt.Errorf("%.200q: %w", h.Name, err)
	}
	if piece.size != h.Size {
		return fmt.Errorf("%.200q: %d bytes of %d: %w", h.Name, piece.size, h.Size, io.ErrUnexpectedEOF)
	}
	n.src = piece
	return nil
}

// mark takes away what was there before this archive, whatever the order.
func (u *unpacker) mark(names []string) error {
	last := len(names) - 1
	base := names[last]
	name := strings.TrimPrefix(base, markGone)
	if name == "" || name == "." || name == ".." {
		return errBadName
	}
	dir, err := u.t.walk(names[:last], true, false)
	if err != nil || !dir.isDir() {
		return nil // nothing is there to be taken away
	}
	if base == markOpaque {
		u.empty(dir)
	} else {
		u.hide(dir, name)
	}
	return nil
}

func (u *unpacker) empty(dir *node) {
	at := edge{dir, ""}
	if u.hidden[at] {
		return
	}
	u.hidden[at] = true
	for name := range dir.kids {
		u.hide(dir, name)
	}
}

func (u *unpacker) hide(dir *node, name string) {
	kid := dir.kids[name]
	if kid == nil {
		return
	}
	at := edge{dir, name}
	if kid.isDir() {
		u.empty(kid)
		if len(kid.kids) > 0 {
			return // entries of this archive are in it
		}
	}
	if !u.fresh[at] {
		delete(dir.kids, name)
		u.t.count--
	}
}

func hasAttributes(h *tar.Header) bool {
	for k := range h.PAXRecords {
		if strings.HasPrefix(k, "SCHILY.xattr.") {
			return true
		}
	}
	return false
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
