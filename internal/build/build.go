// Package build makes templates in steps: what a step runs is run in a sandbox
// of its own under a policy, and what it changed becomes a layer. A step that
// was made before, on the same layers and from the same words and files, is not
// run again.
//
// Builds are jobs: they go on without whoever asked, have a state and a log, and
// leave a template, or nothing but steps that later builds may use.
package build

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/image"
	"github.com/bermhq/berm/internal/policy"
	"github.com/bermhq/berm/internal/sandbox"
	"github.com/bermhq/berm/internal/template"
)

// Engine is what a build needs of the engine of sandboxes; *sandbox.Engine is it.
type Engine interface {
	CreateOn(ctx context.Context, req api.CreateRequest, root image.Root) (api.Sandbox, error)
	Delete(ctx context.Context, id string) (api.EndReport, error)
	Exec(ctx context.Context, id string, req api.ExecRequest, s sandbox.Streams) (api.ExecResult, error)
	Unpack(ctx context.Context, id, dir string, owner *[2]uint32, r io.Reader) error
	TarOut(ctx context.Context, id, dir string, paths []string) (io.ReadCloser, error)
	Glob(ctx context.Context, id, pattern string) (api.FileList, error)
	Stat(ctx context.Context, id, name string) (api.FileInfo, error)
	ReadFile(ctx context.Context, id, name string, maxBytes int64) (io.ReadCloser, error)
	PresetFiles(ctx context.Context, id string) ([]string, error)
	// Changes is all that was written below dir, as a tar with OCI's marks for
	// what was removed.
	Changes(ctx context.Context, id, dir string) (io.ReadCloser, error)
}

// Records keep what must outlive this process: one for each build that is not
// over. *store.Bucket is it.
type Records interface {
	Put(key string, v any) error
	Delete(key string) error
	Each(f func(key string, value json.RawMessage) error) error
}

// Options say how builds are made. Templates and Engine are needed.
type Options struct {
	Templates template.Service
	Engine    Engine
	Log       *slog.Logger // nil: nothing is logged

	// Presets finds what a preset of an egress document stands for, as the
	// engine does; one that is not to be had is left out of what steps may
	// reach. nil: there are none.
	Presets func(name string) (policy.Preset, error)
	// Event is told what was decided and done; an error is a refusal. nil: nobody is.
	Event func(ctx context.Context, e api.Event) error
	// Records are where builds are kept that are not over; nil: nowhere.
	Records Records
	// Spool makes an open file without a name, for what comes with a request.
	// nil: one below os.TempDir.
	Spool func() (*os.File, error)

	AtOnce int           // builds that run; 0: 2
	Keep   int           // builds that are over and remembered; 0: 100
	For    time.Duration // for so long; 0: an hour
}

// Bounds of builds and their sandboxes.
const (
	maxQueued  = 32
	maxContext = 4 << 30 // bytes of a context's files
	maxEntries = 500_000
	maxSteps   = 120 // layers that one build may add
	stepTime   = 30 * time.Minute
	undoTime   = 30 * time.Second
)

// stepLimits are those of a step's sandbox where the request says nothing.
var stepLimits = api.Limits{
	TimeoutSeconds: stepTime.Seconds(), MemoryBytes: 2 << 30, CPUs: 2, Pids: 1024, DiskBytes: 8 << 30, OutputBytes: 8 << 20,
}

func spool() (*os.File, error) {
	f, err := os.CreateTemp("", "berm-build-")
	if err == nil {
		err = os.Remove(f.Name())
	}
	return f, err
}
