package sandbox

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/backend"
	"github.com/bermhq/berm/internal/guest"
	"github.com/bermhq/berm/internal/policy"
)

// DeadlineSlack is what a run may take beside its exec: boot, copies in and
// out. The engine's own timers are exact; this is the host's last word if the
// engine dies.
const DeadlineSlack = 10 * time.Minute

// Create makes a sandbox: decide, start, and answer as soon as the instance
// runs. The guest may still be coming up then; what is asked of it waits in
// its stream.
func (e *Engine) Create(ctx context.Context, req api.CreateRequest) (api.Sandbox, error) {
	began := time.Now()
	limits, verdict := policy.Limits(req.Limits)
	if err := verdict.Err(); err != nil {
		return api.Sandbox{}, err
	}
	if err := policy.Tags(req.Tags).Err(); err != nil {
		return api.Sandbox{}, err
	}
	if req.RunID != "" && !api.ValidID(req.RunID) {
		return api.Sandbox{}, &api.Error{Code: api.CodeBadRequest, Message: fmt.Sprintf("run_id %.60q is not an id", req.RunID)}
	}
	if req.Template == "" {
		req.Template = "host"
	}
	if !validName(req.Template) {
		return api.Sandbox{}, &api.Error{Code: api.CodeTemplateNotFound, Message: fmt.Sprintf("template %.60q is not a name", req.Template)}
	}
	image, err := e.opt.Images(req.Template)
	if err != nil {
		return api.Sandbox{}, err
	}
	be, err := e.pick(ctx, req.Isolation)
	if err != nil {
		return api.Sandbox{}, err
	}

	info := be.Info()
	b := &box{
		id:     api.NewID(api.KindSandbox),
		tenant: CallerOf(ctx).Tenant,
		actor:  CallerOf(ctx).Actor,
		began:  began,
		ready:  make(chan struct{}),
		gone:   make(chan struct{}),
		state:  Creating,
	}
	b.spec = backend.Spec{ID: b.id, Image: image, Hostname: "berm", Limits: limits}
	if req.RunID != "" && limits.TimeoutSeconds != api.Unlimited {
		b.spec.Deadline = began.Add(seconds(limits.TimeoutSeconds) + DeadlineSlack)
	}
	weak := []string{}
	if w, ok := be.(backend.Weakened); ok {
		if weak, err = w.HostFacts(ctx, limits); err != nil {
			return api.Sandbox{}, hostFailure("look at the host", err)
		}
	}
	b.public = api.Sandbox{
		SandboxID: b.id, RunID: req.RunID, Tenant: b.tenant, Template: req.Template,
		Isolation: info.Name, Boundary: info.Boundary, HostFactsWeakening: weak,
		Limits: limits, Tags: map[string]string{}, TimingsMS: map[string]float64{},
	}
	maps.Copy(b.public.Tags, req.Tags)
	if err := e.start(ctx, be, b); err != nil {
		return api.Sandbox{}, err
	}
	return b.view(), nil
}

// start brings b to life on be, or leaves no trace.
func (e *Engine) start(ctx context.Context, be backend.Backend, b *box) error {
	inst, err := be.Start(ctx, b.spec)
	if err != nil {
		return hostFailure("start sandbox", err)
	}
	conn, err := inst.Agent(ctx)
	if err == nil {
		b.inst, b.guest = inst, guest.New(conn, guest.Options{})
		b.meter, _ = inst.(backend.Meter)
		b.clock.set, _ = inst.(backend.Deadliner)
		if t, ok := inst.(backend.Timed); ok {
			maps.Copy(b.public.TimingsMS, t.Timings())
		}
		b.timing("create", time.Since(b.began))
		err = e.admit(ctx, b)
	}
	if err != nil {
		stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.opt.StopFor)
		defer cancel()
		inst.Stop(stopCtx)
		if b.guest != nil {
			b.guest.Close()
		}
		return hostFailure("start sandbox", err)
	}
	go e.watch(b)
	go e.greet(b)
	return nil
}

// admit makes b known, unless nobody would ever end it: the caller left, or
// the engine is closing.
func (e *Engine) admit(ctx context.Context, b *box) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return &api.Error{Code: api.CodeHostFailure, Message: "the engine is closing"}
	}
	if err := b.move(Running); err != nil {
		return err
	}
	e.boxes[b.id] = b
	e.wg.Add(2) // watch and greet
	return nil
}

// pick chooses the backend for an isolation kind. auto takes the first usable
// one and never one weaker than a user-space kernel.
func (e *Engine) pick(ctx context.Context, isolation string) (backend.Backend, error) {
	var refusal error
	for _, be := range e.backends {
		info := be.Info()
		if isolation == "" || isolation == api.IsolationAuto {
			if info.Boundary != api.BoundaryUserKernel {
				continue
			}
		} else if info.Name != isolation {
			continue
		}
		err := e.check(ctx, be)
		if err == nil {
			return be, nil
		}
		if refusal == nil {
			refusal = err
		}
	}
	if refusal != nil {
		return nil, refusal
	}
	if isolation == "" || isolation == api.IsolationAuto {
		return nil, &api.Error{Code: api.CodeRungUnavailable, Message: "isolation auto: this host offers no isolation as strong as a user-space kernel", Hint: "berm doctor"}
	}
	var names []string
	for _, r := range e.rungs(ctx) {
		if r.Available {
			names = append(names, r.Name)
		}
	}
	return nil, &api.Error{
		Code:    api.CodeUnknownIsolation,
		Message: fmt.Sprintf("isolation %.40q is not known; this host offers: auto, %s", isolation, strings.Join(names, ", ")),
		Hint:    "berm run --isolation auto",
	}
}

// check asks a backend once; a refusal is asked again, the host may have changed.
func (e *Engine) check(ctx context.Context, be backend.Backend) error {
	name := be.Info().Name
	e.mu.Lock()
	ok := e.usable[name]
	e.mu.Unlock()
	if ok {
		return nil
	}
	if err := be.Check(ctx); err != nil {
		if ae, ok := err.(*api.Error); ok {
			return ae
		}
		return &api.Error{Code: api.CodeRungUnavailable, Message: "isolation " + name + ": " + err.Error(), Hint: "berm doctor"}
	}
	e.mu.Lock()
	e.usable[name] = true
	e.mu.Unlock()
	return nil
}

// validName is what a template may be called: no path, nothing hidden.
func validName(s string) bool {
	if s == "" || len(s) > 128 || s[0] == '.' {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '.' && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
