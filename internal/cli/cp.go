package cli

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/client"
)

var (
	errDots = errors.New("has a .. in it")
	errZero = errors.New("holds a zero byte")
)

const defaultCopyLimit = 4 << 30

const cpAbout = `
One side is SANDBOX:PATH, a relative PATH below /workspace; a file of this host
with a colon in its name is written ./A:B. - is standard input or output. Folders
are copied with all that is in them: into the target if that is there already,
else as it; DIR/. is what is in DIR.

What comes out may be named by a glob, and is not trusted: only regular files,
only below the folder you name, never through a link, at most --limit bytes and
10000 files; names that start with a dot only where you write the dot, .git
never. What did not come is said, and the exit code is 1.

  berm cp data.csv src $SB:          into /workspace
  berm cp $SB:out/ results           all of out, as ./results
  berm cp "$SB:*.png" pics/
  tar c . | berm cp - $SB:/tmp/all.tar
  berm cp $SB:log.txt - | grep ERROR
`

func cpVerb() verb {
	limit := int64(defaultCopyLimit)
	fs := flags{{name: "limit", value: "SIZE", help: "bytes that may come out in all (default: 4g)", set: size(&limit, false)}}
	return verb{
		name: "cp", summary: "copy files into a sandbox or out of it", usage: "[--limit SIZE] SOURCE... TARGET", flags: func() flags { return fs }, about: cpAbout,
		run: ask("cp", fs, 2, -1, func(ctx context.Context, a *asker, args []string) error {
			var from []place
			for _, arg := range args[:len(args)-1] {
				p, err := parsePlace(arg)
				if err != nil {
					return err
				}
				from = append(from, p)
			}
			to, err := parsePlace(args[len(args)-1])
			if err != nil {
				return err
			}
			for _, p := range from {
				if (p.sandbox == "") == (to.sandbox == "") || p.sandbox != from[0].sandbox {
					why := "one side is a sandbox, the other this host"
					if p.sandbox != "" && to.sandbox != "" {
						return &fault{"cp", why, "berm cp " + shellLine(args[:1]) + " - | berm cp - " + shellLine(args[1:2])}
					}
					return &fault{"cp", why, "berm cp FILE SANDBOX:PATH"}
				}
			}
			ctx, in := a.interruptible(ctx, func() {}, goneAfter)
			defer in.stop()
			if to.sandbox != "" {
				err = a.copyIn(ctx, from, to)
			} else {
				err = a.copyOut(ctx, from, to, limit)
			}
			if err != nil && context.Cause(ctx) == errInterrupted {
				return &fault{"cp", "interrupted; a file that did not arrive whole has no name", ""}
			}
			return err
		}),
	}
}

// copyIn copies things of this host into a sandbox.
func (a *asker) copyIn(ctx context.Context, from []place, to place) error {
	id, err := a.sandbox(ctx, to.sandbox)
	if err != nil {
		return err
	}
	if !to.dir {
		e, err := a.Stat(ctx, id, to.path)
		var ae *api.Error
		switch {
		case err == nil:
			to.dir = e.IsDir
		case !errors.As(err, &ae) || ae.Code != api.CodeFileNotFound:
			return err
		}
	}
	if len(from) > 1 && !to.dir {
		return &fault{to.sandbox + ":" + to.path, "is not a folder, and more than one thing would go there", "berm fs mkdir " + to.sandbox + ":" + shellLine([]string{to.path})}
	}
	for _, f := range from {
		dest := to.path
		if f.path == "-" {
			if to.dir {
				return &fault{"-", "has no name, and the target is a folder", "berm cp - " + to.sandbox + ":" + path.Join(to.path, "NAME")}
			}
			if err := a.put(ctx, id, dest, 0, a.Stdin); err != nil {
				return err
			}
			continue
		}
		fi, err := os.Stat(f.path)
		if err != nil {
			return &fault{f.path, unwrapPath(err).Error(), ""}
		}
		abs, err := filepath.Abs(f.path)
		if err != nil {
			return err
		}
		content := fi.IsDir() && (f.path == "." || strings.HasSuffix(f.path, "/.")) // what is in it
		if to.dir && !content {
			dest = path.Join(dest, filepath.Base(abs))
		}
		switch {
		case fi.IsDir():
			err = a.sendTar(ctx, id, copyIn{local: f.path, dest: dest})
		case fi.Mode().IsRegular():
			err = a.sendFile(ctx, id, f.path, dest)
		default:
			err = &fault{f.path, "is neither a file nor a folder", "berm cp - " + to.sandbox + ":NAME < " + shellLine([]string{f.path})}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (a *asker) sendFile(ctx context.Context, id, local, dest string) error {
	f, err := os.OpenFile(local, os.O_RDONLY|syscall.O_NONBLOCK, 0) // it may be a pipe by now
	if err != nil {
		return &fault{local, unwrapPath(err).Error(), ""}
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil || !fi.Mode().IsRegular() {
		return &fault{local, "changed while it was copied", ""}
	}
	return a.put(ctx, id, dest, uint32(fi.Mode().Perm()), f)
}

// put writes one file inside, and believes only a count that is right.
func (a *asker) put(ctx context.Context, id, dest string, mode uint32, r io.Reader) error {
	c := &counter{r: struct{ io.Reader }{r}}
	n, err := a.WriteFile(ctx, id, dest, mode, c)
	sent := c.n.Load()
	if err == nil && n != sent {
		err = &fault{dest, fmt.Sprintf("%d bytes were sent, and %d arrived", sent, n), ""}
	}
	return a.noRoom(ctx, id, sent, err)
}

// noRoom says so if it is not the sandbox that is full: what is in it and what
// was sent are less than its cap, so the disk below it is.
func (a *asker) noRoom(ctx context.Context, id string, sent int64, err error) error {
	var ae *api.Error
	if !errors.As(err, &ae) || ae.Code != api.CodeFileTooLarge {
		return err
	}
	sb, serr := a.Get(ctx, id)
	m, merr := a.Metrics(ctx, id)
	if serr != nil || merr != nil || m.DiskBytes+sent >= sb.Limits.WithDefaults().DiskBytes/10*9 {
		return err
	}
	e := *ae
	e.Message += "; the sandbox is below its cap, so the disk of the host is full"
	e.Hint = "df -h, on the daemon's host: make room where its state directory and its temporary files are"
	return &e
}

// A counter counts what is read.
type counter struct {
	r io.Reader
	n atomic.Int64 // whoever sends may still read when there is an answer
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// sendTar copies one folder in.
func (a *asker) sendTar(ctx context.Context, id string, c copyIn) error {
	root := "/"
	if c.dest == api.Workspace || strings.HasPrefix(c.dest, api.Workspace+"/") {
		root = api.Workspace
	}
	w := &tarWriter{root: root, seen: map[string]string{}, warn: func(s string) { a.note("%s", s) }}
	err := streamTar(ctx, a.Client, id, root, []copyIn{c}, w)
	return a.noRoom(ctx, id, w.copied, err)
}

// streamTar sends things as one tar stream, written by w.
func streamTar(ctx context.Context, c *client.Client, id, root string, items []copyIn, w *tarWriter) error {
	pr, pw := io.Pipe()
	defer pr.Close()
	local := make(chan error, 1)
	w.tw = tar.NewWriter(pw)
	go func() {
		var err error
		for _, c := range items {
			if err = w.add(c); err != nil {
				break
			}
		}
		if err == nil {
			err = w.tw.Close()
		}
		pw.CloseWithError(err)
		local <- err
	}()
	err := c.TarIn(ctx, id, root, pr)
	pr.Close() // lets the other side end if nobody read to the end
	if lerr := <-local; lerr != nil && !errors.Is(lerr, io.ErrClosedPipe) {
		return &fault{"copy in", lerr.Error(), ""}
	}
	return copyInRefused(items, err)
}

// copyOut brings files out of a sandbox.
func (a *asker) copyOut(ctx context.Context, from []place, to place, limit int64) error {
	id, err := a.sandbox(ctx, from[0].sandbox)
	if err != nil {
		return err
	}
	if to.path == "-" {
		for _, f := range from {
			if err := a.cat(ctx, id, f.path); err != nil {
				return err
			}
		}
		return nil
	}
	local := to.path
	if len(from) > 1 && !strings.HasSuffix(local, "/") {
		if fi, err := os.Stat(local); err != nil || !fi.IsDir() {
			return &fault{local, "is not a folder, and more than one thing would go there", "mkdir " + shellLine([]string{local})}
		}
		local += "/"
	}
	var outs []client.Out
	for _, f := range from {
		o := client.Out{Pattern: f.path, Local: local}
		if fi, err := os.Stat(local); err == nil && fi.IsDir() && !f.dir && !strings.ContainsAny(f.path, `*?[\`) {
			// A folder goes into one that is there; a file does by itself.
			if e, err := a.Stat(ctx, id, f.path); err == nil && e.IsDir {
				o.Local = filepath.Join(local, safeBase(f.path))
			}
		}
		var r *client.Refusal
		if err := o.Check(); errors.As(err, &r) {
			return &fault{shellLine([]string{f.path}), r.Reason, ""}
		} else if err != nil {
			return err
		}
		outs = append(outs, o)
	}
	haul, err := client.Extract(ctx, a.Client, id, outs, limit)
	for _, d := range haul.Denied {
		fix := d.Fix
		switch {
		case d.Rule == "out.limit":
			fix = "berm cp --limit SIZE"
		case strings.Contains(fix, "--"):
			fix = ""
		}
		a.explain(&fault{d.Target, d.Reason, fix})
	}
	if err == nil && len(haul.Denied) > 0 {
		return exitCode(1)
	}
	return err
}

// safeBase is the last name of a path inside, if it may be a name here.
func safeBase(p string) string {
	if b := path.Base(p); client.SafePath(b) == nil {
		return b
	}
	return "."
}

// cat writes a file of a sandbox to standard output.
func (a *asker) cat(ctx context.Context, id, name string) error {
	r, err := a.OpenFile(ctx, id, name)
	if err != nil {
		return err
	}
	defer r.Close()
	o := &outputs{}
	_, err = io.Copy(o.show(a.Stdout), r)
	o.close()
	if err != nil {
		return &fault{name, outputTrouble(err), ""}
	}
	return nil
}
