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
	"unicode"
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
	Rule   string // "out.path", "out.symlink", "out.special", "out.collision", "out.limit", "out.count"
	Reason string
	Fix    string
}

func (r *Refusal) Error() string { return r.Reason }

// A Target is a folder on this host into which files from inside are written.
// Their names, modes and bytes are hostile: nothing is made outside the
// folder, no symlink below it is followed (one that is swapped in while a file
// is written included), and only regular files and directories are made.
type Target struct {
	dir  string
	root *os.Root
	left *int64 // bytes that may still come, shared by all targets of a run
	seen map[string]bool
}

// OpenTarget opens dir, made if it is missing. It writes at most *left bytes,
// and counts *left down.
func OpenTarget(dir string, left *int64) (*Target, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return &Target{dir: dir, root: root, left: left, seen: map[string]bool{}}, nil
}

// Close releases the folder.
func (t *Target) Close() error { return t.root.Close() }

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
		case strings.ContainsFunc(n, unicode.IsControl):
			return bad("has a control character")
		}
	}
	return nil
}

// Write makes one regular file at a relative slash path. An existing regular
// file is replaced when the new one is whole; anything else that is already
// there is a refusal.
func (t *Target) Write(local string, mode uint32, r io.Reader) (api.Artifact, error) {
	if err := SafePath(local); err != nil {
		return api.Artifact{}, err
	}
	if t.seen[local] {
		return api.Artifact{}, &Refusal{Rule: "out.collision", Reason: fmt.Sprintf("%q was already brought out", local)}
	}
	parent, name := path.Split(local)
	dir, err := t.descend(parent)
	if err != nil {
		return api.Artifact{}, err
	}
	if dir != t.root {
		defer dir.Close()
	}
	if fi, err := dir.Lstat(name); err == nil && !fi.Mode().IsRegular() {
		return api.Artifact{}, occupied(local, fi)
	}

	tmp := ".berm-" + rand.Text()
	f, err := dir.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return api.Artifact{}, err
	}
	defer dir.Remove(tmp) // after the rename there is none
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(f, h), io.LimitReader(r, *t.left+1))
	if n > *t.left || errors.Is(err, errMore) {
		return api.Artifact{}, &Refusal{Rule: "out.limit", Reason: fmt.Sprintf("%q is larger than what may still come out", local), Fix: "berm run --out-limit SIZE"}
	}
	if err != nil {
		return api.Artifact{}, err
	}
	perm := os.FileMode(0o644)
	if mode&0o111 != 0 {
		perm = 0o755
	}
	if err := f.Chmod(perm); err != nil {
		return api.Artifact{}, err
	}
	if err := f.Close(); err != nil {
		return api.Artifact{}, err
	}
	if err := dir.Rename(tmp, name); err != nil {
		return api.Artifact{}, err
	}
	*t.left -= n
	t.seen[local] = true
	return api.Artifact{Local: path.Join(t.dir, local), Bytes: n, SHA256: hex.EncodeToString(h.Sum(nil))}, nil
}

// descend opens the directory at a relative path, one part at a time, and makes
// what is missing. What was a directory when it was looked at must be the very
// one that was opened, so a symlink is never followed, not even inside.
func (t *Target) descend(parent string) (*os.Root, error) {
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
