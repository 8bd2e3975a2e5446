package here

import (
	"bufio"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// errLate is a path that changed between the check and the write.
var errLate = errors.New("changed in the tree while berm was writing")

// write carries the steps out: what goes goes first and from below, what comes
// comes from above.
func (a *applier) write() error {
	var gone, dirs, files []*step
	for i := range a.steps {
		s := &a.steps[i]
		if s.now != nil && (s.c.After == nil || s.now.Kind != s.c.After.Kind) {
			gone = append(gone, s)
		}
		switch {
		case s.c.After.is("dir"):
			dirs = append(dirs, s)
		case s.c.After != nil:
			files = append(files, s)
		}
	}
	slices.SortFunc(gone, func(x, y *step) int { return strings.Compare(y.c.Path, x.c.Path) }) // from below
	failed := map[*step]bool{}
	left := map[string]bool{} // folders that are not empty
	do := func(list []*step, f func(*step) error) {
		for _, s := range list {
			if failed[s] {
				continue
			}
			if err := f(s); err != nil {
				failed[s] = true
				a.trouble(s, err)
			}
		}
	}
	do(gone, func(s *step) error {
		err := a.remove(s)
		if s.c.After == nil && (err == unix.ENOTEMPTY || err == unix.EEXIST) {
			left[s.c.Path] = true
			a.out.Notes = append(a.out.Notes, Printable(s.c.Path)+"/ stays: it holds what did not go in")
			return nil
		}
		return err
	})
	do(dirs, a.mkdir)
	do(files, a.put)
	slices.Reverse(dirs) // a folder may not be writable for its owner
	do(dirs, a.chmod)
	for i := range a.steps {
		if s := &a.steps[i]; !failed[s] && !left[s.c.Path] {
			a.out.Done = append(a.out.Done, s.c)
		}
	}
	return nil
}

func (a *applier) trouble(s *step, err error) {
	switch {
	case errors.Is(err, errLate):
		a.out.Conflicts = append(a.out.Conflicts, Conflict{Change: s.c, Now: s.now, Why: errLate.Error()})
	case err == unix.ELOOP || err == unix.EXDEV:
		a.out.Conflicts = append(a.out.Conflicts, Conflict{Change: s.c, Now: s.now, Why: "a folder above it is a symlink in the tree"})
	case err == unix.ENOTEMPTY || err == unix.EEXIST:
		a.out.Conflicts = append(a.out.Conflicts, Conflict{Change: s.c, Now: s.now, Why: "is a folder in the tree that holds what did not go in"})
	case err == unix.ENOENT || err == unix.ENOTDIR:
		a.out.Conflicts = append(a.out.Conflicts, Conflict{Change: s.c, Now: s.now, Why: "the folder that it lies in is not there any more"})
	default:
		a.out.Refused = append(a.out.Refused, Left{s.c.Path, "cannot be written: " + err.Error()})
	}
}

// above opens the folder that a path lies in; what is missing is made, where
// the run did not make it itself.
func (a *applier) above(p string, make bool) (int, error) {
	dir := parent(p)
	fd, err := openBeneath(a.t.fd(), dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != unix.ENOENT || !make || dir == "" {
		return fd, err
	}
	up, err := a.above(dir, true)
	if err != nil {
		return -1, err
	}
	defer unix.Close(up)
	if err := unix.Mkdirat(up, base(dir), 0o755); err != nil && err != unix.EEXIST {
		return -1, err
	}
	a.hand(up, base(dir), nil)
	return openBeneath(a.t.fd(), dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
}

// expected says whether what is at a name is still what was looked at.
func (s *step) expected(dir int, name string) error {
	var st unix.Stat_t
	err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case err == unix.ENOENT && s.now == nil:
		return nil
	case err == unix.ENOENT, err == nil && s.now == nil:
		return errLate
	case err != nil:
		return err
	case s.now.Kind == "dir" && st.Mode&unix.S_IFMT == unix.S_IFDIR && st.Ino == s.was.ino: // its times are ours by now
		return nil
	case !s.was.moved(stampOf(&st)):
		return errLate
	}
	return nil
}

// moved says that o is the same file, perhaps under another name: a rename
// changes the ctime.
func (s stamp) moved(o stamp) bool {
	return s.dev == o.dev && s.ino == o.ino && s.size == o.size && s.mtime == o.mtime
}

// remove takes away what is there, if it is what was looked at.
func (a *applier) remove(s *step) error {
	dir, err := a.above(s.c.Path, false)
	if err == unix.ENOENT {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	name := base(s.c.Path)
	if err := s.expected(dir, name); err != nil {
		return err
	}
	if s.now.Kind == "dir" {
		return unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
	}
	// Under another name first: then nobody writes it in between unseen.
	tmp := tmpPrefix + rand.Text()
	if err := unix.Renameat2(dir, name, dir, tmp, unix.RENAME_NOREPLACE); err != nil {
		if !unsupported(err) {
			return err
		}
		return unix.Unlinkat(dir, name, 0)
	}
	if err := s.expected(dir, tmp); err != nil {
		unix.Renameat2(dir, tmp, dir, name, unix.RENAME_NOREPLACE)
		return err
	}
	return unix.Unlinkat(dir, tmp, 0)
}

// unsupported says that a file system cannot rename that way.
func unsupported(err error) bool {
	return err == unix.EINVAL || err == unix.ENOSYS || err == unix.EOPNOTSUPP
}

func (a *applier) mkdir(s *step) error {
	dir, err := a.above(s.c.Path, true)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	name := base(s.c.Path)
	err = unix.Mkdirat(dir, name, 0o700|s.c.After.Mode&0o755)
	if err == unix.EEXIST {
		var st unix.Stat_t
		if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
			return errLate
		}
		return nil
	}
	if err == nil {
		a.hand(dir, name, nil)
	}
	return err
}

func (a *applier) chmod(s *step) error {
	fd, err := openBeneath(a.t.fd(), s.c.Path, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Fchmod(fd, a.mode(s))
}

// umask is that of this process, which other programs' files have as well.
func umask() uint32 {
	m := syscall.Umask(0o022)
	syscall.Umask(m)
	return uint32(m)
}

// mode is what a file or folder may be used for: as the run left it, but for what
// this host's user does not give away, and never setuid. One that the run did
// not change keeps its own.
func (a *applier) mode(s *step) uint32 {
	if s.now != nil && s.c.Before != nil && s.now.Kind == s.c.After.Kind && s.c.Before.Mode == s.c.After.Mode {
		return s.own.mode
	}
	return s.c.After.Mode & 0o777 &^ a.mask
}

// put writes a file or a symlink.
func (a *applier) put(s *step) error {
	dir, err := a.above(s.c.Path, s.c.What == Added || a.opt.Force)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	tmp := tmpPrefix + rand.Text()
	if s.c.After.Kind == "symlink" {
		err = unix.Symlinkat(s.c.After.Target, dir, tmp)
	} else {
		err = a.fill(dir, tmp, s)
	}
	if err == nil {
		a.hand(dir, tmp, s)
		err = a.swap(dir, tmp, base(s.c.Path), s)
	}
	if err != nil {
		unix.Unlinkat(dir, tmp, 0)
	}
	return err
}

// fill makes a new file of what came out.
func (a *applier) fill(dir int, tmp string, s *step) error {
	fd, err := openRetry(dir, tmp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), tmp)
	n, err := io.Copy(f, a.r.after(s.c))
	if err == nil && n != s.c.After.Size {
		err = fmt.Errorf("what was kept of it is not whole")
	}
	if err == nil {
		err = f.Chmod(os.FileMode(a.mode(s)))
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return pathless(err)
}

// swap gives a new file its name. What had it must be what was looked at: it is
// exchanged, looked at once more, and put back if it is something else.
func (a *applier) swap(dir int, tmp, name string, s *step) error {
	there := s.now != nil && s.now.Kind == s.c.After.Kind // else it was removed before
	if !there {
		err := unix.Renameat2(dir, tmp, dir, name, unix.RENAME_NOREPLACE)
		switch {
		case err == unix.EEXIST:
			return errLate
		case err == nil || !unsupported(err):
			return err
		}
		if s.c.After.Kind == "symlink" || unix.Linkat(dir, tmp, dir, name, 0) != nil {
			var st unix.Stat_t
			if unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) != unix.ENOENT {
				return errLate
			}
			return unix.Renameat(dir, tmp, dir, name)
		}
		return unix.Unlinkat(dir, tmp, 0)
	}
	if err := s.expected(dir, name); err != nil {
		return err
	}
	err := unix.Renameat2(dir, tmp, dir, name, unix.RENAME_EXCHANGE)
	switch {
	case err == unix.ENOENT:
		return errLate
	case err != nil && unsupported(err):
		return unix.Renameat(dir, tmp, dir, name)
	case err != nil:
		return err
	}
	if err := s.expected(dir, tmp); err != nil {
		if xerr := unix.Renameat2(dir, tmp, dir, name, unix.RENAME_EXCHANGE); xerr != nil {
			return fmt.Errorf("%w, and lies beside it as %s", err, tmp)
		}
		return err
	}
	return unix.Unlinkat(dir, tmp, 0)
}

// hand gives what root made to whom it belongs: the owner of what was there, or
// of the folder.
func (a *applier) hand(dir int, name string, s *step) {
	if os.Geteuid() != 0 {
		return
	}
	var o owner
	if s != nil && s.now != nil {
		o = s.own
	} else {
		var st unix.Stat_t
		if unix.Fstat(dir, &st) != nil {
			return
		}
		o.uid, o.gid = int(st.Uid), int(st.Gid)
	}
	if o.uid != 0 || o.gid != 0 {
		unix.Fchownat(dir, name, o.uid, o.gid, unix.AT_SYMLINK_NOFOLLOW)
	}
}

// ShowConflict writes both sides of a conflict, the tree's and the run's.
func (r *Run) ShowConflict(w io.Writer, c *Conflict, colour bool) error {
	p := &printer{r: r, w: bufio.NewWriter(w), opt: DiffOptions{Colour: colour}}
	name := Printable(c.Path)
	a, b := name+"  (the tree, now)", name+"  (the run)"
	if c.Now == nil || c.Why == errLate.Error() {
		a += ": not there"
	}
	if c.After == nil {
		b += ": removed"
	}
	now, ok := r.nowText(c)
	_, after, why := r.texts(&Change{Path: c.Path, After: c.After, At: c.At, Old: -1})
	switch {
	case !ok || why != "" || c.Now.is("dir") || c.After.is("dir"):
		p.head("--- " + a)
		p.head("+++ " + b)
	default:
		p.body(a, b, now, after)
	}
	return p.w.Flush()
}

// nowText is what is in the tree where there is a conflict.
func (r *Run) nowText(c *Conflict) ([]byte, bool) {
	switch {
	case c.Now == nil:
		return nil, true
	case c.Now.Kind == "symlink":
		return []byte(c.Now.Target), true
	case c.Now.Kind != "file" || c.Now.Size > maxShown:
		return nil, false
	}
	t, err := Open(r.Tree, Options{})
	if err != nil {
		return nil, false
	}
	defer t.Close()
	data, err := readSmall(t.fd(), c.Path, maxShown)
	return data, err == nil
}
