package here

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/bermhq/berm/api"
)

// ApplyOptions say how far an Apply goes. The zero value is the careful one.
type ApplyOptions struct {
	Force bool // what changed in the tree since is replaced too
	Git   bool // with paths that name it: what belongs to a git repository as well
	Check bool // write nothing
}

// Applied is what became of an Apply.
type Applied struct {
	Done      []*Change // written, or to be with Check
	Already   []*Change // the tree has them
	Conflicts []Conflict
	Refused   []Left // never written, whatever is forced
	Git       []string
	Warnings  []Left // written, and may act on this host by itself
	Notes     []string
}

// A Conflict is a path that is neither what went in nor what came out.
type Conflict struct {
	*Change
	Now *Side // nil: nothing is there
	Why string
}

// Apply writes changes into the tree of the run. First all of them are checked,
// and if one is in conflict nothing is written, unless Force is set. Nothing
// outside of the tree is touched and no link is followed, whatever somebody does
// to the tree meanwhile; what changes after the check is a conflict found late:
// that path is left, and the rest goes on.
func (r *Run) Apply(list []*Change, named []string, opt ApplyOptions) (*Applied, error) {
	t, err := Open(r.Tree, Options{})
	if err != nil {
		return nil, err
	}
	defer t.Close()
	if t.Dir != r.Tree {
		return nil, refuse(api.CodeBadRequest, "here: "+r.Tree+" leads somewhere else now", "berm diff "+r.ID)
	}
	a := &applier{r: r, t: t, opt: opt, out: &Applied{}, mask: umask(), repos: map[string]bool{}, comes: map[string]bool{}}
	for i := range r.List {
		if c := &r.List[i]; c.After != nil {
			for p := c.Path; p != "" && !a.comes[p]; p = parent(p) {
				a.comes[p] = true
			}
		}
	}
	if opt.Git {
		for _, p := range named {
			if p = strings.Trim(strings.TrimPrefix(p, t.Dir), "/"); a.repository(p) {
				a.git = append(a.git, p)
			}
		}
	}
	a.sort(list)
	if len(a.out.Conflicts) > 0 && !opt.Force || opt.Check {
		for _, s := range a.steps {
			a.out.Done = append(a.out.Done, s.c)
		}
		if len(a.out.Conflicts) > 0 && !opt.Force {
			a.out.Done = nil
		}
		return a.out, nil
	}
	return a.out, a.write()
}

// A step is one change that is to be written over what is there now.
type step struct {
	c   *Change
	now *Side
	was stamp // of what is there
	own owner
}

// owner is whose a file is, and how it may be used.
type owner struct {
	uid, gid int
	mode     uint32
}

type applier struct {
	r     *Run
	t     *Tree
	opt   ApplyOptions
	out   *Applied
	git   []string // places of a repository that may be written
	mask  uint32
	steps []step

	comes map[string]bool // paths that the run has
	repos map[string]bool // folders that are, or are in, a repository without .git
}

// repository says that a path belongs to what a git repository is made of:
// settings and hooks there are code that runs on this host.
func (a *applier) repository(p string) bool {
	for part := range strings.SplitSeq(p, "/") {
		if foldsToGit(part) {
			return true
		}
	}
	return a.bare(parent(p))
}

// bare says that a folder looks like a repository to git, or lies in one.
func (a *applier) bare(dir string) bool {
	yes, known := a.repos[dir]
	if known {
		return yes
	}
	yes = a.has(dir, "HEAD") && (a.has(dir, "objects") && a.has(dir, "refs") || a.has(dir, "commondir")) || dir != "" && a.bare(parent(dir))
	a.repos[dir] = yes
	return yes
}

func (a *applier) has(dir, name string) bool {
	p := strings.TrimPrefix(dir+"/"+name, "/")
	if a.comes[p] {
		return true
	}
	_, err := lstatBeneath(a.t.fd(), p)
	return err == nil
}

// mayGit says that a place of a repository was named.
func (a *applier) mayGit(p string) bool {
	return slices.ContainsFunc(a.git, func(g string) bool { return p == g || strings.HasPrefix(p, g+"/") })
}

// sort looks at every change and at what is in the tree now.
func (a *applier) sort(list []*Change) {
	for _, c := range list {
		if a.repository(c.Path) && !a.mayGit(c.Path) {
			a.out.Git = append(a.out.Git, c.Path)
			continue
		}
		if why := a.refuse(c); why != "" {
			a.out.Refused = append(a.out.Refused, Left{c.Path, why})
			continue
		}
		s, err := a.look(c)
		switch {
		case err != nil:
			a.out.Conflicts = append(a.out.Conflicts, Conflict{Change: c, Why: err.Error()})
			continue
		case alike(s.now, c.After):
			a.out.Already = append(a.out.Already, c)
			continue
		case !alike(s.now, c.Before):
			why := "was changed in the tree since"
			switch {
			case c.Before == nil:
				why = "is in the tree and did not go in"
			case s.now == nil:
				why = "is gone from the tree"
			}
			a.out.Conflicts = append(a.out.Conflicts, Conflict{Change: c, Now: s.now, Why: why})
			if !a.opt.Force || s.now.is("dir") != c.Before.is("dir") && s.now.is("dir") { // no force removes a folder that nobody saw
				continue
			}
		}
		a.steps = append(a.steps, s)
		if why := startsItself(c.Path); why != "" && c.After != nil {
			a.out.Warnings = append(a.out.Warnings, Left{c.Path, why})
		}
	}
}

// alike says that two sides are the same, nothing included.
func alike(now, want *Side) bool {
	if now == nil || want == nil {
		return now == nil && want == nil
	}
	return *now == *want
}

// refuse says why a change is never written, or "".
func (a *applier) refuse(c *Change) string {
	if c.After == nil {
		return ""
	}
	if c.Before == nil && (!utf8.ValidString(c.Path) || strings.ContainsFunc(c.Path, misleads)) {
		return "its name holds what a terminal obeys, or is no text"
	}
	if c.After.Kind == "symlink" {
		return a.refuseLink(c.Path, c.After.Target)
	}
	return ""
}

// refuseLink says why a symlink does not stay in the tree, or "". It may go up
// as far as it lies deep and then only down, and no link that lies in its way
// now may lead out.
func (a *applier) refuseLink(p, target string) string {
	if strings.HasPrefix(target, "/") {
		return "it is a symlink to " + Printable(target) + ", which is absolute"
	}
	up, down := 0, false
	for part := range strings.SplitSeq(target, "/") {
		switch part {
		case "", ".":
		case "..":
			if down {
				return "it is a symlink to " + Printable(target) + ", which goes up behind a name"
			}
			up++
		default:
			down = true
		}
	}
	if up > strings.Count(p, "/") {
		return "it is a symlink to " + Printable(target) + ", which leads out of the tree"
	}
	dir := p
	for range up + 1 {
		dir = parent(dir)
	}
	to := dir
	for part := range strings.SplitSeq(target, "/") {
		if part == "" || part == "." || part == ".." {
			continue
		}
		to = strings.TrimPrefix(to+"/"+part, "/")
	}
	if a.leadsOut(to) {
		return "it is a symlink to " + Printable(target) + ", and a link on its way leads out of the tree"
	}
	return ""
}

// leadsOut says whether a path that does not leave by itself does so through a
// link that is in the tree. What is not there leads nowhere yet.
func (a *applier) leadsOut(p string) bool {
	if p == "" {
		return false
	}
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS}
	for range 100 {
		fd, err := unix.Openat2(a.t.fd(), p, &how)
		switch err {
		case nil:
			unix.Close(fd)
			return false
		case unix.EAGAIN, unix.EINTR:
		case unix.ENOENT, unix.ENOTDIR: // some of it may be there
			if fd, err := openBeneath(a.t.fd(), parent(p), unix.O_PATH, 0); err == nil {
				unix.Close(fd)
				return isLinkBeneath(a.t.fd(), p)
			} else if err == unix.ENOENT {
				return a.leadsOut(parent(p))
			}
			return true
		case unix.ENOSYS, unix.EPERM: // without the call: through no link at all
			fd, err := openBeneath(a.t.fd(), p, unix.O_PATH, 0)
			if err == nil {
				unix.Close(fd)
				return isLinkBeneath(a.t.fd(), p)
			}
			return err != unix.ENOENT
		default:
			return true
		}
	}
	return true
}

// isLinkBeneath says that a link is at p, or that nobody knows.
func isLinkBeneath(dirfd int, p string) bool {
	st, err := lstatBeneath(dirfd, p)
	return err == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK || err != nil && err != unix.ENOENT
}

// look finds what is at a path of the tree now, through no link.
func (a *applier) look(c *Change) (step, error) {
	s := step{c: c}
	dir, err := openBeneath(a.t.fd(), parent(c.Path), unix.O_PATH|unix.O_DIRECTORY, 0)
	switch {
	case err == unix.ENOENT:
		return s, nil
	case err == unix.ELOOP || err == unix.EXDEV:
		return s, errors.New("a folder above it is a symlink in the tree")
	case err == unix.ENOTDIR: // a folder of the run that is a file still
		return s, a.aboveIsFile(c.Path)
	case err != nil:
		return s, fmt.Errorf("cannot be looked at: %w", err)
	}
	defer unix.Close(dir)
	var st unix.Stat_t
	if err := unix.Fstatat(dir, base(c.Path), &st, unix.AT_SYMLINK_NOFOLLOW); err == unix.ENOENT {
		return s, nil
	} else if err != nil {
		return s, fmt.Errorf("cannot be looked at: %w", err)
	}
	s.was, s.own = stampOf(&st), owner{int(st.Uid), int(st.Gid), st.Mode & 0o777}
	s.now = &Side{Mode: st.Mode & 0o777}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		s.now.Kind = "dir"
	case unix.S_IFLNK:
		s.now.Kind, s.now.Mode = "symlink", 0o777
		s.now.Target, err = readlinkAt(dir, base(c.Path))
		return s, err
	case unix.S_IFREG:
		return s, a.hash(&s)
	default:
		return s, errors.New("is neither file, folder nor symlink in the tree")
	}
	return s, nil
}

// hash reads the file that is there, as it would go in.
func (a *applier) hash(s *step) error {
	s.now.Kind, s.now.Size = "file", s.was.size
	wanted := func(w *Side) bool { return w.is("file") && w.Size == s.was.size }
	if !gitConfig(s.c.Path) && !wanted(s.c.Before) && !wanted(s.c.After) {
		return nil // of another length, so of another content
	}
	c, err := a.t.open(&Entry{Path: s.c.Path})
	if err != nil {
		return fmt.Errorf("cannot be read: %w", err)
	}
	defer c.close()
	if c.clean {
		return errors.New("holds credentials in the tree that did not go in, and would lose them")
	}
	if _, err := io.Copy(io.Discard, c); err != nil {
		return fmt.Errorf("cannot be read: %w", err)
	}
	var e Entry
	if !c.note(&e) || c.before != s.was {
		return errors.New("changes while it is looked at")
	}
	s.now.Size, s.now.SHA256 = e.Size, hex.EncodeToString(e.Hash[:])
	return nil
}

// aboveIsFile tells a file that the run made a folder of, or of a folder, from
// any other.
func (a *applier) aboveIsFile(p string) error {
	for up := parent(p); up != ""; up = parent(up) {
		if st, err := lstatBeneath(a.t.fd(), up); err == nil {
			if st.Mode&unix.S_IFMT == unix.S_IFLNK {
				return errors.New("a folder above it is a symlink in the tree")
			}
			for i := range a.r.List {
				if c := &a.r.List[i]; c.Path == up && c.What == Changed && c.Before.Kind != c.After.Kind {
					return nil
				}
			}
			break
		}
	}
	return errors.New("a folder above it is a file in the tree")
}
