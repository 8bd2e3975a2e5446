package server

import "net/http"

func (s *server) hostRoutes() map[string]handler {
	return map[string]handler{
		"healthz": s.healthz,
		"doctor":  s.doctor,
		"leaks":   s.leaks,
	}
}

// healthz says that the server serves, and nothing about it.
func (s *server) healthz(w http.ResponseWriter, r *http.Request) error {
	reply(w, http.StatusOK, map[string]string{"status": "ok"})
	return nil
}

func (s *server) doctor(w http.ResponseWriter, r *http.Request) error {
	d, err := s.e.Doctor(r.Context())
	if err == nil {
		reply(w, http.StatusOK, d)
	}
	return err
}

func (s *server) leaks(w http.ResponseWriter, r *http.Request) error {
	l, err := s.e.Leaks(r.Context())
	if err == nil {
		reply(w, http.StatusOK, l)
	}
	return err
}
