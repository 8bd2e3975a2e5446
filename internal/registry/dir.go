package registry

import (
	"archive/tar"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"syscall"
	"time"
)

// maxDepth bounds directories below the one that holds a layout.
const maxDepth = 8

// IsLayout says whether a directory holds images rather than a root
// filesystem: an OCI layout, or what docker save writes, unpacked.
func IsLayout(dir string) bool {
	has := func(name string) bool {
		info, err := os.Lstat(path.Join(dir, name))
		return err == nil && info.Mode().IsRegular()
	}
	return has("oci-layout") && has("index.json") || has("manifest.json") && !has("etc/passwd") && !has("bin/sh")
}

// TarDir writes a directory of images as the archive that ReadArchive reads.
// Nothing in it is followed out of it, and nothing is parsed.
func TarDir(dir string, w io.Writer) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	d := &dirTar{root: root, to: tar.NewWriter(w)}
	if err := d.walk(".", 0); err != nil {
		return fmt.Errorf("directory %s: %w", dir, err)
	}
	return d.to.Close()
}

type dirTar struct {
	root  *os.Root
	to    *tar.Writer
	count int
}

func (d *dirTar) walk(dir string, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("%s: directories are too deep for images", dir)
	}
	f, err := d.root.Open(dir)
	if err != nil {
		return err
	}
	names, err := f.Readdirnames(maxEntries + 1)
	f.Close()
	if err != nil && err != io.EOF {
		return err
	}
	slices.Sort(names)
	for _, name := range names {
		if d.count++; d.count > maxEntries {
			return fmt.Errorf("more than %d entries", maxEntries)
		}
		if err := d.add(path.Join(dir, name), depth); err != nil {
			return err
		}
	}
	return nil
}

func (d *dirTar) add(name string, depth int) error {
	info, err := d.root.Lstat(name)
	if err != nil {
		return err
	}
	h := &tar.Header{Name: name, Mode: 0o644, ModTime: time.Unix(0, 0)}
	switch info.Mode().Type() {
	case fs.ModeDir:
		return d.walk(name, depth+1)
	case fs.ModeSymlink:
		if h.Linkname, err = d.root.Readlink(name); err != nil {
			return err
		}
		h.Typeflag = tar.TypeSymlink
		return d.to.WriteHeader(h)
	case 0:
	default:
		return nil
	}
	f, err := d.root.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil || !info.Mode().IsRegular() {
		return err
	}
	h.Typeflag, h.Size = tar.TypeReg, info.Size()
	if err := d.to.WriteHeader(h); err != nil {
		return err
	}
	_, err = io.CopyN(d.to, f, h.Size)
	return err
}
