package agent

import (
	"io"
	"os"
	"path"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/bermhq/berm/internal/guest"
)

// Files are the file operations of a guest. The untrusted user may change the
// tree at any time, under any of them; what they must not do is wait for it, or
// hand its tricks on to the host.
type Files struct {
	Root string // "" in a guest; elsewhere the directory that stands for its root
	Own  bool   // set owners; needs root
}

func (fs Files) abs(p string) (string, error) {
	if !strings.HasPrefix(p, "/") || strings.IndexByte(p, 0) >= 0 {
		return "", syscall.EINVAL
	}
	p = path.Clean(p)
	if fs.Root == "" {
		return p, nil
	}
	return path.Join(fs.Root, p), nil
}

func (fs Files) stat(p string) (guest.FileInfo, error) {
	full, err := fs.abs(p)
	if err != nil {
		return guest.FileInfo{}, err
	}
	return info(full, path.Clean(p))
}

// info describes what is at full, under the name p.
func info(full, p string) (guest.FileInfo, error) {
	st, err := os.Lstat(full)
	if err != nil {
		return guest.FileInfo{}, err
	}
	fi := guest.FileInfo{Path: p, Kind: guest.KindOther, Size: st.Size(), ModTime: st.ModTime()}
	switch m := st.Mode(); {
	case m.IsRegular():
		fi.Kind = guest.KindFile
	case m.IsDir():
		fi.Kind = guest.KindDir
	case m&os.ModeSymlink != 0:
		fi.Kind = guest.KindSymlink
		if fi.LinkTarget, err = os.Readlink(full); err != nil {
			return guest.FileInfo{}, err
		}
	}
	if s, ok := st.Sys().(*syscall.Stat_t); ok {
		fi.Mode = uint32(s.Mode) & 0o7777
		fi.Nlink, fi.UID, fi.GID = uint64(s.Nlink), s.Uid, s.Gid
	}
	return fi, nil
}

// read sends a regular file. Neither a link nor a pipe nor a device is opened.
func (fs Files) read(c *call, r guest.FileRequest) error {
	full, err := fs.abs(r.Path)
	if err != nil {
		return err
	}
	f, err := openRegular(full)
	if err != nil {
		return err
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil {
		return err
	} else if r.Limit > 0 && st.Size() > r.Limit {
		return syscall.EFBIG
	}
	return c.sendAll(f, r.Limit)
}

func openRegular(full string) (*os.File, error) {
	// Look before opening: to open a device may already do something.
	if st, err := os.Lstat(full); err != nil {
		return nil, err
	} else if err := mustBeRegular(st); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(full, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil {
		err = mustBeRegular(st)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func mustBeRegular(st os.FileInfo) error {
	switch m := st.Mode(); {
	case m.IsRegular():
		return nil
	case m.IsDir():
		return syscall.EISDIR
	case m&os.ModeSymlink != 0:
		return syscall.ELOOP
	}
	return syscall.EINVAL
}

var temporary atomic.Uint64

// What a file is called while it is not complete.
const (
	partPrefix = ".berm-"
	partSuffix = ".part"
)

func isPart(name string) bool {
	return strings.HasPrefix(name, partPrefix) && strings.HasSuffix(name, partSuffix)
}

// write makes the file under a name of its own beside its place and moves it
// there when it is complete: a link in the last place is replaced, not followed.
// What is to be kept is that of the file that the name leads to, but for setuid
// and the like: the content is new.
func (fs Files) write(r guest.FileRequest, src io.Reader) (err error) {
	full, err := fs.abs(r.Path)
	if err != nil {
		return err
	}
	if st, err := os.Lstat(full); err == nil {
		if err := mustBeRegular(st); err != nil && err != syscall.ELOOP {
			return err
		}
	}
	uid, gid, mode := r.UID, r.GID, r.Mode&0o777
	if st, err := os.Stat(full); r.Keep && err == nil && st.Mode().IsRegular() {
		mode = uint32(st.Mode().Perm())
		if s, ok := st.Sys().(*syscall.Stat_t); ok {
			uid, gid = s.Uid, s.Gid
		}
	}
	if err := fs.mkdirAll(path.Dir(full), 0o755, r.UID, r.GID); err != nil {
		return err
	}
	tmp := path.Join(path.Dir(full), partPrefix+strconv.FormatUint(temporary.Add(1), 36)+partSuffix)
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(tmp)
		}
	}()
	_, err = io.Copy(f, src)
	if err == nil && fs.Own {
		err = f.Chown(int(uid), int(gid))
	}
	if err == nil {
		err = syscall.Fchmod(int(f.Fd()), mode)
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	return os.Rename(tmp, full)
}

func (fs Files) mkdir(r guest.FileRequest) error {
	full, err := fs.abs(r.Path)
	if err != nil {
		return err
	}
	if err := fs.mkdirAll(full, r.Mode&0o777, r.UID, r.GID); err != nil || !r.Keep || !fs.Own {
		return err
	}
	if st, err := os.Lstat(full); err != nil || !st.IsDir() {
		return syscall.ENOTDIR
	}
	if err := os.Lchown(full, int(r.UID), int(r.GID)); err != nil {
		return err
	}
	return syscall.Chmod(full, r.Mode&0o777)
}

// mkdirAll is os.MkdirAll with an owner.
func (fs Files) mkdirAll(full string, mode uint32, uid, gid uint32) error {
	st, err := os.Stat(full)
	if err == nil {
		if !st.IsDir() {
			return syscall.ENOTDIR
		}
		return nil
	}
	if parent := path.Dir(full); parent != full {
		if err := fs.mkdirAll(parent, mode, uid, gid); err != nil {
			return err
		}
	}
	if err := os.Mkdir(full, os.FileMode(mode)); err != nil {
		if st, serr := os.Stat(full); serr == nil && st.IsDir() {
			return nil
		}
		return err
	}
	if fs.Own {
		if err := os.Lchown(full, int(uid), int(gid)); err != nil {
			return err
		}
	}
	return nil
}

func (fs Files) move(r guest.FileRequest) error {
	from, err := fs.abs(r.Path)
	if err != nil {
		return err
	}
	to, err := fs.abs(r.To)
	if err != nil {
		return err
	}
	return os.Rename(from, to)
}

func (fs Files) remove(r guest.FileRequest) error {
	full, err := fs.abs(r.Path)
	if err != nil {
		return err
	}
	if path.Clean(r.Path) == "/" {
		return syscall.EBUSY
	}
	if r.Recursive {
		if _, err := os.Lstat(full); err != nil {
			return err
		}
		return os.RemoveAll(full)
	}
	return os.Remove(full)
}
