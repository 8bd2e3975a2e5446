// Package server is the HTTP edge: it decodes and bounds what clients send,
// calls the engine, and streams what comes back. Handlers decide nothing.
//
// Requests are JSON and strict: an unknown field is an error. Errors are an
// api.Error with the status of its code. One route, exec, leaves HTTP by an
// upgrade; see api.ExecProtocol.
package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/sandbox"
)

// maxBody bounds every JSON request.
const maxBody = 1 << 20

// Options adjust a server. The zero value is the documented default.
type Options struct {
	Log *slog.Logger // nil: nothing is logged
	// WriteTimeout ends an exec whose client takes no output for this long; 0: 1 minute.
	WriteTimeout time.Duration
	// LastWord is how long an exec that is over waits for its client to take
	// what was being written, and as long for the result; 0: 5 s.
	LastWord time.Duration
}

type server struct {
	e   *sandbox.Engine
	opt Options
}

// New returns the handler for an engine.
func New(e *sandbox.Engine, opt Options) http.Handler {
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	if opt.WriteTimeout <= 0 {
		opt.WriteTimeout = time.Minute
	}
	if opt.LastWord <= 0 {
		opt.LastWord = 5 * time.Second
	}
	s := &server{e: e, opt: opt}
	mux := http.NewServeMux()
	for _, r := range []struct {
		pattern string
		handle  func(http.ResponseWriter, *http.Request) error
	}{
		{"POST /v1/sandboxes", s.create},
		{"GET /v1/sandboxes/{id}", s.get},
		{"DELETE /v1/sandboxes/{id}", s.delete},
		{"POST /v1/sandboxes/{id}/exec", s.exec},
		{"PUT /v1/sandboxes/{id}/archive", s.tarIn},
		{"GET /v1/sandboxes/{id}/glob", s.glob},
		{"GET /v1/sandboxes/{id}/list", s.list},
		{"GET /v1/sandboxes/{id}/files", s.readFile},
		{"GET /v1/doctor", s.doctor},
		{"GET /v1/doctor/leaks", s.leaks},
		{"/", s.noRoute},
	} {
		mux.Handle(r.pattern, s.edge(r.handle))
	}
	return mux
}

// edge gives a request its id and turns an error into the answer.
func (s *server) edge(h func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		id := api.NewID(api.KindRequest)
		w.Header().Set("X-Request-Id", id)
		err := h(w, r)
		if err == nil {
			return
		}
		e := *public(err)
		e.RequestID = id
		if api.Status(e.Code) >= 500 {
			s.opt.Log.Warn("request failed", "request_id", id, "method", r.Method, "path", r.URL.Path, "error", err)
		}
		reply(w, api.Status(e.Code), e)
	}
}

// public is what of an error a client may see.
func public(err error) *api.Error {
	var ae *api.Error
	if errors.As(err, &ae) {
		return ae
	}
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return &api.Error{Code: api.CodeTooLarge, Message: fmt.Sprintf("the request is larger than %d bytes", tooLarge.Limit)}
	}
	return &api.Error{Code: api.CodeHostFailure, Message: err.Error()}
}

func reply(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // our own types
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(append(b, '\n'))
}

// decode reads the one JSON object of a request, strictly.
func decode(w http.ResponseWriter, r *http.Request, v any) error {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return &api.Error{Code: api.CodeBadRequest, Message: "request body: " + strings.TrimPrefix(err.Error(), "json: ")}
	}
	if _, err := d.Token(); err != io.EOF {
		return &api.Error{Code: api.CodeBadRequest, Message: "request body: something follows the object"}
	}
	return nil
}

func (s *server) noRoute(w http.ResponseWriter, r *http.Request) error {
	return &api.Error{Code: api.CodeNoRoute, Message: fmt.Sprintf("%s %.100s is not a route", r.Method, r.URL.Path)}
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
