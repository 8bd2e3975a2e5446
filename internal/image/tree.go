package image

import (
	"errors"
	"fmt"
	"strings"
)

// Type bits of a mode, as Linux and EROFS write them.
const (
	typeMask = 0o170000
	typeFile = 0o100000
	typeDir  = 0o040000
	typeLink = 0o120000
	typeChar = 0o020000 // only as a whiteout, device 0:0
)

// Bounds on any tree, whatever it came from.
const (
	maxNodes  = 2_000_000
	maxName   = 255
	maxPath   = 4096 // also of a symlink's target
	maxHops   = 40   // symlinks followed on one path
	maxDepth  = 2200 // directories inside each other: more than a path has, far from the end of the stack
	epoch     = 1577836800
	agentID   = 1000
	agentName = "agent"
)

var (
	errNotDir   = errors.New("not a directory")
	errTooDeep  = errors.New("too many levels of symbolic links")
	errNested   = errors.New("too many directories inside each other")
	errBadName  = errors.New("invalid name")
	errTooMany  = errors.New("more than 2000000 entries")
	errNotFound = errors.New("no such file or directory")
)

// A node is one inode. A regular file with several names is one node with
// several parents.
type node struct {
	mode     uint32 // type and permission bits
	uid, gid uint32
	mtime    int64 // seconds
	nsec     uint32
	size     int64            // of a regular file
	src      source           // of a regular file with content
	target   string           // of a symlink
	kids     map[string]*node // of a directory

	// Filled in by the writer.
	nid    uint64
	nlink  uint32
	block  uint32
	parent *node
	dirent []byte
}

func newDir(perm uint32) *node {
	return &node{mode: typeDir | perm, kids: map[string]*node{}, mtime: epoch}
}

func newFile(perm uint32, content []byte) *node {
	return &node{mode: typeFile | perm, size: int64(len(content)), src: bytesSource(content), mtime: epoch}
}

func newLink(target string) *node {
	return &node{mode: typeLink | 0o777, target: target, mtime: epoch}
}

// newWhiteout is what an overlay takes for "there is nothing of this name".
func newWhiteout() *node { return &node{mode: typeChar} }

func (n *node) isDir() bool  { return n.mode&typeMask == typeDir }
func (n *node) isFile() bool { return n.mode&typeMask == typeFile }
func (n *node) isLink() bool { return n.mode&typeMask == typeLink }
func (n *node) isGone() bool { return n.mode&typeMask == typeChar }

// A tree is a root filesystem that is being put together.
type tree struct {
	root  *node
	count int
}

func newTree() *tree { return &tree{root: newDir(0o755), count: 1} }

// split cuts a path into its names. The path counts from the root of the tree
// with or without a leading slash; ".." has no place in it.
func split(path string) ([]string, error) {
	if len(path) > maxPath || strings.IndexByte(path, 0) >= 0 {
		return nil, errBadName
	}
	var out []string
	for name := range strings.SplitSeq(path, "/") {
		switch {
		case name == "" || name == ".":
		case name == ".." || len(name) > maxName:
			return nil, errBadName
		default:
			out = append(out, name)
		}
	}
	return out, nil
}

// walk finds the node at names, following symlinks inside the tree as the guest
// would, the last one too if follow is set. With make set, what is missing on
// the way becomes a directory.
func (t *tree) walk(names []string, follow, create bool) (*node, error) {
	stack := []*node{t.root}
	todo := names
	for hops := 0; len(todo) > 0; {
		name, rest := todo[0], todo[1:]
		cur := stack[len(stack)-1]
		todo = rest
		if name == "" || name == "." {
			continue
		}
		if name == ".." { // only out of a symlink's target
			if len(stack) > 1 {
				stack = stack[:len(stack)-1]
			}
			continue
		}
		kid := cur.kids[name]
		if kid == nil {
			if !create {
				return nil, errNotFound
			}
			kid = newDir(0o755)
			if err := t.put(cur, name, kid); err != nil {
				return nil, err
			}
		}
		if kid.isLink() && (follow || len(rest) > 0) {
			if hops++; hops > maxHops {
				return nil, errTooDeep
			}
			if strings.HasPrefix(kid.target, "/") {
				stack = stack[:1]
			}
			todo = append(strings.Split(kid.target, "/"), rest...)
			continue
		}
		if len(rest) == 0 && !kid.isDir() {
			return kid, nil
		}
		if !kid.isDir() {
			return nil, errNotDir
		}
		if len(stack) >= maxDepth {
			return nil, errNested
		}
		stack = append(stack, kid)
	}
	return stack[len(stack)-1], nil
}

// put binds name in dir, replacing what was there.
func (t *tree) put(dir *node, name string, n *node) error {
	if len(name) == 0 || len(name) > maxName || strings.ContainsAny(name, "/\x00") {
		return errBadName
	}
	if _, ok := dir.kids[name]; !ok {
		if t.count++; t.count > maxNodes {
			return errTooMany
		}
	}
	dir.kids[name] = n
	return nil
}

// find returns the node at path after following symlinks, or nil.
func (t *tree) find(path string) *node {
	names, err := split(path)
	if err != nil {
		return nil
	}
	n, err := t.walk(names, true, false)
	if err != nil {
		return nil
	}
	return n
}

// add puts n at path and makes the directories above. A directory added where
// one exists takes over its attributes and keeps the entries.
func (t *tree) add(path string, n *node) error {
	names, err := split(path)
	if err != nil {
		return fmt.Errorf("%.200q: %w", path, err)
	}
	if len(names) == 0 {
		if !n.isDir() {
			return fmt.Errorf("%.200q: %w", path, errNotDir)
		}
		t.root.mode, t.root.uid, t.root.gid, t.root.mtime, t.root.nsec = n.mode, n.uid, n.gid, n.mtime, n.nsec
		return nil
	}
	last := len(names) - 1
	dir, err := t.walk(names[:last], true, true)
	if err == nil && !dir.isDir() {
		err = errNotDir
	}
	if err != nil {
		return fmt.Errorf("%.200q: %w", path, err)
	}
	if old := dir.kids[names[last]]; old != nil && old.isDir() && n.isDir() {
		old.mode, old.uid, old.gid, old.mtime, old.nsec = n.mode, n.uid, n.gid, n.mtime, n.nsec
		return nil
	}
	if err := t.put(dir, names[last], n); err != nil {
		return fmt.Errorf("%.200q: %w", path, err)
	}
	return nil
}

// remove takes away what is at path, if anything.
func (t *tree) remove(path string) {
	names, err := split(path)
	if err != nil || len(names) == 0 {
		return
	}
	last := len(names) - 1
	if dir, err := t.walk(names[:last], true, false); err == nil && dir.isDir() {
		delete(dir.kids, names[last])
	}
}
