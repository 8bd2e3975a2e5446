package build

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/build/dockerfile"
)

// files are a build context: the list in memory, what is in the files one after
// the other in an open file without a name. Nothing of it is ever unpacked on
// this host.
type files struct {
	f    *os.File
	list []file // sorted by name, parents first
	at   map[string]int
}

type file struct {
	name string // below the context, clean
	kind byte   // tar.TypeReg, TypeDir, TypeSymlink
	mode int64  // permission bits
	link string
	off  int64 // in the spool
	size int64
	sum  string
	time time.Time
}

func badContext(format string, args ...any) error {
	return &api.Error{Code: api.CodeBadRequest, Message: "context: " + fmt.Sprintf(format, args...), Hint: "send a tar of the build context: regular files, directories, links"}
}

// readFiles takes a tar to its end.
func readFiles(r io.Reader, f *os.File) (*files, error) {
	c := &files{f: f, at: map[string]int{}}
	tr := tar.NewReader(r)
	var room, off int64 = maxContext, 0
	all := map[string]file{}
	for {
		h, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, badContext("not a tar that can be read: %v", err)
		}
		if h.Typeflag == tar.TypeXGlobalHeader {
			continue
		}
		name := path.Clean(strings.TrimPrefix(h.Name, "/"))
		if name == "." {
			continue
		}
		if name == ".." || strings.HasPrefix(name, "../") || strings.ContainsRune(name, 0) || len(name) > 4096 {
			return nil, badContext("the name %.80q leads out of it, or is too long", h.Name)
		}
		if len(all) >= maxEntries {
			return nil, badContext("more than %d files", maxEntries)
		}
		e := file{name: name, mode: h.Mode & 0o7777, time: h.ModTime}
		switch h.Typeflag {
		case tar.TypeReg:
			e.kind = tar.TypeReg
			if room -= h.Size; room < 0 {
				return nil, &api.Error{Code: api.CodeTooLarge, Message: fmt.Sprintf("context: more than %d bytes", int64(maxContext)), Hint: "name what is not needed in .dockerignore"}
			}
			sum := sha256.New()
			n, err := io.Copy(io.MultiWriter(f, sum), tr)
			if err != nil {
				return nil, badContext("%v", err)
			}
			e.off, e.size, e.sum = off, n, hex.EncodeToString(sum.Sum(nil))
			off += n
		case tar.TypeDir:
			e.kind = tar.TypeDir
		case tar.TypeSymlink:
			e.kind, e.link = tar.TypeSymlink, h.Linkname
		case tar.TypeLink: // it is a file of its own from here on
			to, ok := all[path.Clean(strings.TrimPrefix(h.Linkname, "/"))]
			if !ok || to.kind != tar.TypeReg {
				return nil, badContext("%.80q is a hard link to nothing that came before it", h.Name)
			}
			e = to
			e.name = name
		default:
			continue // sockets, pipes and devices are no part of a context
		}
		all[name] = e
	}
	for name := range all { // a tar may leave parents out
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if have, ok := all[dir]; !ok {
				all[dir] = file{name: dir, kind: tar.TypeDir, mode: 0o755}
			} else if have.kind != tar.TypeDir {
				return nil, badContext("%.80q is below a file or a link", name)
			}
		}
	}
	for _, e := range all {
		c.list = append(c.list, e)
	}
	c.sort()
	return c, c.ignore()
}

func (c *files) sort() {
	slices.SortFunc(c.list, func(a, b file) int { return strings.Compare(a.name, b.name) })
	clear(c.at)
	for i, e := range c.list {
		c.at[e.name] = i
	}
}

// ignore leaves out what a .dockerignore names.
func (c *files) ignore() error {
	i, ok := c.at[".dockerignore"]
	if !ok || c.list[i].kind != tar.TypeReg {
		return nil
	}
	g, err := dockerfile.ReadIgnore(c.open(c.list[i]))
	if err != nil {
		return badContext(".dockerignore:%v", err)
	}
	keep := map[string]bool{}
	for _, e := range c.list {
		if !g.Match(e.name) {
			for d := e.name; d != "." && !keep[d]; d = path.Dir(d) { // parents of what is kept
				keep[d] = true
			}
		}
	}
	c.list = slices.DeleteFunc(c.list, func(e file) bool { return !keep[e.name] })
	c.sort()
	return nil
}

// open is what a regular file holds.
func (c *files) open(e file) io.Reader { return io.NewSectionReader(c.f, e.off, e.size) }

// find lists what a source of COPY names: itself, or what fits a pattern.
func (c *files) find(source string) ([]file, error) {
	if c == nil {
		return nil, errors.New("there is no context: with a Dockerfile from standard input, name its folder after the template (berm template build NAME -f - DIR)")
	}
	name := path.Clean("/" + source)[1:]
	if name == "" {
		return []file{{name: ".", kind: tar.TypeDir, mode: 0o755}}, nil
	}
	if !dockerfile.IsGlob(name) {
		i, ok := c.at[name]
		if !ok {
			return nil, fmt.Errorf("%.80q is not in the context", source)
		}
		e, err := c.follow(c.list[i])
		return []file{e}, err
	}
	var out []file
	for _, e := range c.list {
		if dockerfile.Glob(name, e.name) {
			e, err := c.follow(e)
			if err != nil {
				return nil, err
			}
			out = append(out, e)
		}
	}
	if out == nil {
		return nil, fmt.Errorf("nothing in the context fits %.80q", source)
	}
	return out, nil
}

// follow is what a link that is named itself leads to, within the context.
func (c *files) follow(e file) (file, error) {
	name := e.name
	for range 16 {
		if e.kind != tar.TypeSymlink {
			if e.kind == tar.TypeReg {
				e.name = name // a copy has the name that was asked for
			}
			return e, nil
		}
		to := path.Join(path.Dir(e.name), e.link)
		if path.IsAbs(e.link) {
			to = path.Clean(e.link)[1:]
		}
		i, ok := c.at[to]
		if !ok {
			return e, fmt.Errorf("%.80q is a link to nothing in the context", name)
		}
		e = c.list[i]
	}
	return e, fmt.Errorf("%.80q is a link that leads nowhere", name)
}

// below lists what is in a directory, at any depth, without itself.
func (c *files) below(dir string) []file {
	if dir == "." {
		return c.list
	}
	var out []file
	for _, e := range c.list {
		if strings.HasPrefix(e.name, dir+"/") {
			out = append(out, e)
		}
	}
	return out
}

// A copied is one entry of what a COPY puts into a root.
type copied struct {
	name string // below the destination
	file
	data []byte // instead of a file's content: a here-document
}

// digest is what a step's key says of files: names, modes and contents, no times.
func digest(list []copied) string {
	h := sha256.New()
	for _, e := range list {
		sum := e.sum
		if e.data != nil {
			s := sha256.Sum256(e.data)
			sum = hex.EncodeToString(s[:])
		}
		fmt.Fprintf(h, "%q %c %o %q %s\n", e.name, e.kind, e.mode, e.link, sum)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// pack writes them as a tar.
func (c *files) pack(list []copied, mode func(file) int64, w io.Writer) error {
	tw := tar.NewWriter(w)
	for _, e := range list {
		h := &tar.Header{Typeflag: e.kind, Name: e.name, Mode: mode(e.file), Linkname: e.link, ModTime: e.time, Format: tar.FormatPAX}
		var in io.Reader
		switch {
		case e.data != nil:
			h.Size, in = int64(len(e.data)), bytes.NewReader(e.data)
		case e.kind == tar.TypeReg:
			h.Size, in = e.size, c.open(e.file)
		}
		if err := tw.WriteHeader(h); err != nil {
			return err
		}
		if in == nil {
			continue
		}
		if _, err := io.Copy(tw, in); err != nil {
			return err
		}
	}
	return tw.Close()
}
