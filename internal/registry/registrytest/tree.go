package registrytest

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"path"
	"strings"
	"syscall"
)

// A Node is one entry of an unpacked root, as lstat and read see it.
type Node struct {
	Mode     uint32 // as in st_mode
	UID, GID uint32
	Size     int64  // of a regular file
	Hash     string // of its content, SHA-256 in hex
	Target   string // of a symlink
	MTime    int64  // of a regular file, in seconds
}

func (n Node) String() string {
	s := fmt.Sprintf("%o %d:%d", n.Mode, n.UID, n.GID)
	switch n.Mode & syscall.S_IFMT {
	case syscall.S_IFREG:
		s += fmt.Sprintf(" %d bytes %.12s at %d", n.Size, n.Hash, n.MTime)
	case syscall.S_IFLNK:
		s += " -> " + n.Target
	}
	return s
}

// A Tree is a root by cleaned absolute path. Names of one file share a Node.
type Tree map[string]*Node

// Unpack does with the archive of a whole root what tar does, in memory:
// entries in order, through the symlinks that are there already, hard links at
// the end since an archive made from layers has them in any order.
func Unpack(r io.Reader) (Tree, error) {
	t := Tree{"/": {Mode: syscall.S_IFDIR | 0o755}}
	var links [][2]string
	tr := tar.NewReader(r)
	for {
		h, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		name := t.place(path.Join("/", h.Name))
		if h.Typeflag == tar.TypeLink {
			links = append(links, [2]string{name, path.Join("/", h.Linkname)})
			continue
		}
		n := &Node{Mode: uint32(h.Mode & 0o7777), UID: uint32(h.Uid), GID: uint32(h.Gid)}
		switch h.Typeflag {
		case tar.TypeReg, tar.TypeGNUSparse:
			sum := sha256.New()
			if n.Size, err = io.Copy(sum, tr); err != nil {
				return nil, err
			}
			n.Mode, n.Hash, n.MTime = n.Mode|syscall.S_IFREG, hex.EncodeToString(sum.Sum(nil)), h.ModTime.Unix()
		case tar.TypeDir:
			n.Mode |= syscall.S_IFDIR
		case tar.TypeSymlink:
			n.Mode, n.Target = syscall.S_IFLNK|0o777, h.Linkname
		case tar.TypeFifo:
			n.Mode |= syscall.S_IFIFO
		case tar.TypeChar:
			n.Mode |= syscall.S_IFCHR
		case tar.TypeBlock:
			n.Mode |= syscall.S_IFBLK
		}
		if old := t[name]; n.Mode&syscall.S_IFMT != syscall.S_IFDIR && old != nil && old.Mode&syscall.S_IFMT == syscall.S_IFDIR {
			for p := range t {
				if strings.HasPrefix(p, name+"/") {
					delete(t, p)
				}
			}
		}
		t[name] = n
	}
	for range links { // one may lead to another
		for _, l := range links {
			if n := t[t.place(l[1])]; n != nil {
				t[l[0]] = n
			}
		}
	}
	return t, nil
}

// place is where a name is once the symlinks among its parents are followed.
// Parents that are missing are made.
func (t Tree) place(name string) string {
	for range 40 {
		at, again := "", false
		parts := strings.Split(strings.Trim(name, "/"), "/")
		for i, part := range parts[:len(parts)-1] {
			at += "/" + part
			n := t[at]
			if n == nil {
				t[at] = &Node{Mode: syscall.S_IFDIR | 0o755}
				continue
			}
			if n.Mode&syscall.S_IFMT == syscall.S_IFLNK {
				to := n.Target
				if !path.IsAbs(to) {
					to = path.Join(path.Dir(at), to)
				}
				name, again = path.Join(append([]string{"/", to}, parts[i+1:]...)...), true
				break
			}
		}
		if !again {
			break
		}
	}
	return path.Clean(name)
}
