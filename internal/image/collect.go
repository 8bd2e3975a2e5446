package image

import (
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
)

// A collector copies parts of the host into a tree, under the paths they have
// on the host. It never adds what lies outside allowed, whichever symlink leads
// there, nor what others may not read.
type collector struct {
	root    *os.Root
	tree    *tree
	m       *meter
	allowed []string
	banned  []string // left out with everything below
	prune   []string
	inodes  map[inode]*node
	have    map[string]bool // canonical paths that are in
	link    *linker
	added   []binding // since the group began
	bytes   int64     // of files, in blocks
}

type inode struct{ dev, ino uint64 }

// A binding is what an optional group has to take back.
type binding struct {
	dir  *node
	name string
	path string
	id   inode
	size int64
}

func rel(p string) string { return strings.TrimPrefix(p, "/") }

func (c *collector) permitted(p string) bool { return belowAny(p, c.allowed) && !belowAny(p, c.banned) }

// lstat looks at a host path without following its last name.
func (c *collector) lstat(p string) (fs.FileInfo, error) { return c.root.Lstat(rel(p)) }

// take adds whatever p means, with the symlinks that lead there, and returns
// whether there is anything. Directories are taken whole.
func (c *collector) take(p string) bool {
	real, links, err := c.resolve(p)
	if err != nil {
		return false
	}
	info, err := c.lstat(real)
	if err != nil || !c.addAny(real, info) {
		return false
	}
	for _, l := range links {
		if info, err := c.lstat(l); err == nil {
			c.bind(l, info)
		}
	}
	return true
}

// addAny adds a canonical path, a directory with all its entries.
func (c *collector) addAny(p string, info fs.FileInfo) bool {
	switch {
	case info.IsDir():
		return c.addTree(p, info)
	case info.Mode().IsRegular():
		return c.addFile(p, info)
	}
	return false
}

func (c *collector) addFile(p string, info fs.FileInfo) bool {
	if c.have[p] {
		return true
	}
	if info.Mode().Perm()&0o004 == 0 || strings.HasSuffix(p, ".a") && info.Size() > maxArchive {
		return false
	}
	if !c.bind(p, info) {
		return false
	}
	for _, lib := range c.link.needs(c.root, p, info) {
		c.take(lib)
	}
	return true
}

func (c *collector) addTree(p string, info fs.FileInfo) bool {
	if c.have[p+"/"] { // the slash: all of it, not only the directory
		return true
	}
	if info.Mode().Perm()&0o005 != 0o005 || !c.bind(p, info) {
		return false
	}
	c.have[p+"/"] = true
	c.added = append(c.added, binding{path: p + "/"})
	dir, err := c.root.Open(rel(p))
	if err != nil {
		return false
	}
	names, _ := dir.Readdirnames(-1)
	dir.Close()
	for _, name := range names {
		kid := path.Join(p, name)
		if !c.permitted(kid) || c.pruned(kid, name) {
			continue
		}
		info, err := c.lstat(kid)
		if err != nil {
			continue
		}
		if info.Mode()&fs.ModeSymlink != 0 {
			c.addLink(kid, info)
			continue
		}
		c.addAny(kid, info)
	}
	return true
}

// addLink adds a symlink found in a directory, and what it means if that may be
// had; else it dangles. A directory far up (/usr/share, say) does not follow
// from a symlink to it.
func (c *collector) addLink(p string, info fs.FileInfo) {
	if c.have[p] || !c.bind(p, info) {
		return
	}
	real, _, err := c.resolve(p)
	if err != nil || c.pruned(real, path.Base(real)) {
		return
	}
	if info, err := c.lstat(real); err == nil && (!info.IsDir() || strings.Count(real, "/") >= 4) {
		c.take(p)
	}
}

func (c *collector) pruned(p, name string) bool {
	for _, pat := range c.prune {
		subject := name
		if strings.HasPrefix(pat, "/") {
			subject = p
		}
		if ok, _ := path.Match(pat, subject); ok {
			return true
		}
	}
	return false
}

// bind puts one inode into the tree. The owner becomes root; what others could
// write, and set-id bits, are dropped.
func (c *collector) bind(p string, info fs.FileInfo) bool { return c.bindAs(p, p, info) }

// bindAs puts the inode that is at from on the host at p in the tree.
func (c *collector) bindAs(p, from string, info fs.FileInfo) bool {
	if c.have[p] {
		return true
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || c.m.add(0, 1) != nil {
		return false
	}
	n := &node{mode: st.Mode&typeMask | st.Mode&0o755, mtime: st.Mtim.Sec, nsec: uint32(st.Mtim.Nsec)}
	b := binding{path: p}
	switch {
	case n.isDir():
		n.kids = map[string]*node{}
	case n.isLink():
		target, err := c.root.Readlink(rel(from))
		if err != nil || target == "" {
			return false
		}
		n.target, n.mode = target, typeLink|0o777
	default:
		id := inode{st.Dev, st.Ino}
		if old := c.inodes[id]; old != nil && st.Nlink > 1 {
			n = old
			break
		}
		n.size, n.src = st.Size, fileSource{c.root, rel(from)}
		b.id, b.size = id, roundUp(st.Size, blockSize)
		c.inodes[id] = n
	}
	if err := c.tree.add(p, n); err != nil {
		return false
	}
	c.bytes += b.size + inodeSize
	c.have[p] = true
	b.dir, b.name = c.tree.find(path.Dir(p)), path.Base(p)
	c.added = append(c.added, b)
	return true
}

// undo takes back what was added since the group began.
func (c *collector) undo() {
	for i := len(c.added) - 1; i >= 0; i-- {
		b := c.added[i]
		delete(c.have, b.path)
		if b.dir == nil {
			continue
		}
		if kid := b.dir.kids[b.name]; kid != nil {
			if len(kid.kids) > 0 { // made as a parent by an earlier group
				continue
			}
			delete(b.dir.kids, b.name)
			c.tree.count--
		}
		if b.size > 0 {
			delete(c.inodes, b.id)
		}
		c.bytes -= b.size + inodeSize
	}
	c.added = nil
}
