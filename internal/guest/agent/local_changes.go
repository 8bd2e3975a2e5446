package agent

import (
	"archive/tar"
	"context"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/bermhq/berm/internal/guest"
)

// Track notes how the files are now, for Changes.
func (l *Local) Track() error {
	base := make(map[string]guest.FileInfo)
	err := filepath.WalkDir(l.dir, func(full string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := l.inside(full)
		base[name], err = info(full, name)
		return err
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.base = base
	return err
}

// inside is what a file of the machine is called in here.
func (l *Local) inside(full string) string {
	return path.Clean("/" + strings.TrimPrefix(full, l.dir))
}

// Changes compares with what Track saw.
func (l *Local) Changes(ctx context.Context, dir string, dst io.Writer) error {
	l.mu.Lock()
	base := l.base
	l.mu.Unlock()
	if base == nil {
		return syscall.EOPNOTSUPP
	}
	top, err := l.Files().abs(dir)
	if err != nil {
		return err
	}
	if st, err := os.Lstat(top); err != nil {
		return err
	} else if !st.IsDir() {
		return syscall.ENOTDIR
	}
	d := newDelta(ctx, dst)
	in := map[string]bool{}
	err = filepath.WalkDir(top, func(full string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := l.inside(full)
		in[name] = true
		now, err := info(full, name)
		was, there := base[name]
		if err != nil || full == top || there && (now == was || now.Kind == guest.KindDir && was.Kind == now.Kind && was.Mode == now.Mode) {
			return err
		}
		return l.change(d, full, strings.TrimPrefix(full, top+"/"), now)
	})
	if err != nil {
		return err
	}
	var gone []string
	for name := range base {
		rel, below := strings.CutPrefix(name, strings.TrimSuffix(path.Clean(dir), "/")+"/")
		if below && !in[name] && in[path.Dir(name)] {
			gone = append(gone, rel)
		}
	}
	slices.Sort(gone)
	for _, name := range gone {
		if err := d.gone(name); err != nil {
			return err
		}
	}
	return d.close()
}

func (l *Local) change(d *delta, full, name string, now guest.FileInfo) error {
	i := &item{name: name, mode: int64(now.Mode), uid: int(now.UID), gid: int(now.GID), mtime: now.ModTime, size: now.Size}
	switch now.Kind {
	case guest.KindDir:
		i.kind = tar.TypeDir
	case guest.KindSymlink:
		i.kind, i.target = tar.TypeSymlink, now.LinkTarget
	case guest.KindFile:
		i.kind = tar.TypeReg
		f, err := os.Open(full)
		if err != nil {
			return err
		}
		defer f.Close()
		return d.put(i, f)
	default:
		return nil
	}
	return d.put(i, nil)
}
