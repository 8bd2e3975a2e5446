package agent

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A tracked root is a stacked one whose writable layer can be looked at by
// itself, and what lies below that too: so what was written is found without a
// walk over everything.
type tracked struct {
	upper, lower int // directories, held open
	resolv       unix.Stat_t
}

// track is set by Stack where Changes will be asked for.
var track *tracked

// resolved notes the file that the agent itself has written: as long as it is
// that one, it is no change of the guest's.
func (t *tracked) resolved() {
	if t != nil {
		unix.Fstatat(t.upper, strings.TrimPrefix(resolvConf, "/"), &t.resolv, unix.AT_SYMLINK_NOFOLLOW)
	}
}

// Changes writes what is below dir and was written since this guest began, as a
// layer of an OCI image with names below dir. A symlink on the way to dir is not
// followed.
func (l *Linux) Changes(ctx context.Context, dir string, dst io.Writer) error {
	if track == nil {
		return syscall.EOPNOTSUPP
	}
	runtime.LockOSThread() // the right to see marks is a thread's own, see withAdmin
	defer runtime.UnlockOSThread()
	w := &walk{t: track, d: newDelta(ctx, dst)}
	if err := w.from(path.Clean("/" + dir)); err != nil {
		return err
	}
	return w.d.close()
}

// A walk goes over the writable layer.
type walk struct {
	t *tracked
	d *delta
}

// A place is one directory of the walk.
type place struct {
	parent  *place // nil: the one that was asked for
	name    string // in the archive
	full    string // in the guest
	up, low int    // itself, and the same below, -1 if there is none
	hides   bool   // nothing of low is seen any more
	depth   int
	item    *item
	said    bool // it stands in the archive, or need not
}

const (
	dirFlags  = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fileFlags = unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
)

// from finds dir in both layers and walks it.
func (w *walk) from(dir string) error {
	p := &place{name: ".", full: dir, low: -1}
	var err error
	if p.up, err = unix.Openat(w.t.upper, ".", dirFlags, 0); err != nil {
		return err
	}
	defer func() { closeDirs(p.up, p.low) }()
	if p.low, err = unix.Openat(w.t.lower, ".", dirFlags, 0); err != nil {
		return err
	}
	at := ""
	for name := range strings.SplitSeq(strings.Trim(dir, "/"), "/") {
		if name == "" {
			break
		}
		at += "/" + name
		var st unix.Stat_t
		switch err := unix.Fstatat(p.up, name, &st, unix.AT_SYMLINK_NOFOLLOW); {
		case err == unix.ENOENT: // as it was
			if p.low < 0 || p.hides || unix.Fstatat(p.low, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
				return refusal{at, syscall.ENOENT}
			}
			return mustBeDir(at, &st)
		case err != nil:
			return err
		case isWhiteout(&st): // and so is all that was in it
			return w.d.emptied(p.name)
		}
		if err := mustBeDir(at, &st); err != nil {
			return err
		}
		if err := p.enter(name); err != nil {
			return err
		}
	}
	return w.dir(p)
}

func mustBeDir(at string, st *unix.Stat_t) error {
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return refusal{at, syscall.ENOTDIR}
	}
	return nil
}

// enter makes p the directory name in it.
func (p *place) enter(name string) error {
	next, err := unix.Openat(p.up, name, dirFlags, 0)
	if err != nil {
		return err
	}
	below := -1
	if p.low >= 0 {
		if below, err = unix.Openat(p.low, name, dirFlags, 0); err != nil {
			below = -1
		}
	}
	closeDirs(p.up, p.low)
	p.up, p.low = next, below
	opaque, err := isOpaque(next)
	p.hides = p.hides || opaque
	return err
}

func closeDirs(fds ...int) {
	for _, fd := range fds {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

func isWhiteout(st *unix.Stat_t) bool {
	return st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == 0
}

// isOpaque says whether the directory hides what is below it.
func isOpaque(fd int) (yes bool, err error) {
	err = withAdmin(func() error {
		var b [8]byte
		n, err := unix.Fgetxattr(fd, "trusted.overlay.opaque", b[:])
		if err == unix.ENODATA {
			return nil
		}
		yes = err == nil && n == 1 && b[0] == 'y'
		return err
	})
	return yes, err
}

// say writes p into the archive, after the directories that it is in.
func (w *walk) say(p *place) error {
	if p.said {
		return nil
	}
	if p.parent != nil {
		if err := w.say(p.parent); err != nil {
			return err
		}
	}
	p.said = true
	return w.d.put(p.item, nil)
}

// dir walks one directory.
func (w *walk) dir(p *place) error {
	if err := w.d.ctx.Err(); err != nil {
		return err
	}
	if p.depth > maxDepth {
		return refusal{p.name, syscall.ELOOP}
	}
	var st, was unix.Stat_t
	if err := unix.Fstat(p.up, &st); err != nil {
		return err
	}
	p.item = itemOf(p.name, &st)
	if p.low < 0 && p.parent == nil {
		p.said = true // whoever asked for it knows it
	} else if p.low < 0 || unix.Fstat(p.low, &was) != nil || st.Mode != was.Mode || st.Uid != was.Uid || st.Gid != was.Gid {
		if err := w.say(p); err != nil {
			return err
		}
	}
	p.said = p.said || p.parent == nil
	low := p.low
	if low >= 0 && p.hides {
		if err := w.say(p); err != nil {
			return err
		}
		if err := w.d.emptied(p.name); err != nil {
			return err
		}
		low = -1
	}
	names, err := namesIn(p.up)
	if err != nil {
		return err
	}
	for _, n := range names {
		if w.ours(p, n) {
			continue
		}
		if err := w.entry(p, low, n); err != nil && !isGone(err) {
			return err
		}
	}
	return nil
}

// entry takes one name of p; low is where it was before, -1 if it could not be.
func (w *walk) entry(p *place, low int, base string) error {
	var st, was unix.Stat_t
	if err := unix.Fstatat(p.up, base, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	name := path.Join(p.name, base)
	there := low >= 0 && unix.Fstatat(low, base, &was, unix.AT_SYMLINK_NOFOLLOW) == nil
	switch {
	case isWhiteout(&st):
		if !there {
			return nil
		}
		if err := w.say(p); err != nil {
			return err
		}
		return w.d.gone(name)
	case st.Mode&unix.S_IFMT == unix.S_IFDIR:
		sub := &place{parent: p, name: name, full: path.Join(p.full, base), up: -1, low: -1, depth: p.depth + 1}
		defer func() { closeDirs(sub.up, sub.low) }()
		var err error
		if sub.up, err = unix.Openat(p.up, ".", dirFlags, 0); err != nil {
			return err
		}
		if low >= 0 {
			if sub.low, err = unix.Openat(low, ".", dirFlags, 0); err != nil {
				return err
			}
		}
		if err := sub.enter(base); err != nil {
			return err
		}
		return w.dir(sub)
	case st.Mode&unix.S_IFMT == unix.S_IFSOCK:
		return nil // nobody listens any more
	}
	i, f, err := w.open(p.up, base, name, &st)
	if err != nil {
		return err
	}
	if f != nil {
		defer f.Close()
	}
	if there && st.Nlink < 2 {
		if as, err := asBefore(i, f, low, base, &st, &was); as || err != nil {
			return err
		}
	}
	if err := w.say(p); err != nil {
		return err
	}
	return w.d.put(i, f)
}

// open reads what put needs of a file, which may go away at any time: once
// something of it is written, nothing is missing.
func (w *walk) open(dir int, base, name string, st *unix.Stat_t) (*item, *os.File, error) {
	i := itemOf(name, st)
	switch i.kind {
	case tar.TypeSymlink:
		t, err := readlinkat(dir, base)
		i.target = t
		return i, nil, err
	case tar.TypeReg:
		fd, err := unix.Openat(dir, base, fileFlags, 0)
		if err != nil {
			return nil, nil, err
		}
		return i, os.NewFile(uintptr(fd), name), nil
	}
	return i, nil, nil
}

func readlinkat(dir int, base string) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(dir, base, buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

// asBefore tells a file that was opened to be written, or was given what it had,
// and is what it was.
func asBefore(i *item, f *os.File, low int, base string, st, was *unix.Stat_t) (bool, error) {
	if st.Mode != was.Mode || st.Uid != was.Uid || st.Gid != was.Gid || st.Size != was.Size || st.Mtim != was.Mtim {
		return false, nil
	}
	if i.kind == tar.TypeSymlink {
		t, err := readlinkat(low, base)
		return err == nil && t == i.target, nil
	}
	if f == nil {
		return false, nil
	}
	fd, err := unix.Openat(low, base, fileFlags, 0)
	if err != nil {
		return false, nil
	}
	before := os.NewFile(uintptr(fd), base)
	defer before.Close()
	same, err := sameContent(f, before)
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	return same, err
}

func sameContent(a, b io.Reader) (bool, error) {
	var x, y [32 << 10]byte
	for {
		n, err := io.ReadFull(a, x[:])
		m, other := io.ReadFull(b, y[:])
		if !bytes.Equal(x[:n], y[:m]) {
			return false, nil
		}
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			return other == err, nil
		}
		if err != nil || other != nil {
			return false, errors.Join(err, other)
		}
	}
}

// ours says whether the agent made this entry and not the guest: the places of
// what it brought along, the mark in /tmp, and its own resolv.conf.
func (w *walk) ours(p *place, name string) bool {
	switch p.full {
	case "/":
		return slices.Contains(stackMounts, "/"+name) || name == ".berm"
	case "/tmp":
		return name == ".berm"
	case path.Dir(resolvConf):
		var st unix.Stat_t
		return name == path.Base(resolvConf) && unix.Fstatat(p.up, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil &&
			st.Ino == w.t.resolv.Ino && st.Mtim == w.t.resolv.Mtim && st.Size == w.t.resolv.Size && st.Mode == w.t.resolv.Mode
	}
	return false
}

// namesIn lists a directory in order.
func namesIn(fd int) ([]string, error) {
	d, err := unix.Openat(fd, ".", dirFlags, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(d), "directory")
	defer f.Close()
	names, err := f.Readdirnames(-1)
	slices.Sort(names)
	return names, err
}

func itemOf(name string, st *unix.Stat_t) *item {
	i := &item{name: name, mode: int64(st.Mode & 0o7777), uid: int(st.Uid), gid: int(st.Gid),
		mtime: time.Unix(st.Mtim.Sec, st.Mtim.Nsec), ino: st.Ino, nlink: uint64(st.Nlink)}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		i.kind = tar.TypeDir
	case unix.S_IFLNK:
		i.kind = tar.TypeSymlink
	case unix.S_IFIFO:
		i.kind = tar.TypeFifo
	case unix.S_IFCHR, unix.S_IFBLK:
		i.kind = tar.TypeChar
		if st.Mode&unix.S_IFMT == unix.S_IFBLK {
			i.kind = tar.TypeBlock
		}
		i.major, i.minor = int64(unix.Major(st.Rdev)), int64(unix.Minor(st.Rdev))
	default:
		i.kind, i.size = tar.TypeReg, st.Size
	}
	return i
}
