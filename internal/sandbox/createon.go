package sandbox

import (
	"context"
	"io"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/image"
)

// CreateOn makes a sandbox as Create does, on a root that has no name: what a
// build has made so far. The request's Template is what the sandbox is said to
// be of. Whoever calls has decided that this root may be used.
func (e *Engine) CreateOn(ctx context.Context, req api.CreateRequest, root image.Root) (api.Sandbox, error) {
	return e.create(ctx, req, &root)
}

// Unpack is TarIn for a build: what is unpacked belongs to owner, uid and gid;
// nil keeps what the archive says of owners and modes.
func (e *Engine) Unpack(ctx context.Context, id, dir string, owner *[2]uint32, r io.Reader) error {
	return e.tarIn(ctx, id, dir, owner, r)
}

// PresetFiles are the files that presets of a sandbox's policy wrote into it.
func (e *Engine) PresetFiles(ctx context.Context, id string) ([]string, error) {
	b, err := e.find(ctx, id)
	if err != nil {
		return nil, err
	}
	names, _ := b.presetFiles()
	return names, nil
}
