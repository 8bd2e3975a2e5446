package agent

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"path"
	"strings"
	"syscall"

	"github.com/bermhq/berm/internal/guest"
)

// tarIn unpacks below a directory and nowhere else: os.Root holds every name
// and every link on the way.
func (fs Files) tarIn(r guest.FileRequest, src io.Reader) error {
	full, err := fs.abs(r.Path)
	if err != nil {
		return err
	}
	if err := fs.mkdirAll(full, 0o755, r.UID, r.GID); err != nil {
		return err
	}
	root, err := os.OpenRoot(full)
	if err != nil {
		return err
	}
	defer root.Close()
	in := unpacker{fs: fs, root: root, uid: int(r.UID), gid: int(r.GID), keep: r.Keep}
	tr := tar.NewReader(src)
	for {
		h, err := tr.Next()
		if err == io.EOF {
			// What follows the end of the archive is padding.
			_, err := io.Copy(io.Discard, src)
			return err
		}
		if err != nil {
			return err
		}
		if err := in.entry(h, tr); err != nil {
			return errors.Join(errors.New(h.Name), err)
		}
	}
}

type unpacker struct {
	fs       Files
	root     *os.Root
	uid, gid int
	keep     bool // what the archive says of owners and modes counts
}

func (in unpacker) entry(h *tar.Header, src io.Reader) error {
	name := path.Clean(strings.TrimLeft(h.Name, "/"))
	if name == "." || h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	if name == ".." || strings.HasPrefix(name, "../") {
		return syscall.EINVAL
	}
	if err := in.parents(path.Dir(name)); err != nil {
		return err
	}
	mode := os.FileMode(h.Mode & 0o777)
	if in.keep {
		mode = h.FileInfo().Mode() & (os.ModePerm | os.ModeSetuid | os.ModeSetgid | os.ModeSticky)
		in.uid, in.gid = h.Uid, h.Gid // in is a copy
	}
	switch h.Typeflag {
	case tar.TypeDir:
		if st, err := in.root.Lstat(name); err != nil || !st.IsDir() {
			in.root.Remove(name)
			if err := in.root.Mkdir(name, 0o700); err != nil {
				return err
			}
		}
		if err := in.own(name); err != nil {
			return err
		}
		return in.root.Chmod(name, mode)
	case tar.TypeReg:
		return in.file(name, mode, h, src)
	case tar.TypeSymlink:
		if err := in.clear(name); err != nil {
			return err
		}
		if err := in.root.Symlink(h.Linkname, name); err != nil {
			return err
		}
		return in.own(name)
	case tar.TypeLink:
		if err := in.clear(name); err != nil {
			return err
		}
		return in.root.Link(path.Clean(strings.TrimLeft(h.Linkname, "/")), name)
	}
	return syscall.EPERM // devices, pipes
}

func (in unpacker) file(name string, mode os.FileMode, h *tar.Header, src io.Reader) error {
	if err := in.clear(name); err != nil {
		return err
	}
	f, err := in.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := io.Copy(f, src); err != nil {
		return err
	}
	if in.fs.Own {
		if err := f.Chown(in.uid, in.gid); err != nil {
			return err
		}
	}
	if err := f.Chmod(mode); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if !h.ModTime.IsZero() {
		in.root.Chtimes(name, h.ModTime, h.ModTime)
	}
	return nil
}

// clear makes room for a new entry: a link there is removed, not followed.
func (in unpacker) clear(name string) error {
	err := in.root.Remove(name)
	if err == nil || errors.Is(err, syscall.ENOENT) {
		return nil
	}
	return err
}

func (in unpacker) parents(dir string) error {
	if dir == "." {
		return nil
	}
	if st, err := in.root.Stat(dir); err == nil {
		if !st.IsDir() {
			return syscall.ENOTDIR
		}
		return nil
	}
	if err := in.parents(path.Dir(dir)); err != nil {
		return err
	}
	if err := in.root.Mkdir(dir, 0o755); err != nil {
		return err
	}
	return in.own(dir)
}

func (in unpacker) own(name string) error {
	if !in.fs.Own {
		return nil
	}
	return in.root.Lchown(name, in.uid, in.gid)
}

// tarOut packs trees below a directory. Sockets, pipes and devices are left
// out; a file that shrinks while it is read fails the archive.
func (fs Files) tarOut(ctx context.Context, r guest.FileRequest, dst io.Writer) error {
	full, err := fs.abs(r.Path)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(full)
	if err != nil {
		return err
	}
	defer root.Close()
	gather := bufio.NewWriterSize(dst, 96<<10)
	tw := tar.NewWriter(gather)
	for _, p := range r.Paths {
		p = path.Clean(strings.TrimLeft(p, "/"))
		if p == ".." || strings.HasPrefix(p, "../") {
			return syscall.EINVAL
		}
		if err := pack(ctx, root, p, tw, 0); err != nil {
			return err
		}
	}
	if err := tw.Close(); err != nil {
		return err
	}
	return gather.Flush()
}

func pack(ctx context.Context, root *os.Root, name string, tw *tar.Writer, depth int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if depth > maxDepth {
		return syscall.ELOOP
	}
	st, err := root.Lstat(name)
	if err != nil {
		return err
	}
	h := &tar.Header{Name: name, Mode: int64(st.Mode().Perm()), ModTime: st.ModTime(), Format: tar.FormatPAX}
	if s, ok := st.Sys().(*syscall.Stat_t); ok {
		h.Uid, h.Gid = int(s.Uid), int(s.Gid)
	}
	switch m := st.Mode(); {
	case m.IsDir():
		h.Typeflag, h.Name = tar.TypeDir, name+"/"
		if err := tw.WriteHeader(h); err != nil {
			return err
		}
		return packDir(ctx, root, name, tw, depth)
	case m&os.ModeSymlink != 0:
		h.Typeflag = tar.TypeSymlink
		if h.Linkname, err = root.Readlink(name); err != nil {
			return err
		}
		return tw.WriteHeader(h)
	case m.IsRegular():
		return packFile(root, name, tw, h)
	}
	return nil
}

func packDir(ctx context.Context, root *os.Root, name string, tw *tar.Writer, depth int) error {
	d, err := root.OpenFile(name, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	ents, err := d.ReadDir(-1)
	d.Close()
	if err != nil {
		return err
	}
	for _, e := range ents {
		err := pack(ctx, root, path.Join(name, e.Name()), tw, depth+1)
		if err != nil && !errors.Is(err, syscall.ENOENT) {
			return err
		}
	}
	return nil
}

func packFile(root *os.Root, name string, tw *tar.Writer, h *tar.Header) error {
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if err := mustBeRegular(st); err != nil {
		return err
	}
	h.Typeflag, h.Size = tar.TypeReg, st.Size()
	if err := tw.WriteHeader(h); err != nil {
		return err
	}
	n, err := io.CopyN(tw, f, h.Size)
	if n < h.Size && (err == nil || err == io.EOF) {
		return errors.New(name + ": file shrank while it was read")
	}
	return err
}
