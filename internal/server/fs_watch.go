package server

import (
	"net/http"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/sandbox"
)

// fsWatch tells what changes below a directory, until the client leaves.
func (s *server) fsWatch(w http.ResponseWriter, r *http.Request) error {
	p, err := pathOf(r, "recursive")
	if err != nil {
		return err
	}
	recursive, err := truth(r.URL.Query(), "recursive")
	if err != nil {
		return err
	}
	id := r.PathValue("id")
	info, err := s.e.Stat(r.Context(), id, p)
	if err != nil {
		return err
	}
	if info.Kind != "dir" {
		return &api.Error{Code: api.CodeFileKind, Message: p + " is not a directory"}
	}
	out, ctx := s.sse(w, r, 0)
	defer out.end()
	err = s.e.Watch(ctx, id, p, recursive, func(e api.FileEvent) error {
		if e.Op == sandbox.WatchReady {
			return out.event(-1, "ready", struct{}{})
		}
		return out.event(-1, "change", e)
	})
	if err != nil {
		out.fail(err)
	}
	return nil
}
