package image

import (
	"archive/tar"
	"context"
	"io"
	"os"
	"strings"
	"time"
)

// WriteTar writes images, lowest first, as they look when they are stacked.
func WriteTar(ctx context.Context, layers []*os.File, w io.Writer) error {
	k := Making{Below: layers}
	t, _, err := k.readBelow(newMeter(ctx, nil))
	if err != nil {
		return k.explain(err)
	}
	return writeTar(ctx, t, w)
}

// WriteLayerTar writes one image as an archive of changes, with OCI's marks for
// what it takes away. The same image gives the same bytes.
func WriteLayerTar(ctx context.Context, layer *os.File, w io.Writer) error {
	info, err := layer.Stat()
	if err != nil {
		return err
	}
	t, err := readTree(layer, info.Size())
	if err != nil {
		return (&Making{}).explain(err)
	}
	return writeTar(ctx, t, w)
}

func writeTar(ctx context.Context, t *tree, w io.Writer) error {
	tw := tar.NewWriter(w)
	a := tarWriter{ctx: ctx, w: tw, names: map[*node]string{}}
	if err := a.put("./", t.root); err != nil {
		return err
	}
	if err := a.dir("", t.root); err != nil {
		return err
	}
	return tw.Close()
}

type tarWriter struct {
	ctx   context.Context
	w     *tar.Writer
	names map[*node]string // of files that are in
}

func (a *tarWriter) dir(at string, dir *node) error {
	for _, name := range sortedNames(dir) {
		kid := dir.kids[name]
		path := at + name
		if kid.isDir() {
			path += "/"
		}
		if kid.isGone() {
			path = at + markGone + name
		}
		if err := a.put(path, kid); err != nil {
			return err
		}
		if kid.isDir() {
			if err := a.dir(path, kid); err != nil {
				return err
			}
		}
	}
	return nil
}

func (a *tarWriter) put(path string, n *node) error {
	if err := a.ctx.Err(); err != nil {
		return err
	}
	h := &tar.Header{Name: path, Mode: int64(n.mode & 0o7777), Uid: int(n.uid), Gid: int(n.gid), ModTime: time.Unix(n.mtime, int64(n.nsec)), Format: tar.FormatPAX}
	switch {
	case n.isGone():
		h.Typeflag, h.ModTime = tar.TypeReg, time.Unix(0, 0)
	case n.isDir():
		h.Typeflag = tar.TypeDir
	case n.isLink():
		h.Typeflag, h.Linkname = tar.TypeSymlink, n.target
	default:
		h.Typeflag, h.Size = tar.TypeReg, n.size
	}
	if first, ok := a.names[n]; ok && !n.isDir() && !n.isGone() {
		h.Typeflag, h.Linkname, h.Size = tar.TypeLink, first, 0
	} else if !n.isDir() {
		a.names[n] = strings.TrimPrefix(path, "./")
	}
	if err := a.w.WriteHeader(h); err != nil {
		return err
	}
	if h.Size == 0 {
		return nil
	}
	src, ok := n.src.(rangeSource)
	if !ok {
		return errImage
	}
	_, err := io.Copy(a.w, io.NewSectionReader(src.from, src.off, src.size))
	return err
}
