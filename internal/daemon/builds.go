package daemon

import (
	"context"
	"log/slog"

	making "github.com/bermhq/berm/internal/build"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/policy"
	"github.com/bermhq/berm/internal/sandbox"
	"github.com/bermhq/berm/internal/store"
	"github.com/bermhq/berm/internal/template"
)

// workerBuilds are those of one command line: of a worker without a link, steps
// have none.
func workerBuilds(shelf *template.Client, e *sandbox.Engine, presets map[string]policy.Preset) *making.Builds {
	return making.New(making.Options{Templates: shelf, Engine: e, Presets: knownPresets(presets), Spool: shelf.Scratch})
}

// daemonBuilds are those of a daemon, which outlive whoever asked, and are known
// to the next daemon if they do not outlive this one.
func daemonBuilds(shelf *template.Client, e *sandbox.Engine, presets *presets, s *store.Store, log *slog.Logger) *making.Builds {
	return making.New(making.Options{
		Templates: shelf, Engine: e, Presets: presets.find, Spool: shelf.Scratch,
		Log: log, Event: func(ctx context.Context, ev api.Event) error { return s.Append(ctx, ev) }, Records: s.Bucket("builds"),
	})
}
