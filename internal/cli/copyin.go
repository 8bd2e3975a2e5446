package cli

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/bermhq/berm/api"
)

// A copyIn is one thing to copy into a sandbox: a file or folder of this host,
// or bytes.
type copyIn struct {
	local string
	dest  string // inside, absolute and clean
	data  []byte // instead of local
	mode  int64  // of data, whose time is now
}

// parseIn reads LOCAL[:PATH]. A PATH that ends in a slash is a folder to copy
// into; without PATH the name stays and goes below /workspace. If all of s is
// the name of something here, that is meant, colons and all.
func parseIn(s string) (copyIn, error) {
	local, dest, has := s, "", false
	if i := strings.LastIndexByte(s, ':'); i >= 0 && !exists(s) {
		local, dest, has = s[:i], s[i+1:], true
	}
	if local == "" || has && dest == "" {
		return copyIn{}, fmt.Errorf("is not LOCAL[:PATH]")
	}
	fi, err := os.Stat(local)
	if err != nil {
		return copyIn{}, fmt.Errorf("%w", unwrapPath(err))
	}
	if !fi.IsDir() && !fi.Mode().IsRegular() {
		return copyIn{}, fmt.Errorf("is neither a file nor a folder")
	}
	abs, err := filepath.Abs(local)
	if err != nil {
		return copyIn{}, err
	}
	base := filepath.Base(abs)
	if base == "/" && (!has || strings.HasSuffix(dest, "/")) {
		return copyIn{}, fmt.Errorf("needs a name inside, as in /:PATH")
	}
	if !has {
		dest = base
	} else if strings.HasSuffix(dest, "/") || dest == "." && !fi.IsDir() {
		dest = path.Join(dest, base)
	}
	for part := range strings.SplitSeq(dest, "/") {
		if part == ".." {
			return copyIn{}, fmt.Errorf("the path inside has a .. in it")
		}
	}
	if !path.IsAbs(dest) {
		dest = path.Join(api.Workspace, dest)
	}
	switch path.Clean(dest) {
	case "/", "/tmp", api.Workspace, api.GuestHome: // always folders
		if !fi.IsDir() {
			dest = path.Join(dest, base)
		}
	}
	return copyIn{local: local, dest: path.Clean(dest)}, nil
}

// A tarWriter turns copyIns into one tar stream. It reads; it follows no
// symlink below what was named, and takes along only files, folders and links.
type tarWriter struct {
	tw      *tar.Writer
	root    string // the folder inside that names are relative to
	warn    func(string)
	seen    map[string]string // file inside: where it came from
	copied  int64
	counter func(n int64)
}

func (w *tarWriter) add(c copyIn) error {
	if c.data != nil || c.local == "" {
		return w.file(c.dest, tar.Header{Mode: c.mode, Size: int64(len(c.data)), ModTime: time.Now()}, strings.NewReader(string(c.data)), "the program")
	}
	fi, err := os.Stat(c.local) // the name itself may be a symlink: the user named it
	if err != nil {
		return err
	}
	if fi.Mode().IsRegular() {
		f, err := os.OpenFile(c.local, os.O_RDONLY|syscall.O_NONBLOCK, 0) // it may be a pipe by now
		if err != nil {
			return err
		}
		defer f.Close()
		return w.open(f, c.dest, c.local)
	}
	root, err := os.OpenRoot(c.local)
	if err != nil {
		return err
	}
	defer root.Close()
	return fs.WalkDir(root.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return w.entry(root, p, d, path.Join(c.dest, p), filepath.Join(c.local, p))
	})
}

func (w *tarWriter) entry(root *os.Root, p string, d fs.DirEntry, dest, local string) error {
	switch {
	case d.IsDir():
		if dest == w.root {
			return nil
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		return w.tw.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: w.name(dest) + "/", Mode: int64(fi.Mode().Perm()) | 0o700, ModTime: wholeSecond(fi.ModTime()), Format: tar.FormatPAX})
	case d.Type()&fs.ModeSymlink != 0:
		to, err := root.Readlink(p)
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		if again, err := w.claim(dest, local); again || err != nil {
			return err
		}
		return w.tw.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: w.name(dest), Linkname: to, Mode: 0o777, ModTime: wholeSecond(fi.ModTime()), Format: tar.FormatPAX})
	case d.Type().IsRegular():
		f, err := root.OpenFile(p, os.O_RDONLY|syscall.O_NONBLOCK, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		return w.open(f, dest, local)
	}
	w.warn(fmt.Sprintf("%s: is not a file, folder or link; it was left out", local))
	return nil
}

func (w *tarWriter) open(f *os.File, dest, local string) error {
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	if !fi.Mode().IsRegular() {
		return fmt.Errorf("%s: changed while it was copied", local)
	}
	h := tar.Header{Mode: int64(fi.Mode().Perm()), Size: fi.Size(), ModTime: fi.ModTime()}
	if fi.Size() > maxUntold {
		if err := w.file(dest, h, f, local); err != nil {
			return err
		}
		if n, _ := f.Read(make([]byte, 1)); n > 0 {
			return fmt.Errorf("%s: became longer while it was copied", local)
		}
		return nil
	}
	// What the kernel makes up while it is read has no size, or not its own.
	data, err := io.ReadAll(io.LimitReader(f, maxSpool+1))
	if err != nil {
		return fmt.Errorf("%s: %w", local, unwrapPath(err))
	}
	again, err := f.Stat()
	n := int64(len(data))
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", local, unwrapPath(err))
	case n > maxSpool && again.Size() == 0:
		return fmt.Errorf("%s: does not say its size, and has more than 1m", local)
	case again.Size() != fi.Size() && n != fi.Size(), n > fi.Size() && fi.Size() > 0:
		return fmt.Errorf("%s: changed its size while it was copied", local)
	}
	h.Size = n
	return w.file(dest, h, bytes.NewReader(data), local)
}

const (
	maxUntold = 64 << 10 // a file that is larger has the size that it says
	maxSpool  = 1 << 20
)

// wholeSecond is a time as it fits into a plain header; a fraction would take a
// header of its own for each file.
func wholeSecond(t time.Time) time.Time { return t.Truncate(time.Second) }

func (w *tarWriter) file(dest string, h tar.Header, r io.Reader, local string) error {
	if again, err := w.claim(dest, local); again || err != nil {
		return err
	}
	h.Typeflag, h.Name, h.ModTime, h.Format = tar.TypeReg, w.name(dest), wholeSecond(h.ModTime), tar.FormatPAX
	if err := w.tw.WriteHeader(&h); err != nil {
		return err
	}
	n, err := io.CopyN(w.tw, r, h.Size)
	if err == io.EOF {
		err = fmt.Errorf("%s: became shorter while it was copied", local)
	}
	w.copied += n
	if w.counter != nil {
		w.counter(w.copied)
	}
	return err
}

// claim refuses to write one path inside from two places. again says that it
// was already written from this one.
func (w *tarWriter) claim(dest, local string) (again bool, err error) {
	local = filepath.Clean(local)
	other, ok := w.seen[dest]
	if ok && other != local {
		return false, fmt.Errorf("%s inside would come from both %s and %s", dest, other, local)
	}
	w.seen[dest] = local
	return ok, nil
}

func (w *tarWriter) name(dest string) string {
	return strings.TrimPrefix(strings.TrimPrefix(dest, w.root), "/")
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// unwrapPath takes the repeated file name out of an error.
func unwrapPath(err error) error {
	if pe, ok := err.(*fs.PathError); ok {
		return pe.Err
	}
	return err
}
