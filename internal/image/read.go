package image

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
)

// errImage says that a file is no image that was written here.
var errImage = errors.New("it is no sound image")

func badImage(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errImage, fmt.Sprintf(format, args...))
}

// readTree reads an image back. The file may be anybody's work: whatever is
// wrong with it is an error, and what it costs is bounded by its size and by
// the bounds on any tree. Content is not read; the nodes say where it is.
func readTree(f io.ReaderAt, size int64) (*tree, error) {
	var sb [superSize]byte
	if err := readFull(f, sb[:], superAt); err != nil {
		return nil, badImage("no superblock")
	}
	r := treeReader{f: f, size: size, nodes: map[uint64]*node{}, t: &tree{}}
	switch {
	case le.Uint32(sb[:]) != superMagic || sb[12] != 12:
		return nil, badImage("another kind of file")
	case le.Uint32(sb[80:]) != 0:
		return nil, badImage("features %#x", le.Uint32(sb[80:]))
	case int64(le.Uint32(sb[36:]))*blockSize != size:
		return nil, badImage("%d blocks in %d bytes", le.Uint32(sb[36:]), size)
	case le.Uint32(sb[40:]) != metaBlock:
		return nil, badImage("metadata at block %d", le.Uint32(sb[40:]))
	}
	root, err := r.node(uint64(le.Uint16(sb[14:])), kindDir, 0)
	if err != nil {
		return nil, err
	}
	r.t.root = root
	return r.t, nil
}

type treeReader struct {
	f     io.ReaderAt
	size  int64
	t     *tree
	nodes map[uint64]*node
	page  [64 << 10]byte // of metadata, read last
	at    int64          // of page
	have  int            // bytes in page
}

// meta returns n bytes at off, out of the page if they are in it.
func (r *treeReader) meta(off int64, n int) ([]byte, error) {
	if off < 0 || off+int64(n) > r.size {
		return nil, badImage("metadata at %d of %d", off, r.size)
	}
	if off < r.at || off+int64(n) > r.at+int64(r.have) {
		r.at = off
		r.have = int(min(int64(len(r.page)), r.size-off))
		if err := readFull(r.f, r.page[:r.have], off); err != nil {
			r.have = 0
			return nil, fmt.Errorf("read image: %w", err)
		}
	}
	return r.page[off-r.at:][:n], nil
}

// node reads the inode nid, and below it if it is a directory.
func (r *treeReader) node(nid uint64, want byte, depth int) (*node, error) {
	if old := r.nodes[nid]; old != nil {
		if old.isDir() || kind(old.mode) != want {
			return nil, badImage("inode %d has a second place", nid)
		}
		return old, nil
	}
	if r.t.count++; r.t.count > maxNodes {
		return nil, errTooMany
	}
	if nid > uint64(r.size)/slotSize {
		return nil, badImage("inode %d", nid)
	}
	at := metaBlock*blockSize + int64(nid)*slotSize
	b, err := r.meta(at, inodeSize)
	if err != nil {
		return nil, err
	}
	format, size, block := le.Uint16(b), le.Uint64(b[8:]), int64(le.Uint32(b[16:]))
	n := &node{
		mode: uint32(le.Uint16(b[4:])), uid: le.Uint32(b[24:]), gid: le.Uint32(b[28:]),
		mtime: int64(le.Uint64(b[32:])), nsec: le.Uint32(b[40:]),
	}
	inline := format == 1|layoutInline<<1
	switch {
	case format != 1|layoutPlain<<1 && !inline, le.Uint16(b[2:]) != 0, n.nsec >= 1e9:
		return nil, badImage("inode %d of format %#x", nid, format)
	case kind(n.mode) != want || want == kindFile && !n.isFile():
		return nil, badImage("inode %d has mode %o", nid, n.mode)
	case inline && want != kindLink:
		return nil, badImage("inode %d has its data inside", nid)
	case !inline && (size > uint64(r.size) || size > 0 && want != kindChar && (block < metaBlock || block*blockSize+int64(size) > r.size)):
		return nil, badImage("inode %d has its %d bytes at block %d", nid, size, block)
	}
	r.nodes[nid] = n
	switch want {
	case kindFile:
		if n.size = int64(size); n.size > 0 {
			n.src = rangeSource{r.f, block * blockSize, n.size}
		}
	case kindLink:
		from := block * blockSize
		if inline {
			from = at + inodeSize
		}
		if size == 0 || size >= maxPath {
			return nil, badImage("symlink of %d bytes", size)
		}
		b, err := r.meta(from, int(size))
		if err != nil {
			return nil, err
		}
		n.target = string(b)
		if strings.IndexByte(n.target, 0) >= 0 {
			return nil, badImage("symlink with a zero byte")
		}
	case kindChar:
		if size != 0 || block != 0 {
			return nil, badImage("inode %d is a device", nid)
		}
	case kindDir:
		n.kids = map[string]*node{}
		if err := r.dir(n, block*blockSize, int64(size), depth); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// dir reads the entries of a directory. Names come sorted, each once.
func (r *treeReader) dir(n *node, off, size int64, depth int) error {
	if depth >= maxDepth {
		return errNested
	}
	last := ""
	block := make([]byte, blockSize)
	for ; size > 0; size, off = size-blockSize, off+blockSize {
		b := block[:min(size, blockSize)]
		if err := readFull(r.f, b, off); err != nil {
			return fmt.Errorf("read image: %w", err)
		}
		if len(b) < direntSize {
			return badImage("directory of %d bytes", len(b))
		}
		first := int(le.Uint16(b[8:]))
		count := first / direntSize
		if count == 0 || first%direntSize != 0 || first > len(b) {
			return badImage("names at %d of %d", first, len(b))
		}
		for i := range count {
			d := b[i*direntSize:]
			from, to := int(le.Uint16(d[8:])), len(b)
			if i+1 < count {
				to = int(le.Uint16(d[direntSize+8:]))
			}
			if from < first || to > len(b) || from >= to {
				return badImage("a name from %d to %d", from, to)
			}
			name := b[from:to]
			if i+1 == count { // zeros behind the last one
				if end := bytes.IndexByte(name, 0); end >= 0 {
					name = name[:end]
				}
			}
			if s := string(name); s <= last {
				return badImage("%.80q after %.80q", s, last)
			} else {
				last = s
			}
			if last == "." || last == ".." {
				continue
			}
			if len(last) > maxName || strings.ContainsAny(last, "/\x00") {
				return badImage("a name %.80q", last)
			}
			kid, err := r.node(le.Uint64(d), d[10], depth+1)
			if err != nil {
				return err
			}
			n.kids[last] = kid
		}
	}
	return nil
}

// readFull fills b from off.
func readFull(f io.ReaderAt, b []byte, off int64) error {
	n, err := f.ReadAt(b, off)
	if n == len(b) {
		return nil
	}
	if err == nil || err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return err
}
