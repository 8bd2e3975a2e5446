package image

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path"
	"testing"
)

// seen is one path of an image as a reader finds it.
type seen struct {
	nid      uint64
	mode     uint32
	uid, gid uint32
	nlink    uint32
	mtime    int64
	target   string
	content  []byte
	size     int64
}

// readImage reads a whole image and checks every rule of the format on the way.
// Content of files beyond keep bytes is not kept.
func readImage(t testing.TB, file string, keep int64) map[string]seen {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, _ := f.Stat()
	r := imageReader{f: f, keep: keep, out: map[string]seen{}, links: map[uint64]uint32{}}
	if err := r.read(info.Size()); err != nil {
		t.Fatalf("image %s: %v", file, err)
	}
	return r.out
}

type imageReader struct {
	f      io.ReaderAt
	blocks int64
	inos   uint64
	keep   int64
	out    map[string]seen
	links  map[uint64]uint32 // names found of each inode
	used   map[int64]uint64  // block -> nid
}

func (r *imageReader) read(size int64) error {
	sb := make([]byte, superSize)
	if _, err := r.f.ReadAt(sb, superAt); err != nil {
		return err
	}
	if le.Uint32(sb) != superMagic || sb[12] != 12 || le.Uint32(sb[80:]) != 0 {
		return fmt.Errorf("bad superblock % x", sb)
	}
	r.blocks, r.inos, r.used = int64(le.Uint32(sb[36:])), le.Uint64(sb[16:]), map[int64]uint64{}
	if r.blocks*blockSize != size {
		return fmt.Errorf("%d blocks in %d bytes", r.blocks, size)
	}
	root := uint64(le.Uint16(sb[14:]))
	if err := r.inode("/", root, root, kindDir); err != nil {
		return err
	}
	if uint64(len(r.links)) != r.inos {
		return fmt.Errorf("%d inodes found, %d promised", len(r.links), r.inos)
	}
	for p, s := range r.out {
		if s.mode&typeMask != typeDir && s.nlink != r.links[s.nid] {
			return fmt.Errorf("%s: nlink %d, names %d", p, s.nlink, r.links[s.nid])
		}
	}
	return nil
}

func (r *imageReader) inode(p string, nid, parent uint64, want byte) error {
	b := make([]byte, inodeSize)
	at := metaBlock*blockSize + int64(nid)*slotSize
	if _, err := r.f.ReadAt(b, at); err != nil {
		return err
	}
	format := le.Uint16(b)
	s := seen{
		nid: nid, mode: uint32(le.Uint16(b[4:])), size: int64(le.Uint64(b[8:])), uid: le.Uint32(b[24:]), gid: le.Uint32(b[28:]),
		mtime: int64(le.Uint64(b[32:])), nlink: le.Uint32(b[44:]),
	}
	if format&1 != 1 || le.Uint16(b[2:]) != 0 || kind(s.mode) != want || at%blockSize+inodeSize > blockSize {
		return fmt.Errorf("%s: inode % x", p, b)
	}
	block := int64(le.Uint32(b[16:]))
	first := r.links[nid] == 0
	r.links[nid]++
	if first {
		for i := range roundUp(s.size, blockSize) / blockSize {
			if format>>1 != layoutPlain {
				break
			}
			if block+i < metaBlock || block+i >= r.blocks {
				return fmt.Errorf("%s: block %d of %d", p, block+i, r.blocks)
			}
			if by, ok := r.used[block+i]; ok {
				return fmt.Errorf("%s: block %d belongs to inode %d too", p, block+i, by)
			}
			r.used[block+i] = nid
		}
	}
	read := func(at, n int64) ([]byte, error) {
		out := make([]byte, n)
		_, err := r.f.ReadAt(out, at)
		return out, err
	}
	var err error
	switch want {
	case kindLink:
		from := block * blockSize
		if format>>1 == layoutInline {
			from = at + inodeSize
			if from/blockSize != (from+s.size-1)/blockSize {
				return fmt.Errorf("%s: target crosses a block", p)
			}
		}
		var target []byte
		target, err = read(from, s.size)
		s.target = string(target)
	case kindFile:
		if format>>1 != layoutPlain {
			return fmt.Errorf("%s: file with layout %d", p, format>>1)
		}
		s.content, err = read(block*blockSize, min(s.size, r.keep))
	case kindDir:
		var data []byte
		if data, err = read(block*blockSize, s.size); err == nil {
			err = r.dir(p, data, nid, parent, s.nlink)
		}
	}
	r.out[p] = s
	return err
}

func (r *imageReader) dir(p string, data []byte, nid, parent uint64, nlink uint32) error {
	last, dirs := "", uint32(0)
	for len(data) > 0 {
		block := data[:min(len(data), blockSize)]
		data = data[len(block):]
		count := int(le.Uint16(block[8:])) / direntSize
		for i := range count {
			d := block[i*direntSize:]
			from, to := int(le.Uint16(d[8:])), len(block)
			if i+1 < count {
				to = int(le.Uint16(d[direntSize+8:]))
			}
			name := string(bytes.TrimRight(block[from:to], "\x00"))
			if name <= last {
				return fmt.Errorf("%s: %q after %q", p, name, last)
			}
			last = name
			kid := le.Uint64(d)
			if d[10] == kindDir {
				dirs++
			}
			switch name {
			case ".":
				if kid != nid {
					return fmt.Errorf("%s: . is %d", p, kid)
				}
			case "..":
				if kid != parent {
					return fmt.Errorf("%s: .. is %d, not %d", p, kid, parent)
				}
			default:
				if err := r.inode(path.Join(p, name), kid, nid, d[10]); err != nil {
					return err
				}
			}
		}
	}
	if dirs != nlink {
		return fmt.Errorf("%s: nlink %d with %d directories", p, nlink, dirs)
	}
	return nil
}
