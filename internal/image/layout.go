package image

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// The subset of EROFS that is written and read here: blocks of 4096 bytes,
// extended inodes, plain data, symlink targets behind their inode, no
// attributes, no compression, no devices but whiteouts. Metadata starts in block 1, the root's inode
// first; then come directories and files, each from a block of its own.
const (
	blockSize  = 4096
	slotSize   = 32 // what a nid counts in
	inodeSize  = 64
	direntSize = 12
	superAt    = 1024
	superSize  = 128
	superMagic = 0xe0f5e1e2
	metaBlock  = 1

	layoutPlain  = 0
	layoutInline = 2

	kindFile = 1
	kindDir  = 2
	kindChar = 3
	kindLink = 7
)

var le = binary.LittleEndian

func roundUp(n, to int64) int64 { return (n + to - 1) / to * to }

func kind(mode uint32) byte {
	switch mode & typeMask {
	case typeDir:
		return kindDir
	case typeLink:
		return kindLink
	case typeChar:
		return kindChar
	}
	return kindFile
}

// A plan is a tree with a place for everything.
type plan struct {
	nodes      []*node // each inode once, the root first
	metaBlocks int64
	blocks     int64 // of the whole image
	data       int64 // bytes of regular files
}

// layOut gives every inode its number, counts its links, and places its data.
func layOut(t *tree) (*plan, error) {
	p := &plan{}
	seen := map[*node]bool{}
	var visit func(n, parent *node)
	visit = func(n, parent *node) {
		n.nlink++
		if seen[n] {
			return
		}
		seen[n] = true
		n.nlink, n.parent, n.block, n.dirent = 1, parent, 0, nil
		p.nodes = append(p.nodes, n)
		if n.isDir() {
			n.nlink = 2
			for _, name := range sortedNames(n) {
				kid := n.kids[name]
				if kid.isDir() {
					n.nlink++
				}
				visit(kid, n)
			}
		}
	}
	visit(t.root, t.root)

	pos := int64(0)
	for _, n := range p.nodes {
		need := int64(inodeSize)
		if n.isLink() {
			if len(n.target) == 0 || len(n.target) >= maxPath {
				return nil, fmt.Errorf("symlink target of %d bytes: %w", len(n.target), errBadName)
			}
			if inlines(n) {
				need += int64(len(n.target))
			}
		}
		if pos%blockSize+need > blockSize {
			pos = roundUp(pos, blockSize)
		}
		n.nid = uint64(pos / slotSize)
		pos += roundUp(need, slotSize)
	}
	p.metaBlocks = roundUp(pos, blockSize) / blockSize
	next := metaBlock + p.metaBlocks
	place := func(n *node, size int64) {
		if size > 0 {
			n.block = uint32(next)
			next += roundUp(size, blockSize) / blockSize
		}
	}
	for _, n := range p.nodes {
		switch {
		case n.isDir():
			n.dirent = dirents(n)
			place(n, int64(len(n.dirent)))
		case n.isLink() && !inlines(n):
			place(n, int64(len(n.target)))
		}
	}
	for _, n := range p.nodes {
		if n.isFile() {
			place(n, n.size)
			p.data += n.size
		}
		if next > 1<<32-1 {
			return nil, fmt.Errorf("image of more than %d bytes", int64(blockSize)<<32)
		}
	}
	p.blocks = next
	return p, nil
}

func inlines(n *node) bool { return n.isLink() && inodeSize+len(n.target) <= blockSize }

func sortedNames(n *node) []string {
	names := make([]string, 0, len(n.kids))
	for name := range n.kids {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// dirents encodes a directory: each block holds its entries, then their names,
// sorted by bytes over the whole directory.
func dirents(n *node) []byte {
	names := append(sortedNames(n), ".", "..")
	slices.Sort(names)
	target := func(name string) *node {
		switch name {
		case ".":
			return n
		case "..":
			return n.parent
		}
		return n.kids[name]
	}
	var out []byte
	for len(names) > 0 {
		fit, size := 0, 0
		for fit < len(names) && size+direntSize+len(names[fit]) <= blockSize {
			size += direntSize + len(names[fit])
			fit++
		}
		block := make([]byte, size, blockSize)
		at := direntSize * fit
		for i, name := range names[:fit] {
			d, kid := block[direntSize*i:], target(name)
			le.PutUint64(d, kid.nid)
			le.PutUint16(d[8:], uint16(at))
			d[10] = kind(kid.mode)
			at += copy(block[at:], name)
		}
		if names = names[fit:]; len(names) > 0 {
			block = block[:blockSize] // zeros behind the last name
		}
		out = append(out, block...)
	}
	return out
}

// metadata encodes all inodes.
func (p *plan) metadata() []byte {
	meta := make([]byte, p.metaBlocks*blockSize)
	for i, n := range p.nodes {
		b := meta[n.nid*slotSize:]
		format, size := uint16(1|layoutPlain<<1), n.size
		switch {
		case n.isDir():
			size = int64(len(n.dirent))
		case n.isLink():
			size = int64(len(n.target))
			if inlines(n) {
				format = 1 | layoutInline<<1
				copy(b[inodeSize:], n.target)
			}
		}
		le.PutUint16(b[0:], format)
		le.PutUint16(b[4:], uint16(n.mode))
		le.PutUint64(b[8:], uint64(size))
		le.PutUint32(b[16:], n.block)
		le.PutUint32(b[20:], uint32(i+1))
		le.PutUint32(b[24:], n.uid)
		le.PutUint32(b[28:], n.gid)
		le.PutUint64(b[32:], uint64(n.mtime))
		le.PutUint32(b[40:], n.nsec)
		le.PutUint32(b[44:], n.nlink)
	}
	return meta
}

func (p *plan) super() []byte {
	b := make([]byte, superSize)
	le.PutUint32(b[0:], superMagic)
	b[12] = 12 // log2 of the block size
	le.PutUint16(b[14:], uint16(p.nodes[0].nid))
	le.PutUint64(b[16:], uint64(len(p.nodes)))
	le.PutUint32(b[36:], uint32(p.blocks))
	le.PutUint32(b[40:], metaBlock)
	return b
}
