// Package build makes templates in steps: what a step runs is run in a sandbox
// of its own under a policy, and what it changed becomes a layer.
package build

import (
	"context"
	"io"

	"github.com/bermhq/berm/api"
)

// Engine is what a build needs of the engine of sandboxes.
type Engine interface {
	Create(ctx context.Context, req api.CreateRequest) (api.Sandbox, error)
	Delete(ctx context.Context, id string) (api.EndReport, error)
	TarIn(ctx context.Context, id, dir string, r io.Reader) error
	// Changes is all that was written below dir, as a tar with OCI's marks for
	// what was removed.
	Changes(ctx context.Context, id, dir string) (io.ReadCloser, error)
}
