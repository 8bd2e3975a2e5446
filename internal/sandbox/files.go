package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/guest"
)

// MaxFiles is how many entries one list holds.
const MaxFiles = 10000

// TarIn unpacks a tar stream below dir, for the user that commands run as. The guest unpacks
// it; nothing is unpacked on the host.
func (e *Engine) TarIn(ctx context.Context, id, dir string, r io.Reader) error {
	b, err := e.find(ctx, id)
	if err != nil {
		return err
	}
	who := defaultPerson(b.defaults)
	return e.tarIn(ctx, id, dir, &[2]uint32{who.uid, who.gid}, r)
}

func (e *Engine) tarIn(ctx context.Context, id, dir string, owner *[2]uint32, r io.Reader) error {
	b, p, err := e.open(ctx, id, dir)
	if err != nil {
		return err
	}
	done, err := b.operate(ctx)
	if err != nil {
		return err
	}
	defer done()
	w := e.patience(ctx, b, 0)
	defer w.stop()
	// More than the writable layer can hold is refused here, not by filling it.
	limit := b.spec.Limits.DiskBytes + b.spec.Limits.DiskBytes/4 + 64<<20
	lr := &io.LimitedReader{R: &watched{r: r, w: w}, N: limit}
	t := e.tally(b, CallerOf(ctx).Actor, fileData{Path: p, Op: "tar-in"})
	if in := io.TeeReader(lr, t); owner != nil {
		err = b.guest.TarIn(w.ctx, p, owner[0], owner[1], in)
	} else {
		err = b.guest.TarKeep(w.ctx, p, in)
	}
	if lr.N <= 0 {
		err = &api.Error{Code: api.CodeFileTooLarge, Message: fmt.Sprintf("copy in: more than the disk cap of %d bytes", b.spec.Limits.DiskBytes), Hint: "give the sandbox more room with --disk"}
	}
	return errors.Join(w.explain("copy in to "+p, err), t.record(api.EventFileWritten, err != nil))
}

// Glob lists what matches pattern, a relative one below /workspace: *, ? and
// [...] within one name, ** over any number of levels.
func (e *Engine) Glob(ctx context.Context, id, pattern string) (api.FileList, error) {
	b, p, err := e.open(ctx, id, pattern)
	if err != nil {
		return api.FileList{}, err
	}
	w := e.patience(ctx, b, e.opt.Listing)
	defer w.stop()
	infos, err := b.guest.Glob(w.ctx, p, MaxFiles+1)
	if err != nil {
		return api.FileList{}, w.explain("list "+p, err)
	}
	return files(infos), nil
}

// List lists a directory and what is below it.
func (e *Engine) List(ctx context.Context, id, dir string) (api.FileList, error) {
	b, p, err := e.open(ctx, id, dir)
	if err != nil {
		return api.FileList{}, err
	}
	w := e.patience(ctx, b, e.opt.Listing)
	defer w.stop()
	infos, err := b.guest.List(w.ctx, p, 64, MaxFiles+1)
	if err != nil {
		return api.FileList{}, w.explain("list "+p, err)
	}
	return files(infos), nil
}

func files(infos []guest.FileInfo) api.FileList {
	l := api.FileList{Files: []api.FileInfo{}}
	for _, i := range infos {
		if len(l.Files) == MaxFiles {
			l.More = true
			break
		}
		if len(i.Path) > maxPath {
			continue
		}
		l.Files = append(l.Files, api.FileInfo{Path: i.Path, Kind: i.Kind, Size: i.Size, Mode: i.Mode & 0o777, MTime: i.ModTime.Unix()})
	}
	return l
}

// ReadFile opens one regular file. The reader fails, rather than ends, when the
// guest breaks off in the middle; the caller closes it.
func (e *Engine) ReadFile(ctx context.Context, id, name string, maxBytes int64) (io.ReadCloser, error) {
	b, p, err := e.open(ctx, id, name)
	if err != nil {
		return nil, err
	}
	return e.download(ctx, b, fileData{Path: p, Op: "read"}, func(ctx context.Context) (io.ReadCloser, error) {
		return b.guest.ReadFile(ctx, p, max(maxBytes, 1)) // 0 would mean no bound there
	})
}

// open finds a live sandbox and makes name absolute in it.
func (e *Engine) open(ctx context.Context, id, name string) (*box, string, error) {
	b, err := e.find(ctx, id)
	if err != nil {
		return nil, "", err
	}
	if err := b.usable(); err != nil {
		return nil, "", err
	}
	if name == "" || len(name) > maxPath || strings.ContainsRune(name, 0) {
		return nil, "", &api.Error{Code: api.CodeBadRequest, Message: fmt.Sprintf("path %.60q is empty, too long or holds a zero byte", name)}
	}
	if !path.IsAbs(name) {
		name = api.Workspace + "/" + name
	}
	return b, path.Clean(name), nil
}
