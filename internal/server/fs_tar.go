package server

import (
	"net/http"

	"github.com/bermhq/berm/api"
)

const maxNames = 1000 // of one archive

// tarOut sends a directory, or what is named of it, as a tar stream.
func (s *server) tarOut(w http.ResponseWriter, r *http.Request) error {
	q, err := params(r, []string{"path"}, []string{"name"})
	if err != nil {
		return err
	}
	p, err := absolute(q.Get("path"))
	if err != nil {
		return err
	}
	names := q["name"]
	if len(names) > maxNames {
		return &api.Error{Code: api.CodeBadRequest, Message: "name: too many of them", Hint: "ask for the directory, or twice"}
	}
	id := r.PathValue("id")
	f, err := s.e.TarOut(r.Context(), id, p, names)
	if err != nil {
		return err
	}
	defer f.Close()
	download(w, r, "application/x-tar", f)
	return nil
}

// changes sends what was written below a directory, as a layer.
func (s *server) changes(w http.ResponseWriter, r *http.Request) error {
	dir, err := query(r, "dir")
	if err != nil {
		return err
	}
	if dir, err = absolute(dir); err != nil {
		return err
	}
	f, err := s.e.Changes(r.Context(), r.PathValue("id"), dir)
	if err != nil {
		return err
	}
	defer f.Close()
	download(w, r, "application/x-tar", f)
	return nil
}

func (s *server) tarIn(w http.ResponseWriter, r *http.Request) error {
	path, err := query(r, "path")
	if err != nil {
		return err
	}
	in := &upload{r: s.stream(w, r), left: r.ContentLength}
	err = s.e.TarIn(r.Context(), r.PathValue("id"), path, in)
	if in.err != nil {
		return &api.Error{Code: api.CodeInterrupted, Message: "the request body did not arrive whole; what had come by then was unpacked"}
	}
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
