package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"syscall"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/guest"
)

// at finds a live sandbox and an absolute path in it.
func (e *Engine) at(ctx context.Context, id, name string) (*box, string, error) {
	b, p, err := e.open(ctx, id, name)
	if err == nil && !path.IsAbs(name) {
		return nil, "", badRequest("path %.60q is not absolute", name)
	}
	return b, p, err
}

// Stat looks at one file; a symlink is not followed.
func (e *Engine) Stat(ctx context.Context, id, name string) (api.FileInfo, error) {
	b, p, err := e.at(ctx, id, name)
	if err != nil {
		return api.FileInfo{}, err
	}
	w := e.patience(ctx, b, e.opt.Listing)
	defer w.stop()
	i, err := b.guest.Stat(w.ctx, p)
	if errors.Is(err, syscall.ENOTDIR) {
		err = syscall.ENOENT
	}
	if err != nil {
		return api.FileInfo{}, w.explain("stat "+p, err)
	}
	return api.FileInfo{Path: p, Kind: i.Kind, Size: i.Size, Mode: i.Mode & 0o777, MTime: i.ModTime.Unix()}, nil
}

// WriteFile makes or replaces a file with what r holds, parents included; it
// appears under its name when it is complete. With mode 0 what is replaced keeps
// its mode and owner. It returns its size.
func (e *Engine) WriteFile(ctx context.Context, id, name string, mode uint32, r io.Reader) (int64, error) {
	b, p, err := e.at(ctx, id, name)
	if err != nil {
		return 0, err
	}
	done, err := b.operate(ctx)
	if err != nil {
		return 0, err
	}
	defer done()
	if mode &= 0o777; mode == 0 {
		mode = 0o644 | guest.KeepMode
		if p == "/run" || strings.HasPrefix(p, "/run/") {
			mode = 0o600 | guest.KeepMode // where credentials go
		}
	}
	w := e.patience(ctx, b, 0)
	defer w.stop()
	t := e.tally(b, CallerOf(ctx).Actor, fileData{Path: p, Op: "write"})
	who := defaultPerson(b.defaults)
	err = b.guest.WriteFile(w.ctx, p, mode, who.uid, who.gid, io.TeeReader(&watched{r: r, w: w}, t))
	if err != nil {
		return 0, w.explain("write "+p, err)
	}
	return t.data.Bytes, t.record(api.EventFileWritten, false)
}

// alter makes one small change to the file tree and records it.
func (e *Engine) alter(ctx context.Context, id, name string, data fileData, do func(context.Context, *box, string) error) error {
	b, p, err := e.at(ctx, id, name)
	if err != nil {
		return err
	}
	if p == "/" {
		return badRequest("%s: / stays as it is", data.Op)
	}
	done, err := b.operate(ctx)
	if err != nil {
		return err
	}
	defer done()
	w := e.patience(ctx, b, e.opt.Listing)
	defer w.stop()
	if err := do(w.ctx, b, p); err != nil {
		return w.explain(data.Op+" "+p, err)
	}
	data.Path = p
	return e.happened(b, b.event(CallerOf(ctx).Actor, api.EventFileWritten, data))
}

// Mkdir makes a directory and its parents.
func (e *Engine) Mkdir(ctx context.Context, id, name string) error {
	return e.alter(ctx, id, name, fileData{Op: "mkdir"}, func(ctx context.Context, b *box, p string) error {
		who := defaultPerson(b.defaults)
		return b.guest.Mkdir(ctx, p, 0o755, who.uid, who.gid)
	})
}

// Move renames.
func (e *Engine) Move(ctx context.Context, id, from, to string) error {
	if !path.IsAbs(to) || len(to) > maxPath || path.Clean(to) == "/" {
		return badRequest("path %.60q is not absolute, or no place to move to", to)
	}
	to = path.Clean(to)
	return e.alter(ctx, id, from, fileData{Op: "move", To: to}, func(ctx context.Context, b *box, p string) error {
		return b.guest.Move(ctx, p, to)
	})
}

// Remove removes a file or a whole directory.
func (e *Engine) Remove(ctx context.Context, id, name string) error {
	return e.alter(ctx, id, name, fileData{Op: "remove"}, func(ctx context.Context, b *box, p string) error {
		return b.guest.Remove(ctx, p, true)
	})
}

// TarOut is paths below dir (all of it without paths) as a tar stream.
func (e *Engine) TarOut(ctx context.Context, id, dir string, paths []string) (io.ReadCloser, error) {
	b, p, err := e.at(ctx, id, dir)
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		paths = []string{"."}
	}
	size := 0
	for _, n := range paths {
		if size += len(n); n == "" || path.IsAbs(n) || !below(n) || size > maxArgBytes {
			return nil, badRequest("path %.60q is not a relative one below the directory, or the list is too long", n)
		}
	}
	return e.download(ctx, b, fileData{Path: p, Op: "tar-out"}, func(ctx context.Context) (io.ReadCloser, error) {
		return b.guest.TarOut(ctx, p, paths)
	})
}

// Changes is what was written below dir since the sandbox began, as a tar stream
// with names below dir, in the form of a layer of an OCI image: .wh.NAME stands
// for what is gone, .wh..wh..opq for all that was in a directory.
func (e *Engine) Changes(ctx context.Context, id, dir string) (io.ReadCloser, error) {
	b, p, err := e.at(ctx, id, dir)
	if err != nil {
		return nil, err
	}
	if !b.spec.Track {
		return nil, notTracked(id)
	}
	return e.download(ctx, b, fileData{Path: p, Op: "changes"}, func(ctx context.Context) (io.ReadCloser, error) {
		return b.guest.Changes(ctx, p)
	})
}

func notTracked(id string) error {
	return &api.Error{Code: api.CodeSandboxNotTracked, Message: "sandbox " + id + " was created without track: what is written in it is not kept apart",
		Hint: api.Hint(api.CodeSandboxNotTracked)}
}

// below says whether a relative path stays below where it begins.
func below(name string) bool {
	c := path.Clean(name)
	return c != ".." && !(len(c) > 2 && c[:3] == "../")
}

// Watch tells f what changes below a directory until ctx is over. The first
// event is WatchReady.
func (e *Engine) Watch(ctx context.Context, id, dir string, recursive bool, f func(api.FileEvent) error) error {
	b, p, err := e.at(ctx, id, dir)
	if err != nil {
		return err
	}
	give, err := b.slots.take("watches", maxWatches)
	if err != nil {
		return err
	}
	defer give()
	defer b.busy()()
	w := e.patience(ctx, b, e.opt.Listing)
	wt, err := b.guest.Watch(w.ctx, p, recursive)
	w.stop()
	if err != nil {
		return w.explain("watch "+p, err)
	}
	defer wt.Close()
	if err := f(api.FileEvent{Path: p, Op: WatchReady}); err != nil {
		return err
	}
	for {
		ev, err := wt.Next(ctx)
		switch {
		case err == io.EOF:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return w.explain("watch "+p, err)
		}
		if len(ev.Path) > maxPath {
			continue
		}
		if err := f(api.FileEvent{Path: ev.Path, Op: ev.Op}); err != nil {
			return err
		}
	}
}

// portClosed says that nobody listens there.
func portClosed(port int, why string) error {
	return &api.Error{Code: api.CodePortClosed, Message: fmt.Sprintf("port %d: nobody listens there inside: %s", port, clip(why, 200)), Hint: "start the server in the sandbox, on 127.0.0.1"}
}
