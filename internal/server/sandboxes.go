package server

import (
	"net/http"

	"github.com/bermhq/berm/api"
)

func (s *server) sandboxRoutes() map[string]handler {
	return map[string]handler{
		"sandbox.create": s.create,
		"sandbox.get":    s.get,
		"sandbox.delete": s.delete,
	}
}

func (s *server) create(w http.ResponseWriter, r *http.Request) error {
	var req api.CreateRequest
	if err := decode(w, r, &req); err != nil {
		return err
	}
	req.Bound = bound(r)
	sb, err := s.e.Create(r.Context(), req)
	if err != nil {
		return err
	}
	if req.Bound {
		return s.hold(w, r, sb)
	}
	reply(w, http.StatusCreated, sb)
	return nil
}

func (s *server) get(w http.ResponseWriter, r *http.Request) error {
	sb, err := s.find(r.Context(), r.PathValue("id"))
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
	if v, err := query(r, "report"); err != nil {
		return err
	} else if v == "1" {
		reply(w, http.StatusOK, report)
		return nil
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
