package server

import (
	"fmt"
	"net/http"
	"strconv"

	"github.com/bermhq/berm/api"
)

// maxFile is what one file may have when the client names no bound.
const maxFile = 1 << 30

func (s *server) glob(w http.ResponseWriter, r *http.Request) error {
	pattern, err := query(r, "pattern")
	if err != nil {
		return err
	}
	files, err := s.e.Glob(r.Context(), r.PathValue("id"), pattern)
	if err != nil {
		return err
	}
	reply(w, http.StatusOK, files)
	return nil
}

func (s *server) list(w http.ResponseWriter, r *http.Request) error {
	path, err := query(r, "path")
	if err != nil {
		return err
	}
	files, err := s.e.List(r.Context(), r.PathValue("id"), path)
	if err != nil {
		return err
	}
	reply(w, http.StatusOK, files)
	return nil
}

func (s *server) readFile(w http.ResponseWriter, r *http.Request) error {
	path, err := query(r, "path", "max")
	if err != nil {
		return err
	}
	limit := int64(maxFile)
	if v := r.URL.Query().Get("max"); v != "" {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n < 0 {
			return &api.Error{Code: api.CodeBadRequest, Message: fmt.Sprintf("max: %.40q is not a size", v)}
		}
		limit = n
	}
	f, err := s.e.ReadFile(r.Context(), r.PathValue("id"), path, limit)
	if err != nil {
		return err
	}
	defer f.Close()
	download(w, r, "application/octet-stream", f)
	return nil
}
