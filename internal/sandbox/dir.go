package sandbox

import (
	"context"

	"github.com/bermhq/berm/api"
)

// maxListBytes bounds the names of one list, which are the guest's to choose.
const maxListBytes = 4 << 20

// Dir lists one directory, not what is below its own directories.
func (e *Engine) Dir(ctx context.Context, id, dir string) (api.FileList, error) {
	b, p, err := e.open(ctx, id, dir)
	if err != nil {
		return api.FileList{}, err
	}
	w := e.patience(ctx, b, e.opt.Listing)
	defer w.stop()
	infos, err := b.guest.List(w.ctx, p, 1, MaxFiles+1)
	if err != nil {
		return api.FileList{}, w.explain("list "+p, err)
	}
	l := api.FileList{Files: []api.FileInfo{}}
	size := 0
	for _, i := range infos {
		if size += len(i.Path); len(l.Files) == MaxFiles || size > maxListBytes {
			l.More = true
			break
		}
		if len(i.Path) > maxPath {
			continue
		}
		l.Files = append(l.Files, api.FileInfo{Path: i.Path, Kind: i.Kind, Size: i.Size, Mode: i.Mode & 0o777, MTime: i.ModTime.Unix()})
	}
	return l, nil
}

// WatchReady is the operation of the first event of Watch: from there on
// nothing is missed.
const WatchReady = "ready"
