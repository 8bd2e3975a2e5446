package cli

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/client"
)

const importAbout = `
PATH is a directory or an archive, - is an archive on standard input: a root file
system (docker export makes one), what docker save writes, or an OCI layout, packed
or unpacked, compressed with gzip, zstd or not at all. NAME is the file's own name
without its extension if it is left out. Nothing of it is executed, and it is read
by a process without rights.

What an image says of its processes is kept: environment, user, working directory,
entrypoint and command. --user root lets commands be root, inside; without it root
is nobody there, and an image that wants it runs as agent.

  berm template import rootfs.tar.gz mine
  docker save app | berm template import - app
  berm template import ./oci-layout app:1.2 --user root --env TZ=UTC
`

func templateImportVerb() verb {
	var as client.Import
	var asJSON bool
	fs := append(configFlags(&as.Config), flags{
		{name: "platform", value: "OS/ARCH", help: "which image of an archive that has several (default: this host's)", set: text(&as.Platform)},
		{name: "replace", help: "a template of that name may exist", set: toggle(&as.Replace)},
		{name: "json", help: "print the template as one JSON object", set: toggle(&asJSON)},
	}...)
	return verb{
		name: "import", summary: "make a template from an archive or a directory", usage: "[FLAG...] PATH|- [NAME]", flags: func() flags { return fs }, about: importAbout,
		run: func(ctx context.Context, env *Env, args []string) int {
			return shelf("import", fs, 1, 2, false, func(ctx context.Context, a *asker, args []string) error {
				in, size, err := a.archive(args[0])
				if err != nil {
					return err
				}
				defer in.Close()
				if as.Name, err = importName(args); err != nil {
					return err
				}
				t := a.teller()
				defer t.end()
				r := &counting{r: in, tell: func(n int64) {
					p := api.TemplateProgress{Phase: "upload", Done: n, Total: size}
					if size > 0 && n >= size {
						p = api.TemplateProgress{Phase: "pack"}
					}
					t.tell(p)
				}}
				x, err := a.ImportTemplate(ctx, as, r)
				if in.err != nil { // what went wrong here, before what came of it there
					err = in.err
				}
				t.end()
				if err != nil {
					return err
				}
				return a.madeIt(x, asJSON)
			})(ctx, env, args)
		},
	}
}

// configFlags are what commands of a template are by default.
func configFlags(c *api.TemplateConfig) flags {
	return flags{
		{name: "user", value: "NAME", help: "whom commands run as; root grants root inside (default: as the image says, else agent)", set: text(&c.User)},
		{name: "env", value: "K=V", help: "a variable of every command (repeat)", set: func(s string) error {
			if k, _, ok := strings.Cut(s, "="); !ok || k == "" {
				return errors.New("is not K=V")
			}
			c.Env = append(c.Env, s)
			return nil
		}},
		{name: "workdir", value: "DIR", help: "where commands begin", set: func(s string) error {
			if !strings.HasPrefix(s, "/") {
				return errors.New("is not an absolute path")
			}
			c.Workdir = s
			return nil
		}},
	}
}

// importName is the name that is given, or that of the file.
func importName(args []string) (string, error) {
	if len(args) > 1 {
		return args[1], checkTemplateName(args[1])
	}
	if args[0] == "-" {
		return "", &fault{"template import -", "needs a name", "berm template import - NAME"}
	}
	abs, err := filepath.Abs(args[0])
	if err != nil {
		return "", err
	}
	name := filepath.Base(abs)
	for _, ext := range []string{".gz", ".tgz", ".zst", ".xz", ".tar", ".oci"} {
		name = strings.TrimSuffix(name, ext)
	}
	if checkTemplateName(name) != nil {
		return "", &fault{"template import " + shellLine(args), "the file's name is not one for a template", "berm template import " + shellLine(args) + " NAME"}
	}
	return name, nil
}

func checkTemplateName(name string) error {
	if !api.ValidTemplate(name) {
		return &fault{shellLine([]string{name}), "is not a name for a template: it has letters, digits and . _ - / : @, 128 at most, and begins with a letter or a digit", "berm template ls"}
	}
	return nil
}

// An archived is an archive that is read, and what went wrong with it here.
type archived struct {
	io.ReadCloser
	err error
}

func (a *archived) Read(p []byte) (int, error) {
	n, err := a.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		a.err = err
	}
	return n, err
}

// archive opens what is imported, with its size, or 0 where that is not known.
func (a *asker) archive(name string) (*archived, int64, error) {
	if name == "-" {
		if isTerminal(a.Stdin) {
			return nil, 0, &fault{"template import -", "standard input is a terminal", "berm template import - NAME < FILE"}
		}
		return &archived{ReadCloser: io.NopCloser(a.Stdin)}, 0, nil
	}
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, &fault{shellLine([]string{name}), unwrapPath(err).Error(), "berm help template import"}
	}
	fi, err := f.Stat()
	switch {
	case err == nil && fi.Mode().IsRegular():
		return &archived{ReadCloser: f}, fi.Size(), nil
	case err == nil && fi.IsDir():
		f.Close()
		return treeOf(name, nil, true), 0, nil
	}
	f.Close()
	return nil, 0, &fault{shellLine([]string{name}), "is neither a file nor a directory", "berm help template import"}
}

// treeOf is a directory as a tar: everything but what skip says, with owners
// where they are asked for. No link is followed, and what other file systems are
// mounted on is taken empty.
func treeOf(dir string, skip func(name string) bool, owners bool) *archived {
	r, w := io.Pipe()
	go func() {
		t := &treeTar{tw: tar.NewWriter(w), skip: skip, owners: owners, links: map[[2]uint64]string{}}
		err := t.write(dir)
		if err == nil {
			err = t.tw.Close()
		}
		w.CloseWithError(err)
	}()
	return &archived{ReadCloser: r}
}

type treeTar struct {
	tw     *tar.Writer
	root   *os.Root
	skip   func(name string) bool
	owners bool
	links  map[[2]uint64]string // of files with several names
	dev    uint64
}

func (t *treeTar) write(dir string) (err error) {
	if t.root, err = os.OpenRoot(dir); err != nil {
		return &fault{shellLine([]string{dir}), unwrapPath(err).Error(), "berm help template"}
	}
	defer t.root.Close()
	return fs.WalkDir(t.root.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		if err == nil && p != "." && t.skip != nil && t.skip(p) {
			return nil // what is below may be wanted all the same
		}
		if err == nil {
			err = t.entry(p, d)
		}
		if err != nil && err != fs.SkipDir && !errors.Is(err, io.ErrClosedPipe) {
			return &fault{shellLine([]string{filepath.Join(dir, p)}), unwrapPath(err).Error(), "berm help template"}
		}
		return err
	})
}

func (t *treeTar) entry(p string, d fs.DirEntry) error {
	fi, err := d.Info()
	if err != nil {
		return err
	}
	st, _ := fi.Sys().(*syscall.Stat_t)
	h := &tar.Header{Name: p, Mode: int64(fi.Mode().Perm()), ModTime: wholeSecond(fi.ModTime()), Format: tar.FormatPAX}
	for bit, m := range map[fs.FileMode]int64{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if fi.Mode()&bit != 0 {
			h.Mode |= m
		}
	}
	if st != nil && t.owners {
		h.Uid, h.Gid = int(st.Uid), int(st.Gid)
	}
	switch {
	case fi.IsDir():
		h.Typeflag, h.Name = tar.TypeDir, p+"/"
		if p == "." {
			h.Name = "./"
			if st != nil {
				t.dev = uint64(st.Dev)
			}
		}
		if err := t.tw.WriteHeader(h); err != nil {
			return err
		}
		if st != nil && uint64(st.Dev) != t.dev {
			return fs.SkipDir
		}
		return nil
	case fi.Mode()&fs.ModeSymlink != 0:
		h.Typeflag = tar.TypeSymlink
		if h.Linkname, err = t.root.Readlink(p); err != nil {
			return err
		}
		return t.tw.WriteHeader(h)
	case fi.Mode().IsRegular():
		if st != nil && st.Nlink > 1 {
			id := [2]uint64{uint64(st.Dev), st.Ino}
			if first, ok := t.links[id]; ok {
				h.Typeflag, h.Linkname = tar.TypeLink, first
				return t.tw.WriteHeader(h)
			}
			t.links[id] = p
		}
		return t.file(p, h)
	}
	return nil // devices, sockets and pipes: nothing that a template holds
}

func (t *treeTar) file(p string, h *tar.Header) error {
	f, err := t.root.OpenFile(p, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	if !fi.Mode().IsRegular() {
		return errors.New("changed while it was read")
	}
	h.Typeflag, h.Size = tar.TypeReg, fi.Size()
	if err := t.tw.WriteHeader(h); err != nil {
		return err
	}
	n, err := io.CopyN(t.tw, f, h.Size)
	if err == io.EOF {
		return fmt.Errorf("became shorter while it was read, at %d bytes", n)
	}
	return err
}
