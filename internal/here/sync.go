package here

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bermhq/berm/api"
)

// A Server keeps trees. Both calls return *api.Error for what it refuses;
// api.CodeWorkspaceNotFound says that it does not know the id.
type Server interface {
	Workspace(ctx context.Context, id string) (api.WorkTree, error)
	PutWorkspace(ctx context.Context, parent string, layer io.Reader) (api.WorkTree, error)
}

const (
	// maxLayers is how many layers a tree may have on a server before changes
	// are joined into one.
	maxLayers = 6
	// A tree of which more than a quarter changed, or of which all is no more
	// than smallTree, is sent anew.
	share     = 4
	smallTree = 1 << 20
)

// Synced is a tree that a server has.
type Synced struct {
	ID       string
	Entries  []Entry // what went in, sorted
	Skips    []Skip  // what did not
	Notes    []string
	Bytes    int64 // of all that is in it
	Uploaded int64 // bytes of files that were sent for it now
	Full     bool  // all of it was sent
}

// A Scan is a tree that was looked at, and what is remembered of it.
type Scan struct {
	t      *Tree
	folder string // of what is remembered
	head   *index
	now    *scan

	progress func(done, total int64)
}

// Scan looks at the tree and at what is kept below state of the last time, for
// one server. It reads no content.
func (t *Tree) Scan(state *State, server string) (*Scan, error) {
	folder, err := state.tree(t.Dir, server)
	if err != nil {
		return nil, err
	}
	s := &Scan{t: t, folder: folder, head: loadIndex(filepath.Join(folder, "head"))}
	s.now, err = t.scan(s.head)
	return s, err
}

// Sync sees to it that the server has the tree as it is now. progress is told
// of bytes that were sent, and may be nil.
func (s *Scan) Sync(ctx context.Context, srv Server, progress func(done, total int64)) (*Synced, error) {
	s.progress = progress
	head := s.head
	if head != nil && head.ID != "" {
		if _, err := srv.Workspace(ctx, head.ID); unknown(err) {
			head = nil
		} else if err != nil {
			return nil, err
		}
	} else {
		head = nil
	}
	out := &Synced{}
	d, err := s.since(head)
	if err != nil {
		return nil, err
	}
	if head == nil || !d.empty() {
		head, err = s.send(ctx, srv, head, d, out)
		if err != nil {
			return nil, err
		}
	}
	out.ID = head.ID
	for _, e := range s.now.entries {
		if e.secret && e.out {
			s.now.skips = append(s.now.skips, Skip{e.Path, WhyCredential})
		}
		if !e.out {
			out.Entries = append(out.Entries, e)
			out.Bytes += e.Size
		}
	}
	sortSkips(s.now.skips)
	out.Skips, out.Notes = s.now.skips, s.now.notes
	return out, nil
}

func unknown(err error) bool {
	var ae *api.Error
	return errors.As(err, &ae) && ae.Code == api.CodeWorkspaceNotFound
}

func tooLong(err error) bool {
	var ae *api.Error
	return errors.As(err, &ae) && ae.Code == api.CodeWorkspaceTooLarge
}

// send uploads a change, joined to those before or as a whole where that is
// better, and remembers what the server then has.
func (s *Scan) send(ctx context.Context, srv Server, head *index, d *delta, out *Synced) (*index, error) {
	next := &index{At: s.now.at.UnixNano()}
	all := s.now.bytes
	if head != nil && (all <= smallTree && len(s.now.entries) < 500 || (head.Bytes+d.bytes)*share > all) {
		head = nil
	}
	below := head
	if head != nil && head.Layers >= maxLayers {
		if below = loadIndex(filepath.Join(s.folder, "base")); below == nil || below.ID != head.Base {
			below = nil
		}
	}
	if below != nil && below != head {
		if _, err := srv.Workspace(ctx, below.ID); unknown(err) {
			below = nil
		} else if err != nil {
			return nil, err
		}
	}
	if below != head || below == nil {
		var err error
		if d, err = s.since(below); err != nil {
			return nil, err
		}
		if below != nil && d.bytes*share > all {
			below = nil
			if d, err = s.since(nil); err != nil {
				return nil, err
			}
		}
	}
	parent := ""
	if below != nil {
		parent, next.Base, next.Layers, next.Bytes = below.ID, below.Base, below.Layers+1, below.Bytes+d.bytes
	}
	wt, sent, err := s.upload(ctx, srv, parent, d)
	if parent != "" && (unknown(err) || tooLong(err)) { // forgotten between two calls, or more layers than it takes
		if d, err = s.since(nil); err != nil {
			return nil, err
		}
		below, next.Base, next.Layers, next.Bytes = nil, "", 0, 0
		wt, sent, err = s.upload(ctx, srv, "", d)
	}
	if err != nil {
		return nil, err
	}
	next.ID, next.Parent, next.entries = wt.WorkspaceID, parent, s.now.entries
	if below == nil {
		next.Base, next.Layers = next.ID, 1
	}
	out.Uploaded, out.Full = sent, below == nil
	if below == nil {
		if err := saveIndex(filepath.Join(s.folder, "base"), next); err != nil {
			return nil, err
		}
	}
	return next, saveIndex(filepath.Join(s.folder, "head"), next)
}

// A delta is what must be sent for a server that has a tree already.
type delta struct {
	change []*Entry // sorted
	gone   []string
	bytes  int64
	below  *index
}

func (d *delta) empty() bool { return len(d.change) == 0 && len(d.gone) == 0 }

// since compares the tree as it is now with what a server has; nil is nothing.
// Files that only look changed are read.
func (s *Scan) since(old *index) (*delta, error) {
	d := &delta{below: old}
	kinds := make(map[string]byte, 64) // of what is there now, if it is of another kind
	var still []bool                   // by the place in old
	if old != nil {
		still = make([]bool, len(old.entries))
	}
	for i := range s.now.entries {
		e := &s.now.entries[i]
		was := old.find(e)
		if e.Kind == File && !e.known && was != nil && was.Kind == File && was.stamp.size == e.stamp.size && was.stamp.mtime == e.stamp.mtime {
			s.t.settle(e)
		}
		e.out = e.known && e.secret && !s.t.opt.Include.match(e.Path, false)
		if old != nil {
			if n := old.place(e); n >= 0 {
				still[n] = !e.out
			}
		}
		switch {
		case e.out:
		case was == nil || !e.known && e.Kind == File || !e.same(was) || e.Kind == File && e.stamp.mtime != was.stamp.mtime:
			d.change = append(d.change, e)
			d.bytes += e.Size
			if was != nil && was.Kind != e.Kind {
				kinds[e.Path] = e.Kind
			}
		}
	}
	if old == nil {
		return d, nil
	}
	gone := map[string]bool{}
	for i := range old.entries {
		e := &old.entries[i]
		if e.out || still[i] {
			continue
		}
		up := parent(e.Path)
		if gone[up] || kinds[up] != 0 { // goes with what is above it
			gone[e.Path] = true
			continue
		}
		gone[e.Path] = true
		d.gone = append(d.gone, e.Path)
	}
	return d, nil
}

// settle reads a file whose stamp proves nothing, and notes its hash.
func (t *Tree) settle(e *Entry) {
	c, err := t.open(e)
	if err != nil {
		return
	}
	defer c.close()
	if _, err := io.Copy(io.Discard, c); err == nil {
		c.note(e)
	}
}

// A State is where this package keeps things: a folder of the caller's own.
type State struct{ dir string }

// OpenState makes the folder here/ below dir, closed to others.
func OpenState(dir string) (*State, error) {
	s := &State{filepath.Join(dir, "here")}
	if err := s.make(s.dir); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *State) make(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return stateTrouble(err)
	}
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return stateTrouble(err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0 {
		return refuse(api.CodeHostFailure, "here: "+dir+" is not yours alone", "berm --state DIR ..., with a directory of your own")
	}
	return nil
}

// tree is the folder for one tree on one server.
func (s *State) tree(dir, server string) (string, error) {
	folder := filepath.Join(s.dir, "trees", short(dir+"\x00"+server))
	if err := s.make(filepath.Dir(folder)); err != nil {
		return "", err
	}
	if err := s.make(folder); err != nil {
		return "", err
	}
	return folder, os.WriteFile(filepath.Join(folder, "of"), []byte(strings.ReplaceAll(dir, "\n", " ")+"\n"+server+"\n"), 0o600)
}
