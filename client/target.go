package client

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/bermhq/berm/api"
)

// Bounds of one local path.
const (
	maxName  = 255
	maxLocal = 4096
	maxDepth = 64
)

// A Refusal says why a file from inside was not written. Rule is stable.
type Refusal struct {
	Rule   string // "out.path", "out.symlink", "out.special", "out.collision", "out.limit", "out.count", "out.host", "out.ended", "out.dot", "out.dotgit", "out.replace", "out.slow"
	Reason string
	Fix    string
}

func (r *Refusal) Error() string { return r.Reason }

// A target is a folder on this host into which files from inside are written.
// Their names, modes and bytes are hostile: nothing is made outside the
// folder, no symlink below it is followed (one that is swapped in while a file
// is written included), and only regular files and directories are made.
type target struct {
	dir    string
	root   *os.Root
	budget *budget // bytes that may still come, shared by all targets of a run

	careful bool // replace nothing that is executable or dotted

	mu       sync.Mutex
	replaced []string
}

// openTarget opens dir, made if it is missing. It writes at most as many bytes
// as are left in b.
func openTarget(dir string, b *budget) (*target, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, unwritable(dir, err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, unwritable(dir, err)
	}
	return &target{dir: dir, root: root, budget: b}, nil
}

func tmpName() string { return ".berm-" + rand.Text() }

// unwritable is a Refusal for what this host did not let happen at name.
func unwritable(name string, err error) *Refusal {
	var pe *fs.PathError
	var le *os.LinkError
	switch { // the name in these may be one that nobody knows
	case errors.As(err, &pe):
		err = pe.Err
	case errors.As(err, &le):
		err = le.Err
	}
	return &Refusal{Rule: "out.host", Reason: fmt.Sprintf("%q cannot be written on this host: %v", name, err), Fix: "name a folder that can be written, as in --out PATH:LOCAL"}
}

// SafePath says why a relative slash path may not be made locally, or nil.
func SafePath(p string) error {
	bad := func(why string) error {
		return &Refusal{Rule: "out.path", Reason: fmt.Sprintf("%.80q %s", p, why)}
	}
	switch {
	case p == "":
		return bad("is empty")
	case len(p) > maxLocal:
		return bad("is too long")
	case !utf8.ValidString(p):
		return bad("is not UTF-8")
	case strings.HasPrefix(p, "/"):
		return bad("is absolute")
	}
	names := strings.Split(p, "/")
	if len(names) > maxDepth {
		return bad("is too deep")
	}
	for _, n := range names {
		switch {
		case n == "" || n == "." || n == "..":
			return bad("has a part that is empty or a dot")
		case len(n) > maxName:
			return bad("has a part that is too long")
		case strings.ContainsFunc(n, misleads):
			return bad("has a control character")
		}
	}
	return nil
}

// write makes one regular file at a relative slash path, of which reserved
// bytes are already taken from the budget. An existing regular file is replaced
// when the new one is whole; anything else that is already there is a refusal.
// It is safe for concurrent use.
func (t *target) write(local string, mode uint32, r io.Reader, reserved int64) (a api.Artifact, err error) {
	m := &metered{r: r, b: t.budget, taken: reserved}
	defer func() { m.settle(err == nil) }()
	if err := SafePath(local); err != nil {
		return a, err
	}
	parent, name := path.Split(local)
	full := path.Join(t.dir, local)
	dir, err := t.descend(parent)
	if err != nil {
		return a, trouble(full, err)
	}
	if dir != t.root {
		defer dir.Close()
	}
	d := &draft{dir: dir, name: name}
	if d.replaces, err = t.mayReplace(dir, name, local); err != nil {
		return a, err
	}
	if err := d.create(); err != nil {
		return a, unwritable(full, err)
	}
	defer d.drop()
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(d.f, h), m)
	var pe *fs.PathError
	switch {
	case errors.Is(err, errMore):
		return a, &Refusal{Rule: "out.limit", Reason: fmt.Sprintf("%q is larger than what may still come out", local), Fix: "berm run --out-limit SIZE"}
	case errors.As(err, &pe):
		return a, unwritable(full, err)
	case err != nil:
		return a, &Refusal{Rule: "out.ended", Reason: "broke off while it was read: " + err.Error()}
	}
	perm := os.FileMode(0o644)
	if mode&0o111 != 0 {
		perm = 0o755
	}
	err = d.keep(perm, func() error { // something came there meanwhile
		_, err := t.mayReplace(dir, name, local)
		return err
	})
	if err != nil {
		return a, trouble(full, err)
	}
	if d.replaces {
		t.mu.Lock()
		t.replaced = append(t.replaced, full)
		t.mu.Unlock()
	}
	return api.Artifact{Local: full, Bytes: n, SHA256: hex.EncodeToString(h.Sum(nil))}, nil
}

// mayReplace looks at what is at name in dir: nothing, or a file that may be
// replaced.
func (t *target) mayReplace(dir *os.Root, name, local string) (exists bool, err error) {
	fi, err := dir.Lstat(name)
	switch {
	case err != nil: // what else is wrong shows when it is made
		return false, nil
	case !fi.Mode().IsRegular():
		return true, occupied(local, fi)
	case t.careful && fi.Mode()&0o111 != 0:
		return true, kept(local, "can be executed")
	case t.careful && anyDotted(local):
		return true, kept(local, "starts with a dot")
	}
	return true, nil
}

func kept(local, why string) *Refusal {
	return &Refusal{Rule: "out.replace", Reason: fmt.Sprintf("%q is already there and %s; it was not replaced", local, why), Fix: "say where it goes, as in --out PATH:LOCAL"}
}

// trouble is err if it is a Refusal, else one for trouble at name.
func trouble(name string, err error) error {
	var r *Refusal
	if errors.As(err, &r) {
		return err
	}
	return unwritable(name, err)
}

// descend opens the directory at a relative path, one part at a time, and makes
// what is missing. What was a directory when it was looked at must be the very
// one that was opened, so a symlink is never followed, not even inside.
func (t *target) descend(parent string) (*os.Root, error) {
	cur := t.root
	for n := range strings.SplitSeq(strings.TrimSuffix(parent, "/"), "/") {
		if n == "" {
			break
		}
		next, err := step(cur, n)
		if cur != t.root {
			cur.Close()
		}
		if err != nil {
			return nil, err
		}
		cur = next
	}
	return cur, nil
}

func step(cur *os.Root, name string) (*os.Root, error) {
	if err := cur.Mkdir(name, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	before, err := cur.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !before.IsDir() {
		return nil, occupied(name, before)
	}
	next, err := cur.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	after, err := next.Stat(".")
	if err != nil || !os.SameFile(before, after) {
		next.Close()
		return nil, &Refusal{Rule: "out.symlink", Reason: fmt.Sprintf("%q changed while it was opened", name)}
	}
	return next, nil
}

func occupied(name string, fi fs.FileInfo) error {
	if fi.Mode()&fs.ModeSymlink != 0 {
		return &Refusal{Rule: "out.symlink", Reason: fmt.Sprintf("%q is a symlink on this host", name), Fix: "remove it, or name another folder"}
	}
	return &Refusal{Rule: "out.collision", Reason: fmt.Sprintf("%q is already there and is not a regular file", name), Fix: "name another folder"}
}
