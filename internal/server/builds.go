package server

import (
	"cmp"
	"net/http"
	"strings"
	"unicode"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/build"
)

// pullTemplate starts to pull an image.
func (s *server) pullTemplate(w http.ResponseWriter, r *http.Request) error {
	var req api.BuildRequest
	if err := decode(w, r, &req); err != nil {
		return err
	}
	if req.ImageRef == "" {
		return &api.Error{Code: api.CodeBadRequest, Message: "image_ref: an image is needed", Hint: `send {"image_ref":"python:3.12-slim"}`}
	}
	if req.From != "" || req.Dockerfile != "" || len(req.Debs) > 0 || len(req.Pips) > 0 || len(req.Npms) > 0 {
		return &api.Error{Code: api.CodeBadRequest, Message: "a pull makes a template of an image and of nothing else", Hint: "use POST /v1/templates/build"}
	}
	if req.Name == "" {
		req.Name = req.ImageRef
	}
	return s.startBuild(w, r, req)
}

func (s *server) startBuild(w http.ResponseWriter, r *http.Request, req api.BuildRequest) error {
	req.Name = cmp.Or(req.Name, req.Recipe)
	if err := makes(req.Name); err != nil {
		return err
	}
	b, err := s.opt.Builds.Start(r.Context(), req, build.Input{})
	if err == nil {
		reply(w, http.StatusAccepted, b)
	}
	return err
}

func (s *server) listBuilds(w http.ResponseWriter, r *http.Request) error {
	list := s.opt.Builds.List(r.Context())
	if list == nil {
		list = []api.Build{}
	}
	reply(w, http.StatusOK, list)
	return nil
}

func (s *server) getBuild(w http.ResponseWriter, r *http.Request) error {
	b, err := s.opt.Builds.Get(r.Context(), r.PathValue("build"))
	if err == nil {
		reply(w, http.StatusOK, b)
	}
	return err
}

func (s *server) cancelBuild(w http.ResponseWriter, r *http.Request) error {
	if err := s.opt.Builds.Cancel(r.Context(), r.PathValue("build")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// buildLogs sends the lines of a build; the last one is "end".
func (s *server) buildLogs(w http.ResponseWriter, r *http.Request) error {
	q, err := params(r, []string{"follow"}, nil)
	if err != nil {
		return err
	}
	follow, err := truth(q, "follow")
	if err != nil {
		return err
	}
	id := r.PathValue("build")
	if _, err := s.opt.Builds.Get(r.Context(), id); err != nil {
		return err
	}
	x, ctx := s.sse(w, r, 0)
	defer x.end()
	if err := s.opt.Builds.Lines(ctx, id, follow, func(line string) error { return x.line(logLine(line)) }); err != nil {
		return x.fail(err)
	}
	return x.line("end")
}

// logLine is a line that no client takes for two, or for the end.
func logLine(s string) string {
	if len(s) > maxPiece {
		s = s[:maxPiece] + "..."
	}
	s = strings.Map(func(r rune) rune {
		if r != '\t' && unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
	if strings.TrimSpace(s) == "end" {
		return "(end)"
	}
	return s
}
