package sandbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/backend"
	"github.com/bermhq/berm/internal/egress"
	"github.com/bermhq/berm/internal/image"
	"github.com/bermhq/berm/internal/policy"
)

// Options adjust an Engine. The zero value is the documented default.
type Options struct {
	Log *slog.Logger // nil: nothing is logged

	// Host is what Doctor says of the machine; nil: HostFacts, when asked.
	Host map[string]any

	// Images finds the root of a template; its error is the caller's. nil: an
	// image has its template's name.
	Images func(template string) (image.Root, error)

	// Journal keeps what must outlive this process; nil: nothing does.
	Journal Journal

	Boot     time.Duration // a new guest answers within this; 0: 10 s
	Grace    time.Duration // a killed exec is over within this, else the sandbox is; 0: 300 ms
	Settle   time.Duration // wait for the host's word after the stream broke; 0: 2 s
	Stall    time.Duration // a file transfer makes progress within this; 0: 10 s
	Listing  time.Duration // a list of files is there within this; 0: 15 s
	Drain    time.Duration // when its time is over, output moves within this and ends within five of it; 0: 2 s
	EndAll   time.Duration // what a command left running is ended within this, else the sandbox is; 0: 2 s
	Sample   time.Duration // how often usage is read during an exec; 0: 50 ms
	StopFor  time.Duration // stopping an instance may take this long; 0: 15 s
	Record   time.Duration // and the record of what has happened this long; 0: 15 s
	Comeback time.Duration // a kept exec that belongs to its callers outlives the last of them by this; 0: 10 s
	Retain   time.Duration // ended sandboxes are remembered for this long; 0: a day

	// Egress is the broker of sandboxes with a link; nil: there can be none.
	Egress *egress.Broker
	// Presets finds what a preset of an egress document stands for; nil: there
	// are none.
	Presets func(name string) (policy.Preset, error)

	// CA are the host's certificates of authorities, PEM: what presets reach may
	// have one that no other root knows. "": presets bring none along.
	CA string

	Budget int64            // bytes of memory that all sandboxes may have as their caps; 0: not counted
	Quota  Quota            // of each tenant
	Quotas map[string]Quota // of these tenants instead
}

func (o Options) withDefaults() Options {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Images == nil {
		o.Images = sameName
	}
	for _, d := range []struct {
		v   *time.Duration
		def time.Duration
	}{
		{&o.Boot, 10 * time.Second}, {&o.Grace, 300 * time.Millisecond}, {&o.Settle, 2 * time.Second},
		{&o.Stall, 10 * time.Second}, {&o.Listing, 15 * time.Second}, {&o.Drain, 2 * time.Second}, {&o.EndAll, 2 * time.Second},
		{&o.Sample, 50 * time.Millisecond}, {&o.StopFor, 15 * time.Second},
		{&o.Record, 15 * time.Second}, {&o.Comeback, 10 * time.Second}, {&o.Retain, 24 * time.Hour},
	} {
		if *d.v <= 0 {
			*d.v = d.def
		}
	}
	return o
}

// An Engine makes and keeps sandboxes. It is safe for concurrent use.
type Engine struct {
	opt      Options
	backends []backend.Backend

	mu     sync.Mutex // before box.mu
	boxes  map[string]*box
	past   []*box          // ended ones, oldest first
	usable map[string]bool // backends whose Check passed
	closed bool
	tended bool // the janitor is there
	books  books

	quit chan struct{}  // closed by Close
	wg   sync.WaitGroup // everything that runs by itself
}

// New returns an Engine over backends, the preferred one first. It does no I/O.
func New(backends []backend.Backend, opt Options) *Engine {
	return &Engine{
		opt:      opt.withDefaults(),
		backends: backends,
		boxes:    map[string]*box{},
		usable:   map[string]bool{},
		books:    newBooks(),
		quit:     make(chan struct{}),
	}
}

// Get returns a sandbox as its owner sees it.
func (e *Engine) Get(ctx context.Context, id string) (api.Sandbox, error) {
	b, err := e.find(ctx, id)
	if err != nil {
		return api.Sandbox{}, err
	}
	return b.view(), nil
}

// Close ends every sandbox, waits until all are gone, and refuses new ones.
func (e *Engine) Close(ctx context.Context) error {
	e.mu.Lock()
	if !e.closed {
		close(e.quit)
	}
	e.closed = true
	var live []*box
	for _, b := range e.boxes {
		live = append(live, b)
	}
	e.mu.Unlock()

	errs := make([]error, len(live))
	var wg sync.WaitGroup
	for i, b := range live {
		wg.Go(func() { _, errs[i] = e.remove(b, system) })
	}
	wg.Wait()
	done := make(chan struct{})
	go func() { e.wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
		errs = append(errs, ctx.Err())
	}
	return errors.Join(errs...)
}

// Doctor says what this host offers.
func (e *Engine) Doctor(ctx context.Context) (api.Doctor, error) {
	host := e.opt.Host
	if host == nil {
		host = HostFacts()
	}
	d := api.Doctor{Host: host, Rungs: e.rungs(ctx), Walls: []api.Wall{}}
	for _, be := range e.backends {
		if doc, ok := be.(backend.Doctor); ok {
			w, err := doc.Walls(ctx)
			if err != nil {
				return d, hostFailure("look at the host", err)
			}
			d.Walls = append(d.Walls, w...)
		}
	}
	return d, nil
}

// Leaks lists what ended sandboxes have left on the host.
func (e *Engine) Leaks(ctx context.Context) (api.LeakList, error) {
	out := api.LeakList{Leaks: []api.Leak{}}
	for _, be := range e.backends {
		if doc, ok := be.(backend.Doctor); ok {
			l, err := doc.Leaks(ctx)
			if err != nil {
				return out, hostFailure("look for leaks", err)
			}
			out.Leaks = append(out.Leaks, l...)
		}
	}
	return out, nil
}

func (e *Engine) rungs(ctx context.Context) []api.Rung {
	rungs := make([]api.Rung, 0, len(e.backends))
	for _, be := range e.backends {
		info := be.Info()
		r := api.Rung{Name: info.Name, Boundary: info.Boundary, Available: true}
		if err := be.Check(ctx); err != nil {
			r.Available, r.Reason = false, err.Error()
			var ae *api.Error
			if errors.As(err, &ae) {
				r.Fix = ae.Hint
			}
		}
		rungs = append(rungs, r)
	}
	return rungs
}

// find is the one place that decides whose a sandbox is: an id of another
// tenant does not exist. Whoever asks keeps the sandbox from being idle.
func (e *Engine) find(ctx context.Context, id string) (*box, error) {
	b, err := e.look(ctx, id)
	if err == nil {
		b.touch()
	}
	return b, err
}

// Owner is the tenant whose a sandbox is, for whoever records that another asked
// for it; "" if there is none of that id.
func (e *Engine) Owner(id string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if b := e.boxes[id]; b != nil {
		return b.tenant
	}
	return ""
}

// look is find without a touch.
func (e *Engine) look(ctx context.Context, id string) (*box, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if b := e.boxes[id]; b != nil && CallerOf(ctx).knows(b) {
		return b, nil
	}
	return nil, &api.Error{Code: api.CodeSandboxNotFound, Message: fmt.Sprintf("sandbox %.40q does not exist", id)}
}

func hostFailure(step string, err error) error {
	var ae *api.Error
	if errors.As(err, &ae) {
		return err
	}
	return &api.Error{Code: api.CodeHostFailure, Message: step + ": " + err.Error(), Hint: "berm doctor"}
}

// ms is a duration as timings_ms shows it.
func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
