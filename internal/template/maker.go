package template

import (
	"context"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/image"
)

// make has a maker do a task.
func (s *Store) make(ctx context.Context, t task, f files, progress func(api.TemplateProgress)) (image.Made, error) {
	return t.run(ctx, f, progress)
}

// RunMaker is the main of a maker.
func RunMaker([]string) error { return nil }
