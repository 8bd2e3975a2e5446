package agent

import (
	"context"
	"io"
	"os"
	"path"
	"strings"
	"syscall"

	"github.com/bermhq/berm/internal/guest"
)

// An entryWriter sends entries as data, each with its length in front.
type entryWriter struct {
	c   *call
	buf *[]byte
	n   int
}

func (w *entryWriter) add(b []byte) error {
	p := append(guest.AppendCredit(nil, len(b)), b...) // a credit is a varint, as a length is
	if w.buf == nil {
		w.buf = chunks.Get().(*[]byte)
	}
	if guest.HeaderSize+w.n+len(p) > len(*w.buf) {
		if err := w.flush(); err != nil {
			return err
		}
	}
	w.n += copy((*w.buf)[guest.HeaderSize+w.n:], p)
	return nil
}

func (w *entryWriter) flush() error {
	n := w.n
	if w.n = 0; n == 0 {
		return nil
	}
	return w.c.put(guest.KindData, *w.buf, n)
}

func (w *entryWriter) close() error {
	err := w.flush()
	if w.buf != nil {
		chunks.Put(w.buf)
	}
	return err
}

// errLimit stops a walk that has found enough.
var errLimit = io.EOF

// A walker finds entries up to a limit.
type walker struct {
	ctx  context.Context
	fs   Files
	left int64
	w    *entryWriter
}

func (w *walker) add(full, p string) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	fi, err := info(full, p)
	if err != nil { // gone meanwhile
		return nil
	}
	if w.left <= 0 {
		return errLimit
	}
	w.left--
	return w.w.add(fi.Append(nil))
}

func (w *walker) finish(err error) error {
	if err == errLimit {
		err = nil
	}
	if cerr := w.w.close(); err == nil {
		err = cerr
	}
	return err
}

func (fs Files) list(ctx context.Context, r guest.FileRequest, out *entryWriter) error {
	full, err := fs.abs(r.Path)
	if err != nil {
		return err
	}
	ents, err := os.ReadDir(full)
	if err != nil {
		return err
	}
	w := &walker{ctx: ctx, fs: fs, left: r.Limit, w: out}
	return w.finish(w.list(full, path.Clean(r.Path), ents, r.Depth))
}

func (w *walker) list(full, p string, ents []os.DirEntry, depth int) error {
	for _, e := range ents {
		f, q := path.Join(full, e.Name()), path.Join(p, e.Name())
		if err := w.add(f, q); err != nil {
			return err
		}
		if e.IsDir() && depth > 1 {
			if sub, err := os.ReadDir(f); err == nil {
				if err := w.list(f, q, sub, depth-1); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// maxDepth ends a walk down a tree that somebody keeps making deeper.
const maxDepth = 128

// glob walks along a pattern. ** is any number of directories; links to
// directories are followed where the pattern names them, never below **.
func (fs Files) glob(ctx context.Context, r guest.FileRequest, out *entryWriter) error {
	if _, err := fs.abs(r.Path); err != nil {
		return err
	}
	parts := strings.Split(strings.Trim(path.Clean(r.Path), "/"), "/")
	for _, p := range parts {
		if _, err := path.Match(p, ""); err != nil {
			return syscall.EINVAL
		}
	}
	w := &walker{ctx: ctx, fs: fs, left: r.Limit, w: out}
	return w.finish(w.glob("/", parts, 0))
}

func (w *walker) glob(dir string, parts []string, depth int) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	full, err := w.fs.abs(dir)
	if err != nil || depth > maxDepth {
		return nil
	}
	head, rest := parts[0], parts[1:]
	if head == "**" {
		for len(rest) > 0 && rest[0] == "**" {
			rest = rest[1:]
		}
		return w.deep(full, dir, rest, depth)
	}
	if !strings.ContainsAny(head, `*?[\`) {
		return w.step(dir, head, rest, depth)
	}
	ents, err := os.ReadDir(full)
	if err != nil {
		return nil
	}
	for _, e := range ents {
		if strings.HasPrefix(e.Name(), ".") && !strings.HasPrefix(head, ".") {
			continue
		}
		if ok, _ := path.Match(head, e.Name()); ok {
			if err := w.step(dir, e.Name(), rest, depth); err != nil {
				return err
			}
		}
	}
	return nil
}

// step goes on with the entry called name: it is a match or a way to one.
func (w *walker) step(dir, name string, rest []string, depth int) error {
	p := path.Join(dir, name)
	if len(rest) > 0 {
		return w.glob(p, rest, depth+1)
	}
	full, err := w.fs.abs(p)
	if err != nil {
		return nil
	}
	return w.add(full, p)
}

// deep tries rest here and in every directory below; without rest everything
// below matches.
func (w *walker) deep(full, dir string, rest []string, depth int) error {
	if depth > maxDepth {
		return nil
	}
	if len(rest) > 0 {
		if err := w.glob(dir, rest, depth); err != nil {
			return err
		}
	}
	ents, err := os.ReadDir(full)
	if err != nil {
		return nil
	}
	for _, e := range ents {
		f, p := path.Join(full, e.Name()), path.Join(dir, e.Name())
		if len(rest) == 0 {
			if err := w.add(f, p); err != nil {
				return err
			}
		}
		if e.IsDir() {
			if err := w.deep(f, p, rest, depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}
