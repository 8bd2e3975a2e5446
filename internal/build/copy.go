package build

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/build/dockerfile"
	"github.com/bermhq/berm/internal/image"
)

type copyFlags struct {
	chown string
	chmod *int64 // nil: as they are
	add   bool   // archives are unpacked
	mount bool   // it is for a --mount
}

// copy is a COPY or an ADD: it is checked now and done with those beside it.
func (w *work) copy(ctx context.Context, f *dockerfile.File, n int, st *stage, ins dockerfile.Instruction) error {
	words := make([]string, len(ins.Words))
	for i, word := range ins.Words {
		v, err := dockerfile.Expand(word, f.Escape, st.get)
		if err != nil {
			return err
		}
		words[i] = v
	}
	if len(words) < 2 || slices.Contains(words, "") {
		return refuse("expected: %s SOURCE... DESTINATION", ins.Name)
	}
	flags := copyFlags{add: ins.Name == "ADD"}
	from := ""
	for _, fl := range ins.Flags {
		v, err := dockerfile.Expand(fl.Value, f.Escape, st.get)
		if err != nil {
			return err
		}
		switch {
		case fl.Name == "from" && !flags.add:
			from = v
		case fl.Name == "chown":
			flags.chown = v
		case fl.Name == "chmod":
			mode, err := strconv.ParseInt(v, 8, 64)
			if err != nil || mode < 0 || mode > 0o7777 {
				return refuse("--chmod=%.40s: an octal mode is expected, such as 755", v)
			}
			flags.chmod = &mode
		case fl.Name == "link": // every COPY is a layer of its own
		default:
			return refuse("--%s is not supported", fl.Name)
		}
	}
	a, err := w.copying(ctx, f, n, st, ins, from, words[:len(words)-1], words[len(words)-1], flags)
	if err != nil {
		return err
	}
	st.pending = append(st.pending, a)
	return nil
}

// copying is the action of one COPY.
func (w *work) copying(ctx context.Context, f *dockerfile.File, n int, st *stage, ins dockerfile.Instruction, from string, sources []string, dest string, flags copyFlags) (action, error) {
	target := copyTarget{dir: st.abs(dest), into: strings.HasSuffix(dest, "/") || path.Base(dest) == "." || path.Base(dest) == ".." || len(sources) > 1}
	a := action{label: ins.String()}
	if from != "" {
		return w.copyFrom(ctx, f, n, ins, from, sources, target, flags)
	}
	var list []copied
	var archives []file
	var docs int
	for _, src := range sources {
		if flags.add && remote(src) {
			return a, refuse("%.80q: nothing is fetched by ADD: RUN curl or git in a step, and --allow its host; or fetch it before, and COPY it", src)
		}
		if name, ok := strings.CutPrefix(src, "<<"); ok { // a here-document
			name = strings.Trim(strings.TrimPrefix(name, "-"), `'"`)
			i := slices.IndexFunc(ins.Docs, func(d dockerfile.Doc) bool { return d.Name == name })
			if i < 0 {
				return a, refuse("%.60q has no text", src)
			}
			text := ins.Docs[i].Text
			if ins.Docs[i].Expand {
				var err error
				if text, err = dockerfile.ExpandText(text, f.Escape, st.get); err != nil {
					return a, err
				}
			}
			list = append(list, copied{name: name, file: file{kind: tar.TypeReg, mode: 0o644}, data: []byte(text)})
			docs++
			continue
		}
		found, err := w.j.files.find(src)
		if err != nil {
			return a, err
		}
		if len(found) > 1 {
			target.into = true
		}
		for _, e := range found {
			if e.kind == tar.TypeDir {
				target.into = true
				for _, b := range w.j.files.below(e.name) {
					list = append(list, copied{name: strings.TrimPrefix(b.name, strings.TrimPrefix(e.name+"/", "./")), file: b})
				}
				continue
			}
			if flags.add && w.j.files.archive(e) {
				archives = append(archives, e)
				continue
			}
			list = append(list, copied{name: path.Base(e.name), file: e})
		}
	}
	var sums []string
	for _, e := range archives {
		sums = append(sums, e.sum)
	}
	a.key = []any{"copy", target.dir, target.into, flags.chown, flags.chmod, digest(list), sums}
	a.do = func(ctx context.Context, s *step) error {
		return at(ins, w.place(ctx, s, target, list, archives, flags))
	}
	return a, nil
}

func remote(src string) bool {
	for _, p := range []string{"http://", "https://", "git://", "ssh://", "git@", "ftp://"} {
		if strings.HasPrefix(src, p) {
			return true
		}
	}
	return false
}

// A copyTarget is where a COPY puts things.
type copyTarget struct {
	dir  string
	into bool // it is a directory, there or not
}

// split settles whether one file becomes dir or goes into it, which can depend
// on what is there.
func (t copyTarget) split(ctx context.Context, s *step) (dir, name string, err error) {
	if t.into {
		return t.dir, "", nil
	}
	i, err := s.w.b.opt.Engine.Stat(ctx, s.id, t.dir)
	var ae *api.Error
	switch {
	case errors.As(err, &ae) && ae.Code == api.CodeFileNotFound:
	case err != nil:
		return "", "", err
	case i.Kind == "dir":
		return t.dir, "", nil
	case i.Kind == "symlink": // to a directory, or to a file that is replaced
		if l, err := s.w.b.opt.Engine.Glob(ctx, s.id, escapeGlob(t.dir)+"/*"); err == nil && len(l.Files) > 0 {
			return t.dir, "", nil
		}
	}
	return path.Dir(t.dir), path.Base(t.dir), nil
}

func escapeGlob(s string) string {
	return strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`, `\`, `\\`).Replace(s)
}

// place puts files of the context into the root of a step.
func (w *work) place(ctx context.Context, s *step, t copyTarget, list []copied, archives []file, flags copyFlags) error {
	owner, err := s.look(ctx, flags.chown)
	if err != nil {
		return err
	}
	dir, name, err := t.split(ctx, s)
	if err != nil {
		return err
	}
	if name != "" && len(list) == 1 {
		list = slices.Clone(list)
		list[0].name = name
	}
	mode := func(e file) int64 {
		if flags.chmod != nil && e.kind != tar.TypeSymlink {
			return *flags.chmod
		}
		return e.mode
	}
	own := &[2]uint32{owner.uid, owner.gid}
	if len(list) > 0 || len(archives) == 0 {
		err := pipe(func(to io.Writer) error { return w.j.files.pack(list, mode, to) }, func(in io.Reader) error {
			return w.b.opt.Engine.Unpack(ctx, s.id, dir, own, in)
		})
		if err != nil {
			return err
		}
	}
	if flags.chown == "" {
		own = nil // an archive says itself
	}
	for _, e := range archives {
		in, err := plainTar(w.j.files.open(e))
		if err != nil {
			return fmt.Errorf("%.80q: %w", e.name, err)
		}
		if err := w.b.opt.Engine.Unpack(ctx, s.id, t.dir, own, in); err != nil {
			return fmt.Errorf("%.80q: %w", e.name, err)
		}
	}
	return nil
}

// pipe connects what writes with what reads; the first error counts.
func pipe(from func(io.Writer) error, to func(io.Reader) error) error {
	pr, pw := io.Pipe()
	wrote := make(chan error, 1)
	go func() {
		err := from(pw)
		pw.CloseWithError(err)
		wrote <- err
	}()
	err := to(pr)
	pr.CloseWithError(errGone)
	if werr := <-wrote; werr != nil && !errors.Is(werr, errGone) {
		return werr
	}
	return err
}

var errGone = errors.New("nobody reads it")

// archive says whether ADD unpacks a file: by what it holds, as Docker does.
func (c *files) archive(e file) bool {
	if e.kind != tar.TypeReg {
		return false
	}
	head := make([]byte, 512)
	n, _ := io.ReadFull(c.open(e), head)
	head = head[:n]
	if bytes.HasPrefix(head, []byte{0xfd, '7', 'z', 'X', 'Z', 0}) || bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}) {
		return true // and refused when it is unpacked
	}
	in, err := plainTar(c.open(e))
	if err != nil {
		return false
	}
	n, _ = io.ReadFull(in, head[:cap(head)])
	return n == 512 && bytes.HasPrefix(head[:512][257:], []byte("ustar"))
}

// plainTar undoes a compression.
func plainTar(r io.Reader) (io.Reader, error) {
	in := bufio.NewReader(r)
	head, _ := in.Peek(6)
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		return gzip.NewReader(in)
	case bytes.HasPrefix(head, []byte("BZh")):
		return bzip2.NewReader(in), nil
	case bytes.HasPrefix(head, []byte{0xfd, '7', 'z', 'X', 'Z', 0}), bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		return nil, errors.New("archives in xz and zstd are not unpacked by ADD: COPY it, and RUN tar")
	}
	return in, nil
}

// copyFrom is a COPY from another stage, a template or an image: its own
// sandbox packs what is asked for, and the step's unpacks it.
func (w *work) copyFrom(ctx context.Context, f *dockerfile.File, n int, ins dockerfile.Instruction, from string, sources []string, t copyTarget, flags copyFlags) (action, error) {
	a := action{label: ins.String()}
	var root func(ctx context.Context) (image.Root, error)
	if m, ok := f.Stage(from, n); ok {
		if w.stages[m] == nil {
			return a, refuse("stage %q is named by a variable, which is not supported: write its name", from)
		}
		r := w.stages[m].root
		root = func(context.Context) (image.Root, error) { return r, nil }
		a.key = []any{"copy from", r.Layers, sources, t.dir, t.into, flags.chown, flags.chmod}
	} else {
		r, err := w.base(ctx, from, w.j.req.Platform)
		if err != nil {
			return a, err
		}
		root = func(context.Context) (image.Root, error) { return r, nil }
		a.key = []any{"copy from", r.Layers, sources, t.dir, t.into, flags.chown, flags.chmod}
	}
	a.do = func(ctx context.Context, s *step) error {
		r, err := root(ctx)
		if err != nil {
			return at(ins, err)
		}
		src := &step{w: w}
		if err := src.open(ctx, begin(r), false, rootAccount); err != nil {
			return at(ins, err)
		}
		err = w.carry(ctx, src, s, sources, t, flags)
		if cerr := src.close(ctx); err == nil {
			err = cerr
		}
		return at(ins, err)
	}
	return a, nil
}

// carry copies from one sandbox into another.
func (w *work) carry(ctx context.Context, src, dst *step, sources []string, t copyTarget, flags copyFlags) error {
	e := w.b.opt.Engine
	var own *[2]uint32
	if flags.chown != "" {
		who, err := dst.look(ctx, flags.chown)
		if err != nil {
			return err
		}
		own = &[2]uint32{who.uid, who.gid}
	}
	var found []api.FileInfo
	for _, name := range sources {
		name = path.Clean("/" + name)
		if dockerfile.IsGlob(name) {
			l, err := e.Glob(ctx, src.id, name)
			if err != nil {
				return err
			}
			if len(l.Files) == 0 || l.More {
				return refuse("%.80q fits nothing there, or too much", name)
			}
			for _, i := range l.Files {
				i.Path = path.Clean("/" + i.Path)
				found = append(found, i)
			}
			t.into = t.into || len(l.Files) > 1
			continue
		}
		i, err := e.Stat(ctx, src.id, name)
		if err != nil {
			return err
		}
		i.Path = name
		found = append(found, i)
	}
	for _, i := range found {
		dir, base, as := path.Dir(i.Path), path.Base(i.Path), ""
		target, name := t.dir, ""
		if i.Kind == "dir" {
			dir, base = i.Path, "."
		} else {
			var err error
			if target, name, err = t.split(ctx, dst); err != nil {
				return err
			}
			as = name
			if as == "" {
				as = base
			}
		}
		err := pipe(func(to io.Writer) error {
			in, err := e.TarOut(ctx, src.id, dir, []string{base})
			if err != nil {
				return err
			}
			defer in.Close()
			return rename(in, as, flags.chmod, to)
		}, func(in io.Reader) error { return e.Unpack(ctx, dst.id, target, own, in) })
		if err != nil {
			return err
		}
	}
	return nil
}

// rename passes an archive on; its one entry gets another name, "" keeps all.
func rename(r io.Reader, as string, chmod *int64, w io.Writer) error {
	tr, tw := tar.NewReader(r), tar.NewWriter(w)
	for size := int64(0); ; {
		h, err := tr.Next()
		if err == io.EOF {
			return tw.Close()
		}
		if err != nil {
			return err
		}
		if size += max(h.Size, 0); size > maxLayer {
			return &api.Error{Code: api.CodeTemplateTooLarge, Message: fmt.Sprintf("more than %d bytes to copy", int64(maxLayer)), Hint: api.Hint(api.CodeTemplateTooLarge)}
		}
		if as != "" {
			h.Name = as
		}
		if chmod != nil && h.Typeflag != tar.TypeSymlink {
			h.Mode = *chmod
		}
		h.Format = tar.FormatPAX
		if err := tw.WriteHeader(h); err != nil {
			return err
		}
		if _, err := io.Copy(tw, tr); err != nil {
			return err
		}
	}
}
