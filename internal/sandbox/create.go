package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/backend"
	"github.com/bermhq/berm/internal/guest"
	"github.com/bermhq/berm/internal/image"
)

// DeadlineSlack is what a run may take beside its exec: boot, copies in and
// out. The engine's own timers are exact; this is the host's last word if the
// engine dies.
const DeadlineSlack = 10 * time.Minute

// hostname is every guest's.
const hostname = "berm"

// Create makes a sandbox: decide, record, start. Without a journal it answers
// as soon as the instance runs: the guest may still be coming up then, and what
// is asked of it waits in its stream. With one it answers when the guest has
// said hello. Either way an error means that nothing is left.
func (e *Engine) Create(ctx context.Context, req api.CreateRequest) (api.Sandbox, error) {
	return e.create(ctx, req, nil)
}

// create is Create, on a given root if there is one.
func (e *Engine) create(ctx context.Context, req api.CreateRequest, on *image.Root) (api.Sandbox, error) {
	caller := CallerOf(ctx)
	w, err := e.decide(caller, req, on)
	if err != nil {
		return api.Sandbox{}, err
	}
	be, err := e.pick(ctx, w.req.Isolation, w.req.MinIsolation)
	if err != nil {
		return api.Sandbox{}, err
	}
	b, err := e.draft(ctx, caller, w, be, req.Template)
	if err != nil {
		return api.Sandbox{}, err
	}
	b.step = on != nil
	if err := e.reserve(b); err != nil {
		return api.Sandbox{}, err
	}
	if err := e.announce(ctx, caller, b); err != nil {
		e.release(b, "")
		return api.Sandbox{}, err
	}
	if err := e.start(ctx, be, b); err != nil {
		e.release(b, "")
		e.neverStarted(b, system, err)
		return api.Sandbox{}, err
	}
	if err := e.welcome(ctx, b, caller.Actor); err != nil {
		return api.Sandbox{}, err
	}
	e.mu.Lock()
	e.books.creates++
	e.mu.Unlock()
	return b.view(), nil
}

// draft is the box of what was decided.
func (e *Engine) draft(ctx context.Context, caller Caller, w wanted, be backend.Backend, asked string) (*box, error) {
	info, req := be.Info(), w.req
	b := newBox(api.NewID(api.KindSandbox), time.Now())
	b.tenant, b.actor, b.session, b.key = caller.Tenant, caller.Actor, w.session, req.Key
	b.handle = backend.Handle{Backend: info.Name, ID: b.id}
	b.workspace = req.Workspace
	b.env, b.ttl, b.idle, b.persistent, b.bound, b.most = req.Env, w.ttl, w.idle, w.persistent, req.Bound, w.execMost
	b.link, b.defaults = w.link.newLink(req.Learn, defaultPerson(w.image.Defaults)), w.image.Defaults
	b.spec = backend.Spec{ID: b.id, Image: w.image.Layers[0], Upper: w.image.Layers[1:], Track: w.req.Track, Root: w.image.Defaults.Root, Hostname: hostname, Limits: req.Limits, Bound: req.Bound, Link: b.link != nil}
	switch {
	case e.opt.Journal != nil:
		b.spec.Deadline, b.spec.Extend = b.created.Add(b.ttl+ttlSlack), true
	case req.RunID != "" && req.Limits.TimeoutSeconds != api.Unlimited:
		b.spec.Deadline = b.created.Add(seconds(req.Limits.TimeoutSeconds) + DeadlineSlack)
	}
	weak := []string{}
	if wb, ok := be.(backend.Weakened); ok {
		var err error
		if weak, err = wb.HostFacts(ctx, req.Limits); err != nil {
			return nil, hostFailure("look at the host", err)
		}
	}
	b.public = api.Sandbox{
		SandboxID: b.id, RunID: req.RunID, Tenant: b.tenant, Session: b.session,
		Template: cmp.Or(asked, w.resolved), TemplateResolved: w.resolved,
		Isolation: info.Name, Boundary: info.Boundary, HostFactsWeakening: weak,
		Limits: req.Limits, Tags: w.tags, TimingsMS: map[string]float64{},
	}
	if w.link != nil {
		b.public.Egress = w.link.raw
	}
	return b, nil
}

// announce puts the decision on disk: the record, so that whatever is started
// is known to the next engine, then the event.
func (e *Engine) announce(ctx context.Context, caller Caller, b *box) error {
	if e.opt.Journal == nil {
		return nil
	}
	b.seq = e.opt.Journal.Head()
	if err := e.save(b); err != nil {
		e.opt.Journal.Drop(b.id) // it may be there in spite of that
		return err
	}
	p := b.public
	ev := b.event(caller.Actor, api.EventSandboxCreated, createdData{
		Template: p.Template, TemplateResolved: p.TemplateResolved, Isolation: p.Isolation, Boundary: p.Boundary, Limits: p.Limits,
		TTLSeconds: b.ttl.Seconds(), IdleTimeoutSeconds: b.idle.Seconds(), Persistent: b.persistent,
		Env: slices.Sorted(maps.Keys(b.env)), Egress: p.Egress, Learn: b.link != nil && b.link.learn,
		Workspace: b.workspace, Track: b.spec.Track, Root: b.spec.Root,
	})
	err := e.decided(ctx, b, ev)
	if err == nil {
		return nil
	}
	if ctx.Err() != nil { // the caller left; the event may be on disk
		e.neverStarted(b, caller.Actor, err)
		return err
	}
	e.opt.Journal.Drop(b.id)
	return err
}

// neverStarted records that what was decided did not come to be. Should even
// that fail, the record stays, and the next engine says it.
func (e *Engine) neverStarted(b *box, actor string, why error) {
	if e.opt.Journal == nil {
		return
	}
	ending := api.EndHostFailure
	if errors.Is(why, context.Canceled) || errors.Is(why, context.DeadlineExceeded) {
		ending = api.EndKilled // its caller left
	}
	ev := b.event(actor, api.EventSandboxEnded, endedData{Ending: ending, CapsHit: []string{}, NeverStarted: true, Reason: clip(why.Error(), 512)})
	if e.happened(b, ev) == nil {
		e.opt.Journal.Drop(b.id)
	}
}

// start brings b to life on be, or leaves no trace.
func (e *Engine) start(ctx context.Context, be backend.Backend, b *box) error {
	if err := e.wire(b); err != nil {
		return err
	}
	inst, err := be.Start(ctx, b.spec)
	if err != nil {
		e.unwire(b)
		return hostFailure("start sandbox", err)
	}
	if err = e.connect(ctx, b, inst); err == nil {
		if t, ok := inst.(backend.Timed); ok {
			maps.Copy(b.public.TimingsMS, t.Timings())
		}
		b.timing("create", time.Since(b.began))
		err = e.admit(ctx, b, Running)
	}
	if err != nil {
		stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.opt.StopFor)
		defer cancel()
		inst.Stop(stopCtx)
		e.unwire(b)
		if b.guest != nil {
			b.guest.Close()
		}
		e.forgotten(b.handle)
		return hostFailure("start sandbox", err)
	}
	return nil
}

// maxStreams bounds the calls to one guest, and with them what it can have
// waiting in here. It has room for all slots and for the small calls beside.
const maxStreams = 160

// connect gives b its instance and the stream to its guest.
func (e *Engine) connect(ctx context.Context, b *box, inst backend.Instance) error {
	conn, err := inst.Agent(ctx)
	if err != nil {
		return err
	}
	b.inst, b.guest = inst, guest.New(conn, guest.Options{MaxStreams: maxStreams})
	b.meter, _ = inst.(backend.Meter)
	d, _ := inst.(backend.Deadliner)
	if e.opt.Journal != nil {
		b.last = d // one exec's time never ends a sandbox that others use
	} else {
		b.clock.set = d
	}
	return nil
}

// admit makes b known, unless nobody would ever end it: the caller left, or
// the engine is closing.
func (e *Engine) admit(ctx context.Context, b *box, as State) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return &api.Error{Code: api.CodeShuttingDown, Message: "the engine is closing"}
	}
	if err := b.move(as); err != nil {
		return err
	}
	e.boxes[b.id] = b
	e.tend()
	e.wg.Go(func() { e.watch(b) })
	b.stir()
	e.wg.Go(func() { e.mind(b) })
	if as == Running {
		e.greets(b)
	}
	return nil
}

// greets begins to wait for the guest's first word, once: a sandbox that was
// paused when it was taken over says it when it is resumed.
func (e *Engine) greets(b *box) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.greeting {
		b.greeting = true
		e.wg.Go(func() { e.greet(b) })
	}
}

// tend starts the janitor; e.mu is held.
func (e *Engine) tend() {
	if e.opt.Journal != nil && !e.tended && !e.closed {
		e.tended = true
		e.wg.Go(e.janitor)
	}
}

// welcome waits, under a journal or where files must be in the guest first, for
// the guest's first word and records that the sandbox runs. Until then its id is nobody's: without an answer it ends.
func (e *Engine) welcome(ctx context.Context, b *box, actor string) error {
	names, _ := b.presetFiles()
	if dir, own := b.unlike(); e.opt.Journal == nil && len(names) == 0 && dir == "" && !own {
		return nil
	}
	err := b.up(ctx) // bounded by greet
	if err == nil && e.opt.Journal != nil {
		b.mu.Lock()
		timings := maps.Clone(b.public.TimingsMS)
		b.mu.Unlock()
		err = e.decided(ctx, b, b.event(actor, api.EventSandboxStarted, startedData{TimingsMS: timings}))
	}
	if err == nil && e.opt.Journal != nil { // the event can be older one day than what the log keeps
		b.mu.Lock()
		b.begun = true
		b.mu.Unlock()
		err = e.save(b)
	}
	if err == nil {
		return nil
	}
	ending := api.EndHostFailure
	if ctx.Err() != nil {
		ending = api.EndKilled
	}
	if serr := e.stop(b, ending); serr != nil {
		e.opt.Log.Error("sandbox nobody waits for would not end", "sandbox_id", b.id, "error", serr)
	} else {
		<-b.settled // bounded by Settle and Record
	}
	b.mu.Lock()
	silent := b.silent
	b.mu.Unlock()
	if silent != nil {
		return silent
	}
	return err
}

// pick chooses the backend for an isolation kind. auto takes the first usable
// one and never one weaker than a user-space kernel.
func (e *Engine) pick(ctx context.Context, isolation, floor string) (backend.Backend, error) {
	if floor != "" && floor != api.IsolationGVisor {
		return nil, &api.Error{
			Code:    api.CodeRungUnavailable,
			Message: "min_isolation " + floor + ": the strongest isolation of this build is gvisor (boundary user-kernel)",
			Hint:    "min_isolation gvisor; berm doctor says what this host offers",
		}
	}
	var refusal error
	for _, be := range e.backends {
		info := be.Info()
		if isolation == "" || isolation == api.IsolationAuto || floor != "" {
			if info.Boundary != api.BoundaryUserKernel {
				continue
			}
		}
		if isolation != "" && isolation != api.IsolationAuto && info.Name != isolation {
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
	if s == "" || len(s) > 128 || strings.ContainsRune("./:@-", rune(s[0])) || strings.HasPrefix(s, api.TreePrefix) {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("._-/:@", rune(c)) {
			return false
		}
	}
	return true
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
