package image

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"syscall"

	"github.com/bermhq/berm/api"
)

// dirRecipe takes a directory as it is. Directories that other filesystems are
// mounted on are taken empty.
func dirRecipe(dir string, opt Options, s *Store) recipe {
	own, _ := filepath.Abs(s.dir)
	skip := func(p string) bool {
		at := path.Join(dir, p)
		return belowAny(p, opt.Exclude) || below(own, dir) && below(at, own)
	}
	return recipe{
		template: dir,
		key: func() (string, error) {
			h := newKey("dir", opt)
			if err := hashTree(h, dir, func(p string) bool { return skip(p[len(dir):]) }); err != nil {
				return "", unreadable(dir, err)
			}
			return nameOf(h.Sum(nil)), nil
		},
		build: func(m *meter) (built, error) {
			root, err := os.OpenRoot(dir)
			if err != nil {
				return built{}, unreadable(dir, err)
			}
			d := dirReader{root: root, tree: newTree(), m: m, skip: skip, inodes: map[inode]*node{}}
			if err = d.read(); err == nil {
				err = isRoot(d.tree, dir)
			}
			if err == nil {
				err = completeGuest(d.tree)
			}
			if err != nil {
				root.Close()
				return built{}, unreadable(dir, err)
			}
			return built{tree: d.tree, close: func() { root.Close() }}, nil
		},
	}
}

func unreadable(template string, err error) error {
	var known *api.Error
	switch {
	case errors.As(err, &known):
		return err
	case errors.Is(err, fs.ErrNotExist):
		return fail(api.CodeTemplateInvalid, fmt.Sprintf("template %s changed while it was read: %v", template, err), "run the same command again")
	case errors.Is(err, fs.ErrPermission):
		return fail(api.CodeTemplateInvalid, fmt.Sprintf("template %s: %v", template, err),
			"run as the owner of these files, or leave them out with --template-exclude")
	}
	return fail(api.CodeTemplateInvalid, fmt.Sprintf("template %s: %v", template, err), "repair it, or leave the entry out with --template-exclude")
}

// completeGuest adds to a given root filesystem what a sandbox needs.
func completeGuest(t *tree) error {
	t.root.mode, t.root.uid, t.root.gid = typeDir|0o755, 0, 0
	if err := addSkeleton(t); err != nil {
		return err
	}
	return addGuestFiles(t)
}

type dirReader struct {
	root   *os.Root
	tree   *tree
	m      *meter
	skip   func(p string) bool
	inodes map[inode]*node
	dev    uint64
}

func (d *dirReader) read() error {
	info, err := d.root.Stat(".")
	if err != nil {
		return err
	}
	d.dev = info.Sys().(*syscall.Stat_t).Dev
	return d.readDir("/", d.tree.root)
}

func (d *dirReader) readDir(p string, into *node) error {
	dir, err := d.root.Open(path.Join(".", p))
	if err != nil {
		return err
	}
	names, err := dir.Readdirnames(-1)
	dir.Close()
	if err != nil {
		return err
	}
	for _, name := range names {
		kid := path.Join(p, name)
		if d.skip(kid) {
			continue
		}
		if err := d.m.add(0, 1); err != nil {
			return err
		}
		n, err := d.readNode(kid)
		if err != nil {
			return err
		}
		if n == nil {
			continue
		}
		if err := d.tree.put(into, name, n); err != nil {
			return fmt.Errorf("%s: %w", kid, err)
		}
	}
	return nil
}

// readNode returns nil for what has no place in an image.
func (d *dirReader) readNode(p string) (*node, error) {
	info, err := d.root.Lstat(rel(p))
	if err != nil {
		return nil, err
	}
	st := info.Sys().(*syscall.Stat_t)
	n := &node{
		mode: st.Mode & (typeMask | 0o1777), uid: st.Uid, gid: st.Gid,
		mtime: st.Mtim.Sec, nsec: uint32(st.Mtim.Nsec),
	}
	switch st.Mode & typeMask {
	case typeDir:
		n.kids = map[string]*node{}
		if st.Dev != d.dev {
			return n, nil
		}
		return n, d.readDir(p, n)
	case typeLink:
		n.target, err = d.root.Readlink(rel(p))
		return n, err
	case typeFile:
		id := inode{st.Dev, st.Ino}
		if old := d.inodes[id]; old != nil && st.Nlink > 1 {
			return old, nil
		}
		d.inodes[id] = n
		n.size, n.src = st.Size, fileSource{d.root, rel(p)}
		return n, nil
	}
	return nil, nil
}
