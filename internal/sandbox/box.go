package sandbox

import (
	"context"
	"maps"
	"math"
	"sync"
	"syscall"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/backend"
	"github.com/bermhq/berm/internal/guest"
	"github.com/bermhq/berm/internal/image"
)

// A box is one sandbox with its private state.
type box struct {
	id      string
	tenant  string // whose it is
	actor   string // who made it
	session string // never changes
	handle  backend.Handle
	created time.Time
	begun   bool   // its start is recorded
	seq     uint64 // the log's head when it was decided: all of its events are later
	spec    backend.Spec
	// defaults are its template's, as far as they hold for it.
	defaults  image.Defaults
	workspace string            // the tree that lies in it; "": none
	most      float64           // the most an exec may ask for if nobody chose a limit; 0: somebody did
	began     time.Time         // when this process began with it
	inst      backend.Instance  // set before the box is running, then constant
	guest     *guest.Client     // likewise
	meter     backend.Meter     // nil if the backend has none
	last      backend.Deadliner // holds the ttl; nil: nobody but this process does
	ready     chan struct{}     // closed when the guest said hello
	gone      chan struct{}     // closed when the instance has ended and left no trace
	settled   chan struct{}     // closed when the end was recorded, or could not be
	quiet     chan struct{}     // closed when it is gone and no exec is left
	kick      chan struct{}     // the times have changed
	stirred   chan struct{}     // it was used, or is idle again, and the host does not know
	taken     bool              // taken over from an engine before this one
	clock     hostClock
	lag       lag
	slots     slots
	link      *link         // its wire; nil: it has none, and never will
	ops       chan struct{} // one for each file operation under way

	life     sync.Mutex // one change of its life at a time: pause, resume, times, tags
	holding  sync.Mutex // one move of the host's deadline at a time; guards idleHeld
	idleHeld bool       // the host holds the idle deadline
	saving   sync.Mutex // one record at a time: the newest is the last
	rec      sync.Mutex // of owed
	owed     []api.Event

	mu         sync.Mutex
	public     api.Sandbox
	env        map[string]string
	state      State
	ttl, idle  time.Duration // 0: none
	persistent bool
	key        string    // see api.CreateRequest
	step       bool      // a build's: what is written in it becomes a template, see knows
	bound      bool      // a connection holds it: it ends with this engine at the latest
	touched    time.Time // the last request
	calls      int       // requests on their way that take long
	execs      int
	jobs       map[string]*job
	order      []*job // oldest first
	ending     string // set by whoever ends it first
	ender      string // whose doing that was
	stopping   time.Time
	endedAt    time.Time
	exit       backend.Exit
	caps       capSet
	usage      usage
	wake       chan struct{} // closed when it is resumed; nil: nobody waits
	looked     look
	report     *api.EndReport
	silent     error // why greet gave up
	greeting   bool  // it has begun
	unsaved    bool  // its end is not on disk
}

func newBox(id string, created time.Time) *box {
	return &box{
		id: id, created: created, began: time.Now(), touched: time.Now(), state: Creating,
		ready: make(chan struct{}), gone: make(chan struct{}), settled: make(chan struct{}), quiet: make(chan struct{}), kick: make(chan struct{}, 1), stirred: make(chan struct{}, 1),
		ops: make(chan struct{}, maxFileOps), jobs: map[string]*job{},
	}
}

// statuses are PandaStack's words for states.
var statuses = map[State]string{
	Creating: api.StatusCreating, Running: api.StatusRunning, Paused: api.StatusPaused,
	Ending: api.StatusStopping, Ended: api.StatusDeleted, Failed: api.StatusFailed,
}

// view is a copy of the public side.
func (b *box) view() api.Sandbox {
	b.mu.Lock()
	defer b.mu.Unlock()
	v := b.public
	v.State, v.Status = string(b.state), statuses[b.state]
	v.Tags, v.TimingsMS = maps.Clone(v.Tags), maps.Clone(v.TimingsMS)
	v.ID, v.Metadata = v.SandboxID, maps.Clone(v.Tags)
	v.CPU = int(math.Ceil(max(v.Limits.CPUs, 1)))
	v.MemoryMB = max(v.Limits.MemoryBytes>>20, 0)
	v.BootMS, v.BootMode = v.TimingsMS["create"], "cold"
	if boot, ok := v.TimingsMS["boot"]; ok {
		v.BootMS = boot
	}
	v.TTLSeconds, v.Persistent = b.ttl.Seconds(), b.persistent
	v.CreatedAt = stamp(b.created)
	if b.ttl > 0 {
		v.ExpiresAt = stamp(b.created.Add(b.ttl))
	}
	if !b.persistent {
		v.IdleTimeoutSeconds = b.idle.Seconds()
	}
	if b.state.final() {
		v.Ending, v.EndedAt = b.ending, stamp(b.endedAt)
	}
	return v
}

// stamp is a time as answers have it.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// move changes the state and says whether that was legal.
func (b *box) move(to State) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	s, err := b.state.next(to)
	b.state = s
	return err
}

// now is the state.
func (b *box) now() State {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state
}

// end marks why the sandbox ends. The first reason stays.
func (b *box) end(ending string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ending == "" {
		b.ending = ending
	}
	if b.stopping.IsZero() {
		b.stopping = time.Now()
	}
	if s, err := b.state.next(Ending); err == nil {
		b.state = s
	}
}

// timing notes how long a part took.
func (b *box) timing(part string, d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.public.TimingsMS[part] = ms(d)
}

// greet waits for the guest's first word. A guest that does not speak in time
// is stopped: nothing it was asked to do would ever end.
func (e *Engine) greet(b *box) {
	ctx, cancel := context.WithTimeout(context.Background(), e.opt.Boot)
	defer cancel()
	if _, err := b.guest.Hello(ctx); err != nil {
		select {
		case <-b.gone:
		default:
			e.opt.Log.Warn("guest did not answer", "sandbox_id", b.id, "error", err)
			b.mu.Lock()
			b.silent = &api.Error{Code: api.CodeGuestSilent, Message: "the sandbox started, but the agent in it did not answer: " + clip(err.Error(), 512), Hint: "try again; berm doctor"}
			b.mu.Unlock()
			e.stop(b, api.EndHostFailure)
		}
		return
	}
	if !b.taken {
		if err := e.furnish(b); err != nil {
			e.opt.Log.Warn("guest could not be furnished", "sandbox_id", b.id, "error", err)
			b.mu.Lock()
			b.silent = err
			b.mu.Unlock()
			e.stop(b, api.EndHostFailure)
			return
		}
	}
	part := "boot"
	if b.taken {
		part = "adopt"
	}
	b.timing(part, time.Since(b.began))
	close(b.ready)
}

// watch waits for the end of the instance, however it comes, and settles what
// remains: why, what it used, and that nothing is left.
func (e *Engine) watch(b *box) {
	exit, werr := b.inst.Wait(context.Background())
	ctx, cancel := context.WithTimeout(context.Background(), e.opt.StopFor)
	defer cancel()
	serr := b.inst.Stop(ctx)
	b.guest.Close()
	b.sample()

	b.mu.Lock()
	b.exit = exit
	b.ending = trueEnding(b.ending, exit, b.usage.oomKills > 0, b.usage.taskFails > 0)
	if b.ending == api.EndHostFailure && b.spec.Root && exit.Cause == "" && exit.Code == 128+int(syscall.SIGKILL) {
		b.ending = api.EndKilled // the guest's root can end its first process
	}
	if exit.Cause == causeDeadline && b.ending == api.EndTimeout && b.last != nil {
		b.ending = b.byDeadline(exit) // nothing else is held by the host
	}
	if exit.Cause == causeDisk {
		e.opt.Log.Error("a sandbox took more of the disk than its layer can: what runs guests there may be in other hands", "sandbox_id", b.id)
	}
	to := Ended
	if serr != nil || werr != nil {
		to = Failed
		e.opt.Log.Error("sandbox did not end cleanly", "sandbox_id", b.id, "wait", werr, "stop", serr)
	}
	if s, err := b.state.next(to); err == nil {
		b.state = s
	}
	b.endedAt = time.Now()
	if !b.stopping.IsZero() {
		b.public.TimingsMS["teardown"] = ms(time.Since(b.stopping))
	}
	if b.execs == 0 {
		close(b.quiet)
	}
	b.mu.Unlock()
	close(b.gone)
	e.bury(b)
}

// backend.Exit's words for it.
const (
	causeDeadline = "deadline"
	causeOwner    = "owner"
	causeDisk     = "disk"
)

// trueEnding is why a sandbox ended: what the host saw of it, where that is a
// wall; else what it was marked with by whoever stopped it, "" for nobody.
func trueEnding(marked string, x backend.Exit, oom, tasks bool) string {
	switch {
	case x.Cause == api.CapMemory || x.Cause == "" && oom:
		return api.EndMemory
	case x.Cause == api.CapProcesses || x.Cause == "" && tasks:
		return api.EndProcesses
	case marked != "":
		return marked
	case x.Cause == causeDeadline:
		return api.EndTimeout
	case x.Cause == "stopped":
		return api.EndKilled
	}
	return api.EndHostFailure
}

// isGone waits a little for the host's word that b has ended, where its guest
// fell silent.
func (e *Engine) isGone(b *box) bool {
	within := e.opt.Settle
	switch {
	case b.guest.Err() == nil:
		within = 0 // it is only slow
	case b.now() == Ending:
		within = e.opt.StopFor
	}
	select {
	case <-b.gone:
		return true
	default:
	}
	select {
	case <-b.gone:
		return true
	case <-time.After(within):
		return false
	}
}

// endedBy is the ending of a sandbox that is gone.
func (b *box) endedBy() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ending
}

// stop ends the instance for a reason and returns when it is gone, or when
// stopping took too long.
func (e *Engine) stop(b *box, ending string) error {
	b.end(ending)
	ctx, cancel := context.WithTimeout(context.Background(), e.opt.StopFor)
	defer cancel()
	err := b.inst.Stop(ctx)
	select {
	case <-b.gone:
		return err
	case <-ctx.Done():
		if err == nil {
			err = ctx.Err()
		}
		return hostFailure("stop sandbox", err)
	}
}
