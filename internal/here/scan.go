package here

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bermhq/berm/api"
)

// Options say what of a tree goes in. The zero value takes all but what looks
// like credentials.
type Options struct {
	Include   *Patterns // goes in, whatever it looks like and whoever ignores it
	Exclude   *Patterns // stays out
	NoIgnored bool      // what a .gitignore names stays out
	State     string    // a folder that is Berm's own: it stays out
}

// A Tree is a folder of this host.
type Tree struct {
	Dir string // absolute, links resolved
	opt Options
	dir *os.File
}

// Open opens the folder dir.
func Open(dir string, opt Options) (*Tree, error) {
	abs, err := filepath.Abs(dir)
	if err == nil {
		abs, err = filepath.EvalSymlinks(abs)
	}
	if err != nil {
		return nil, refuse(api.CodeBadRequest, "here: "+dir+": "+pathless(err).Error(), "berm run --here=DIR, with a folder")
	}
	f, err := os.OpenFile(abs, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, refuse(api.CodeBadRequest, "here: "+dir+": "+pathless(err).Error(), "berm run --here=DIR, with a folder")
	}
	if opt.State != "" {
		if s, err := filepath.EvalSymlinks(opt.State); err == nil {
			opt.State = s
		}
	}
	return &Tree{Dir: abs, opt: opt, dir: f}, nil
}

// Close lets go of the folder.
func (t *Tree) Close() error { return t.dir.Close() }

func (t *Tree) fd() int { return int(t.dir.Fd()) }

func pathless(err error) error {
	var pe *os.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// A scan is what lies in a tree now. Entries whose content must still be read
// are not known.
type scan struct {
	at      time.Time // began
	entries []Entry   // sorted; what stays out by its name is not in it
	skips   []Skip    // sorted by path; folders stand for what is in them
	notes   []string  // for the person who called
	bytes   int64
}

// scan walks the tree, following no link. before says what was known of it.
func (t *Tree) scan(before *index) (*scan, error) {
	w := &walker{t: t, before: before}
	w.cond = sync.NewCond(&w.mu)
	if before != nil {
		w.entries = make([]Entry, 0, len(before.entries)+len(before.entries)/8+64)
	}
	s := &scan{at: time.Now()}
	var stack []*rules
	if t.opt.NoIgnored {
		stack = outerRules(t.Dir)
		if r := readIgnore(t.fd(), ".git/info/exclude", ""); r != nil {
			stack = append(stack, r)
		}
	}
	w.push(folder{rules: stack})
	var wg sync.WaitGroup
	for range min(runtime.NumCPU()*2, 16) {
		wg.Go(w.work)
	}
	wg.Wait()
	if w.err != nil {
		return nil, w.err
	}
	s.entries, s.skips, s.bytes = w.entries, w.skips, w.bytes
	sortEntries(s.entries)
	sortSkips(s.skips)
	if target := t.worktree(); target != "" {
		s.notes = append(s.notes, ".git here only points to "+target+", which does not go in: git does not work inside")
	}
	return s, nil
}

// worktree is where the repository of a linked worktree or a submodule lies.
func (t *Tree) worktree() string {
	data, err := readSmall(t.fd(), ".git", 4096)
	if err != nil {
		return ""
	}
	target, ok := strings.CutPrefix(strings.TrimSpace(string(data)), "gitdir: ")
	if !ok {
		return ""
	}
	return target
}

// A folder waits to be read.
type folder struct {
	path  string
	rules []*rules
}

// A walker reads folders with several hands.
type walker struct {
	t      *Tree
	before *index

	mu      sync.Mutex
	cond    *sync.Cond
	queue   []folder
	busy    int
	bytes   int64
	entries []Entry
	skips   []Skip
	err     error
}

func (w *walker) push(f folder) {
	w.queue = append(w.queue, f)
	w.cond.Signal()
}

func (w *walker) work() {
	buf := &batch{}
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		for len(w.queue) == 0 && w.busy > 0 && w.err == nil {
			w.cond.Wait()
		}
		if len(w.queue) == 0 || w.err != nil {
			w.cond.Broadcast()
			return
		}
		f := w.queue[len(w.queue)-1]
		w.queue = w.queue[:len(w.queue)-1]
		w.busy++
		w.mu.Unlock()
		buf.reset()
		err := w.read(f, buf)
		w.mu.Lock()
		w.busy--
		w.entries = append(w.entries, buf.entries...)
		w.skips = append(w.skips, buf.skips...)
		w.bytes += buf.bytes
		for _, sub := range buf.folders {
			w.push(sub)
		}
		switch {
		case err != nil:
			w.err = err
		case len(w.entries) > MaxEntries:
			w.err = refuse(api.CodeBadRequest, "here: the tree has more than a million files", "berm run --here --here-exclude PATTERN, or --no-ignored")
		case w.bytes > MaxBytes:
			w.err = refuse(api.CodeBadRequest, "here: the tree has more than 8 GiB", "berm run --here --here-exclude PATTERN, or --no-ignored")
		}
		if w.busy == 0 {
			w.cond.Broadcast()
		}
	}
}

// A batch is what one folder holds.
type batch struct {
	entries []Entry
	skips   []Skip
	folders []folder
	bytes   int64
}

func (b *batch) reset() {
	b.entries, b.skips, b.folders, b.bytes = b.entries[:0], b.skips[:0], b.folders[:0], 0
}

func (b *batch) skip(path, why string) { b.skips = append(b.skips, Skip{path, why}) }

// read lists one folder.
func (w *walker) read(f folder, b *batch) error {
	t := w.t
	fd, err := openBeneath(t.fd(), f.path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		if f.path == "" {
			return refuse(api.CodeBadRequest, "here: "+t.Dir+": "+err.Error(), "a folder that you can read")
		}
		b.skip(f.path, WhyUnreadable) // or it is gone, or became a link meanwhile
		return nil
	}
	d := os.NewFile(uintptr(fd), f.path)
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		b.skip(f.path, WhyUnreadable)
	}
	stack := f.rules
	if t.opt.NoIgnored && !inGit(f.path) {
		if r := readIgnore(fd, ".gitignore", f.path); r != nil {
			stack = append(stack[:len(stack):len(stack)], r)
		}
	}
	prefix := f.path
	if prefix != "" {
		prefix += "/"
	}
	for _, name := range names {
		path := prefix + name
		var st unix.Stat_t
		if err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			if err != unix.ENOENT { // else it is gone by now
				b.skip(path, WhyUnreadable)
			}
			continue
		}
		w.take(fd, name, path, &st, stack, b)
	}
	return nil
}

// take settles what becomes of one name.
func (w *walker) take(dirfd int, name, path string, st *unix.Stat_t, stack []*rules, b *batch) {
	t := w.t
	kind := st.Mode & unix.S_IFMT
	dir := kind == unix.S_IFDIR
	if why := t.leave(path, name, dir, stack); why != "" {
		b.skip(path, why)
		return
	}
	e := Entry{Path: path, Mode: st.Mode & 0o777, stamp: stampOf(st)}
	switch kind {
	case unix.S_IFDIR:
		e.Kind = Dir
	case unix.S_IFREG:
		e.Kind, e.Size = File, st.Size
	case unix.S_IFLNK:
		e.Kind, e.Mode = Link, 0o777
	}
	w.before.recall(&e)
	switch kind {
	case unix.S_IFDIR:
		b.folders = append(b.folders, folder{path, stack})
	case unix.S_IFREG:
		b.bytes += e.Size
	case unix.S_IFLNK:
		target, err := readlinkAt(dirfd, name)
		if err != nil {
			b.skip(path, WhyUnreadable)
			return
		}
		e.Target, e.known = target, true
	default:
		b.skip(path, WhySpecial)
		return
	}
	b.entries = append(b.entries, e)
}

// leave says why a name stays out, or "".
func (t *Tree) leave(path, name string, dir bool, stack []*rules) string {
	switch {
	case t.opt.State != "" && dir && filepath.Join(t.Dir, path) == t.opt.State:
		return WhyName
	case strings.HasPrefix(name, ".wh.") || strings.HasPrefix(name, tmpPrefix) || len(path) > maxPath || strings.Count(path, "/") >= maxDepth:
		return WhyName
	case t.opt.Exclude.match(path, dir):
		return WhyExcluded
	case t.opt.Include.match(path, dir):
		return ""
	case credentialName(path, name, dir):
		return WhyCredential
	case t.opt.NoIgnored && name != ".git" && !inGit(path) && ignored(stack, path, dir):
		return WhyIgnored
	}
	return ""
}

// inGit says that a path is in a folder .git.
func inGit(path string) bool {
	return strings.HasPrefix(path, ".git/") || path == ".git" || strings.Contains(path, "/.git/") || strings.HasSuffix(path, "/.git")
}

func readAtMost(f io.Reader, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = unix.EFBIG
	}
	return data, err
}
