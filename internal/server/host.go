package server

import (
	"net/http"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/sandbox"
)

func (s *server) hostRoutes() map[string]handler {
	return map[string]handler{
		"healthz": s.healthz,
		"openapi": bare(s.openapi),
		"metrics": bare(s.metrics),
		"version": bare(s.version),
		"routes":  bare(s.routes),
		"me":      bare(s.me),
		"doctor":  bare(s.doctor),
		"leaks":   bare(s.leaks),
		"top":     bare(s.top),
	}
}

// healthz says that the server serves, and nothing about it.
func (s *server) healthz(w http.ResponseWriter, r *http.Request) error {
	reply(w, http.StatusOK, map[string]string{"status": "ok"})
	return nil
}

func (s *server) openapi(w http.ResponseWriter, r *http.Request) error {
	w.Header().Set("Content-Type", "application/yaml; charset=utf-8")
	_, err := w.Write(api.OpenAPI)
	return err
}

func (s *server) version(w http.ResponseWriter, r *http.Request) error {
	reply(w, http.StatusOK, s.opt.Version)
	return nil
}

// routes is the table, with what this server lacks named in it.
func (s *server) routes(w http.ResponseWriter, r *http.Request) error {
	reply(w, http.StatusOK, s.table)
	return nil
}

// me says who the token is, in our words and in PandaStack's.
func (s *server) me(w http.ResponseWriter, r *http.Request) error {
	who := callOf(r).who
	reply(w, http.StatusOK, struct {
		api.Me
		UserID     string   `json:"user_id"`
		Email      string   `json:"email"`
		CurrentOrg string   `json:"current_org"`
		Orgs       []string `json:"orgs"`
		AuthMethod string   `json:"auth_method"`
	}{api.Me{TokenID: who.TokenID, Tenant: who.Tenant, Role: who.Role}, who.TokenID, "", who.Tenant, []string{who.Tenant}, "token"})
	return nil
}

// doctor says what this host offers. Why it does not offer something, in the
// host's own words, is for those who can do something about it.
func (s *server) doctor(w http.ResponseWriter, r *http.Request) error {
	d, err := s.checkup.ask(r.Context(), s.e.Doctor)
	if err != nil {
		return err
	}
	if c := sandbox.CallerOf(r.Context()); c.Tenant != api.DefaultTenant || api.Rank(c.Role) < api.Rank(api.RoleOperator) {
		d = discreet(d)
	}
	reply(w, http.StatusOK, d)
	return nil
}

func (s *server) leaks(w http.ResponseWriter, r *http.Request) error {
	if err := s.node(r); err != nil {
		return err
	}
	l, err := s.e.Leaks(r.Context())
	if err == nil {
		reply(w, http.StatusOK, l)
	}
	return err
}

// top is one look at the caller's tenant's sandboxes.
func (s *server) top(w http.ResponseWriter, r *http.Request) error {
	t := api.Top{Time: time.Now().UTC().Format(time.RFC3339), Sandboxes: []api.TopRow{}}
	if sandbox.CallerOf(r.Context()).Tenant == api.DefaultTenant {
		t.Creates = int64(s.e.Totals().Creates) // of every tenant
	}
	if s.opt.Store != nil {
		t.Degraded = s.opt.Store.Degraded()
	}
	for _, sb := range s.e.Sandboxes(r.Context(), sandbox.Filter{}) {
		m, err := s.e.Metrics(r.Context(), sb.SandboxID)
		if err != nil {
			if r.Context().Err() != nil {
				return err
			}
			m = api.Metrics{SandboxID: sb.SandboxID, State: sb.State} // on its way in or out
		}
		if len(t.Sandboxes) < maxList {
			t.Sandboxes = append(t.Sandboxes, api.TopRow{Sandbox: sb, Metrics: m})
		}
		if sb.Status == api.StatusRunning {
			t.Running++
		}
		t.RunningExecs += m.RunningExecs
		t.MemoryBytes += m.MemoryBytes
		t.CPUPercent += m.HostCPUPercent
	}
	reply(w, http.StatusOK, t)
	return nil
}
