package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/auth"
	"github.com/bermhq/berm/internal/sandbox"
)

// A call is what the edge knows of a request, for its handler.
type call struct {
	id    string // of the request
	route api.Route
	tail  string // what follows the route's path, escaped as it came; "" or with its slash
	who   auth.Identity
	life  context.Context // ends when the token stops to work, and with nothing else before the request is over
}

type callKey struct{}

// callOf returns what the edge knows of r.
func callOf(r *http.Request) *call { return r.Context().Value(callKey{}).(*call) }

// ServeHTTP leads one request through the door: is the address ours, who asks,
// is there such a route, may they; then the handler.
func (s *server) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	c := &call{id: requestID(r), life: context.WithoutCancel(r.Context())}
	a := newAnswer(rw, s.opt.WriteTimeout)
	a.Header().Set("X-Request-Id", c.id)
	if r.Body != nil && r.Body != http.NoBody {
		a.rc.SetReadDeadline(time.Now().Add(s.opt.ReadTimeout))
	}
	began := time.Now()
	defer func() {
		v := recover()
		if v != nil && v != http.ErrAbortHandler {
			s.opt.Log.Error("a handler panicked", "request_id", c.id, "route", c.route.Name, "panic", v, "stack", string(debug.Stack()))
			if !a.begun() {
				s.refuse(a, r, c, &api.Error{Code: api.CodeHostFailure, Message: "Berm failed at this request", Hint: "the daemon's log has it under this request_id"})
				v = nil
			}
		}
		s.account(c, r, a, time.Since(began))
		if v != nil {
			panic(http.ErrAbortHandler)
		}
	}()
	if err := s.serve(a, r, c); err != nil {
		s.refuse(a, r, c, err)
	}
}

func (s *server) serve(a *answer, r *http.Request, c *call) error {
	if s.opt.Auth != nil {
		if !trusted(r) {
			a.Header().Set("Connection", "close") // who shows no token keeps no connection
		}
		if err := s.ours(r); err != nil {
			s.deny(r, c, err)
			return err
		}
	}
	m, noRoute := s.router.find(r.Method, r.URL)
	if m.pattern != nil {
		c.route, c.tail = m.route, m.tail
		for k, v := range m.values {
			r.SetPathValue(k, v)
		}
	}
	if m.pattern == nil || m.route.Role != "" {
		who, err := s.admit(r, c)
		if err != nil {
			return err
		}
		c.who = who
		if s.opt.Auth != nil {
			trust(r)
			a.Header().Del("Connection")
		}
	}
	if len(m.allow) > 0 {
		a.Header().Set("Allow", strings.Join(m.allow, ", "))
	}
	if noRoute != nil {
		return noRoute
	}
	ctx := context.WithValue(r.Context(), callKey{}, c)
	if s.opt.Auth != nil && m.route.Role != "" {
		if api.Rank(c.who.Role) < api.Rank(m.route.Role) {
			return s.forbid(r, c)
		}
		done, err := s.enter(c)
		if err != nil {
			return err
		}
		defer done()
		var end context.CancelFunc
		c.life, end = s.opt.Auth.Alive(c.life, c.who.TokenID)
		defer end()
		ctx, end = hang(ctx, c.life)
		defer end()
		defer a.hang(c.life)()
		ctx = sandbox.As(ctx, caller(c.who))
	}
	r = r.WithContext(ctx)
	if id := r.PathValue("id"); id != "" {
		// Before a handler looks at anything else, so that no route can forget it
		// and a missing part says nothing about another tenant's sandboxes either.
		if _, err := s.find(ctx, id); err != nil {
			s.stranger(r, c, id, err)
			return err
		}
	}
	if m.handle == nil {
		return &api.Error{Code: api.CodeUnavailable, Message: "not available here: " + m.route.Missing + " (" + m.route.Name + ")", Hint: "GET /v1/routes says what is"}
	}
	err := m.handle(a, r)
	if err != nil && c.life.Err() != nil {
		err = context.Cause(c.life)
	}
	if err != nil && slices.Contains(refusals, known(err).Code) {
		s.deny(r, c, err)
	}
	return err
}

// requestID is the client's own word for its request, or a new one.
func requestID(r *http.Request) string {
	id := r.Header.Get("X-Request-Id")
	if len(id) == 0 || len(id) > 64 || strings.ContainsFunc(id, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("-_.:", c)
	}) {
		return api.NewID(api.KindRequest)
	}
	return id
}

// refuse turns an error into the answer.
func (s *server) refuse(a *answer, r *http.Request, c *call, err error) {
	e := *public(err)
	e.RequestID = c.id
	status := api.Status(e.Code)
	if status >= 500 {
		e.Message = calm(e.Message)
		if status != http.StatusNotImplemented {
			s.opt.Log.Warn("request failed", "request_id", c.id, "method", r.Method, "route", c.route.Name, "error", err)
		}
	}
	if a.begun() {
		// The status is out: cut the connection, so that the client cannot take
		// a part for the whole.
		panic(http.ErrAbortHandler)
	}
	if e.RetryAfter > 0 {
		a.Header().Set("Retry-After", strconv.Itoa(e.RetryAfter))
	}
	if status == http.StatusUnauthorized {
		e.Detail = e.Message
		a.Header().Set("WWW-Authenticate", "Bearer")
	}
	reply(a, status, e)
}

// public is what of an error a client may see, with what to do about it.
func public(err error) *api.Error {
	e := *known(err)
	if e.Hint == "" {
		e.Hint = api.Hint(e.Code)
	}
	return &e
}

func known(err error) *api.Error {
	var ae *api.Error
	if errors.As(err, &ae) {
		return ae
	}
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return &api.Error{Code: api.CodeTooLarge, Message: fmt.Sprintf("the request is larger than %d bytes", tooLarge.Limit)}
	}
	if errors.Is(err, context.Canceled) {
		return &api.Error{Code: api.CodeInterrupted, Message: "the caller left"}
	}
	return &api.Error{Code: api.CodeHostFailure, Message: err.Error()}
}

// calm rewords what PandaStack's clients take for a machine that is still
// coming up: they would send the request, and run its command, again.
func calm(msg string) string {
	return strings.NewReplacer("connect: connection refused", "the connection was refused",
		"no route to host", "there is no way to the host", "i/o timeout", "it took too long").Replace(msg)
}

// account records what became of a request.
func (s *server) account(c *call, r *http.Request, a *answer, took time.Duration) {
	name := c.route.Name
	if name == "" {
		name = "none"
	}
	s.meter.request(name, a.status, took, a.written)
	level := slog.LevelInfo
	if c.who.TokenID == "" && (name == "healthz" || a.status == http.StatusTooManyRequests) {
		level = slog.LevelDebug // nobody fills the log without a token
	}
	s.opt.Log.Log(r.Context(), level, "request", "request_id", c.id, "route", name, "method", r.Method, "status", a.status,
		"bytes", a.written, "duration_ms", float64(took.Microseconds())/1000, "actor", c.who.TokenID, "tenant", c.who.Tenant)
}

// caller is who asks, as the engine knows it.
func caller(id auth.Identity) sandbox.Caller {
	return sandbox.Caller{Tenant: id.Tenant, Actor: id.TokenID, Role: id.Role, Ceiling: id.Ceiling, Default: id.Default}
}
