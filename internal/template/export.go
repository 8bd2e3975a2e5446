package template

import (
	"context"
	"io"

	"github.com/bermhq/berm/api"
)

// Export writes a template as an archive.
func (s *Store) Export(_ context.Context, name, format string, _ io.Writer) error {
	if _, ok := s.find(name); !ok {
		return notFound(name)
	}
	return &api.Error{Code: api.CodeUnavailable, Message: "no export to " + format + " yet", Hint: "berm help template"}
}
