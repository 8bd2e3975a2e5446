package server

import (
	"net/http"

	"github.com/bermhq/berm/api"
)

func (s *server) tokenRoutes() map[string]handler {
	if s.opt.Auth == nil {
		return nil
	}
	return map[string]handler{
		"token.list":       bare(s.listTokens),
		"token.create":     bare(s.createToken),
		"token.revoke":     bare(s.revokeToken),
		"me.tokens":        bare(s.listTokens),
		"me.tokens.create": bare(s.createMyToken),
		"me.tokens.revoke": bare(s.revokeToken),
	}
}

func (s *server) listTokens(w http.ResponseWriter, r *http.Request) error {
	list := s.opt.Auth.List(callOf(r).who)
	if list == nil {
		list = []api.Token{}
	}
	reply(w, http.StatusOK, api.TokenList{Items: list})
	return nil
}

func (s *server) createToken(w http.ResponseWriter, r *http.Request) error {
	var req api.TokenRequest
	if err := decode(w, r, &req); err != nil {
		return err
	}
	t, err := s.opt.Auth.Create(r.Context(), callOf(r).who, req)
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	reply(w, http.StatusCreated, t)
	return nil
}

// A newToken is a token as PandaStack shows it: beside what is known of it.
type newToken struct {
	api.Token
	Value string `json:"token"`
}

// createMyToken is the same in PandaStack's words, which know no roles: the
// token is an agent's.
func (s *server) createMyToken(w http.ResponseWriter, r *http.Request) error {
	var req struct {
		api.TokenRequest
		Name          string   `json:"name"`
		ExpiresInDays *float64 `json:"expires_in_days"`
	}
	if err := decode(w, r, &req); err != nil {
		return err
	}
	if req.Role == "" {
		req.Role = api.RoleAgent
	}
	if req.Label == "" {
		req.Label = req.Name
	}
	if req.Tenant == "" {
		req.Tenant = callOf(r).who.Tenant
	}
	if d := req.ExpiresInDays; d != nil {
		if *d <= 0 || req.TTLSeconds != 0 {
			return &api.Error{Code: api.CodeBadRequest, Message: "expires_in_days is more than 0, and not beside ttl_seconds"}
		}
		req.TTLSeconds = *d * 86400
	}
	t, err := s.opt.Auth.Create(r.Context(), callOf(r).who, req.TokenRequest)
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	reply(w, http.StatusOK, newToken{t.Info, t.Token})
	return nil
}

func (s *server) revokeToken(w http.ResponseWriter, r *http.Request) error {
	if err := s.opt.Auth.Revoke(r.Context(), callOf(r).who, r.PathValue("token")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
