package server

import (
	"net/http"

	"github.com/bermhq/berm/api"
)

func (s *server) create(w http.ResponseWriter, r *http.Request) error {
	var req api.CreateRequest
	if err := decode(w, r, &req); err != nil {
		return err
	}
	sb, err := s.e.Create(r.Context(), req)
	if err != nil {
		return err
	}
	reply(w, http.StatusCreated, sb)
	return nil
}

func (s *server) get(w http.ResponseWriter, r *http.Request) error {
	sb, err := s.e.Get(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	reply(w, http.StatusOK, sb)
	return nil
}

func (s *server) delete(w http.ResponseWriter, r *http.Request) error {
	report, err := s.e.Delete(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	reply(w, http.StatusOK, report)
	return nil
}
