// Package server is the HTTP edge: it decides who asks (and refuses whoever
// does not say), decodes and bounds what clients send, calls the engine, and
// streams what comes back. Beyond that handlers decide nothing: whose a sandbox
// is and what it may have is the engine's.
//
// Requests are JSON and strict: an unknown field is an error. Errors are an
// api.Error with the status of its code. Some routes leave HTTP by an upgrade;
// see api.ExecProtocol and api.StreamProtocol.
package server

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/auth"
	"github.com/bermhq/berm/internal/sandbox"
	"github.com/bermhq/berm/internal/store"
	"github.com/bermhq/berm/internal/template"
)

// Auth knows the tokens; internal/auth has it.
type Auth interface {
	// Check says whom a token speaks for. A token that is unknown, revoked or
	// expired is an error, and it does not matter which.
	Check(token string) (auth.Identity, error)
	// Alive is a context that also ends when a token stops to work, with an
	// *api.Error as its cause.
	Alive(ctx context.Context, tokenID string) (context.Context, context.CancelFunc)
	Create(ctx context.Context, by auth.Identity, req api.TokenRequest) (api.NewToken, error)
	Revoke(ctx context.Context, by auth.Identity, idOrPrefix string) error
	List(by auth.Identity) []api.Token
}

// Store is the audit log as the API shows it; internal/store has it.
type Store interface {
	Events(q store.Query) (events []api.Event, next uint64, err error)
	Wait(ctx context.Context, after uint64) error
	Note(api.Event) error
	Head() api.Head
	Verify(ctx context.Context, head *api.Head) (api.Verification, error)
	Export(ctx context.Context, w io.Writer) error
	Report(ctx context.Context, tenant, subject string) (api.Report, error)
	Degraded() string
}

// Options adjust a server. The zero value is the documented default.
type Options struct {
	Log *slog.Logger // nil: nothing is logged

	// Auth says who asks. nil is for a server that only one command line can
	// reach, over a socket of its own: everything is allowed, and no Host
	// header is looked at.
	Auth  Auth
	Store Store // nil: no events, no audit routes
	// Hosts are the names and addresses, without a port, by which clients may
	// call this server beside those of the loopback interface and the address
	// that the connection came in on.
	Hosts   []string
	Version api.Version
	Shelf   template.Service // the templates; nil: there are no routes for them
	Builds  Builds           // what makes them in steps; nil: nothing
	Meter   *Meter           // what GET /metrics shows; nil: one of its own

	// WriteTimeout ends an answer whose client takes nothing for this long; 0: 1 minute.
	WriteTimeout time.Duration
	// ReadTimeout is the same for a body of which nothing comes, and bounds a
	// whole JSON body; 0: 30 s.
	ReadTimeout time.Duration
	// LastWord is how long an exec that is over waits for its client to take
	// what was being written, and as long for the result; 0: 5 s.
	LastWord time.Duration
	// Heartbeat is how often a stream without news shows that it lives; 0: 8 s.
	Heartbeat time.Duration
	// Stopping is over when the daemon is about to stop: streams without an end
	// get one. nil: never.
	Stopping context.Context
	// BadTokens is how many requests without a valid token one address may make
	// in a minute before the answer is 429; 0: 120. One that shows a good token
	// is never held back by others.
	BadTokens int
	// Concurrent is how many requests one token may have open; 0: 256.
	Concurrent int
}

func (o Options) withDefaults() Options {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Meter == nil {
		o.Meter = NewMeter()
	}
	if o.Stopping == nil {
		o.Stopping = context.Background()
	}
	if o.Concurrent <= 0 {
		o.Concurrent = 256
	}
	if o.BadTokens <= 0 {
		o.BadTokens = 120
	}
	for _, d := range []struct {
		v   *time.Duration
		def time.Duration
	}{
		{&o.WriteTimeout, time.Minute}, {&o.ReadTimeout, 30 * time.Second},
		{&o.LastWord, 5 * time.Second}, {&o.Heartbeat, 8 * time.Second},
	} {
		if *d.v <= 0 {
			*d.v = d.def
		}
	}
	return o
}

// A handler serves one route. Its error becomes the answer, if nothing was
// answered yet. Path values are in r.PathValue; see also callOf.
type handler func(w http.ResponseWriter, r *http.Request) error

type server struct {
	e      *sandbox.Engine
	opt    Options
	router *router
	table  []api.Route // as served: what is missing is named
	meter  *Meter

	failures throttle        // requests without a valid token, by address
	once     once            // creates with a key
	pool     pool            // what waits for clients
	checkup  *checkup        // what the host offers
	turns    *turns          // looks through the log
	uses     uses            // of trees
	stopping context.Context // see Options

	mu      sync.Mutex
	open    map[string]int // requests by token
	tenants map[string]int // and by tenant
}

// New returns the handler for an engine. What a request costs before it is
// understood is the http.Server's to bound: see Harden.
func New(e *sandbox.Engine, opt Options) http.Handler {
	opt = opt.withDefaults()
	s := &server{
		e: e, opt: opt, open: map[string]int{}, tenants: map[string]int{}, stopping: opt.Stopping, meter: opt.Meter,
		turns:    newTurns(),
		uses:     uses{at: map[string]time.Time{}, uploads: map[string]int{}},
		checkup:  newCheckup(),
		pool:     pool{tenant: map[string]int64{}},
		once:     once{now: time.Now, done: map[string]*attempt{}},
		failures: throttle{burst: float64(opt.BadTokens), perSecond: float64(opt.BadTokens) / 60, most: 1024, now: time.Now, keys: map[string]*allowance{}},
	}
	handlers := map[string]handler{}
	for _, part := range []map[string]handler{
		s.hostRoutes(), s.sandboxRoutes(), s.eventRoutes(), s.tokenRoutes(),
		s.execRoutes(), s.fsRoutes(), s.proxyRoutes(), s.logsRoutes(), s.templateRoutes(),
	} {
		for name, h := range part {
			if handlers[name] != nil {
				panic("two handlers for the route " + name)
			}
			handlers[name] = h
		}
	}
	for _, r := range api.Routes {
		if r.Missing != "" {
			delete(handlers, r.Name)
		} else if handlers[r.Name] == nil {
			r.Missing = "this route"
		}
		s.table = append(s.table, r)
	}
	s.router = newRouter(s.table, handlers)
	return s
}

// find returns a sandbox of the caller's own tenant.
func (s *server) find(ctx context.Context, id string) (api.Sandbox, error) {
	return s.e.Get(ctx, id)
}
