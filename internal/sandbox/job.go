package sandbox

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/bermhq/berm/api"
)

// A job is what is known of one exec, from its decision until newer ones push
// it out.
type job struct {
	hash    string
	kept    bool          // its output is kept inside, and it does not need its caller
	decided chan struct{} // closed when its start is on disk, or was refused
	asked   chan struct{} // closed when the guest was asked for it; nil: it was
	done    chan struct{} // closed when its result is there
	kill    context.CancelFunc
	killed  context.Context // over when somebody wants it ended
	began   time.Time

	// Under box.mu.
	info    api.Exec
	err     error // it was refused: nothing was executed
	waiting int   // callers that it belongs to, if it belongs to any
	timer   *time.Timer
}

func newJob(p plan, b *box, actor string, kept, detached bool) *job {
	j := &job{hash: p.hash, kept: kept, began: time.Now(), decided: make(chan struct{}), done: make(chan struct{})}
	j.killed, j.kill = context.WithCancel(context.Background())
	j.info = api.Exec{
		ExecID: p.start.ID, SandboxID: b.id, Args: p.args, Dir: p.start.Dir, User: api.GuestUser, Actor: actor,
		State: api.ExecRunning, Detached: detached, Kept: kept, TTY: p.start.TTY, TimeoutSeconds: p.secs, StartedAt: stamp(time.Now()),
	}
	return j
}

// begin decides an exec and puts that on disk; the guest knows nothing yet. An
// id that is known is that exec again, and fresh is false.
func (e *Engine) begin(ctx context.Context, b *box, p plan, kept, detached bool) (j *job, fresh bool, err error) {
	actor := CallerOf(ctx).Actor
	b.mu.Lock()
	if j := b.jobs[p.start.ID]; j != nil {
		b.mu.Unlock()
		return b.again(ctx, j, p)
	}
	if err := b.enter(); err != nil {
		b.mu.Unlock()
		return nil, false, err
	}
	j = newJob(p, b, actor, kept, detached)
	j.asked = make(chan struct{})
	b.remember(j)
	b.mu.Unlock()
	e.holdBusy(ctx, b)

	data := execStartedData{
		ExecID: p.start.ID, Args: p.args, Dir: p.start.Dir, User: api.GuestUser, Env: p.envs, TimeoutSeconds: p.secs,
		Detached: detached, Kept: kept, TTY: p.start.TTY, Request: p.hash,
	}
	if !slices.Equal(p.args, p.start.Args) {
		data.ArgsSHA256 = argsHash(p.start.Args)
	}
	err = e.decided(ctx, b, b.event(actor, api.EventExecStarted, data))
	if err == nil {
		close(j.decided)
		e.mu.Lock()
		e.books.execs++
		e.mu.Unlock()
		return j, true, nil
	}
	if ctx.Err() != nil { // the caller left; the event may be on disk
		e.happened(b, b.event(actor, api.EventExecEnded, execEndedData{ExecResult: api.ExecResult{
			ExecID: p.start.ID, ExitCode: 137, Ending: api.EndKilled, CapsHit: []string{}, TimingsMS: map[string]float64{},
			NotStarted: "its caller left before it was started",
		}}))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	j.err = err
	delete(b.jobs, p.start.ID)
	b.order = slices.DeleteFunc(b.order, func(o *job) bool { return o == j })
	b.left()
	close(j.decided)
	close(j.done)
	return nil, false, err
}

// again answers a request whose exec is known.
func (b *box) again(ctx context.Context, j *job, p plan) (*job, bool, error) {
	if j.hash != p.hash {
		return nil, false, &api.Error{Code: api.CodeExecConflict, Message: fmt.Sprintf("exec_id %s was used for another request", p.start.ID), Hint: "use a new exec_id for a new command"}
	}
	select {
	case <-j.decided:
	case <-ctx.Done():
		return nil, false, ctx.Err()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return j, false, j.err
}

// reach waits until the guest can know j: what it is asked before is answered as
// if there were no such exec.
func (j *job) reach(ctx context.Context) error {
	if j.asked == nil {
		return nil
	}
	select {
	case <-j.asked:
	case <-j.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// enter and left count the running execs of a sandbox; b.mu is held.
func (b *box) enter() error {
	switch b.state {
	case Running:
	case Paused:
		return &api.Error{Code: api.CodeSandboxPaused, Message: fmt.Sprintf("sandbox %s is paused", b.id), Hint: "resume it: berm resume " + b.id}
	default:
		return b.over()
	}
	if b.execs >= maxExecs {
		return &api.Error{Code: api.CodeRate, Message: fmt.Sprintf("sandbox %s already runs %d commands", b.id, maxExecs), Hint: "wait for one to end", RetryAfter: retryRather}
	}
	b.execs++
	b.stir()
	return nil
}

func (b *box) left() {
	b.execs--
	b.touched = time.Now()
	b.stir()
	if b.execs == 0 && b.state.final() {
		close(b.quiet)
	}
}

// remember keeps j, and of the ended ones the newest; b.mu is held.
func (b *box) remember(j *job) {
	b.jobs[j.info.ExecID] = j
	b.order = append(b.order, j)
	for i := 0; len(b.order) > maxJobs && i < len(b.order); {
		if o := b.order[i]; o.info.State == api.ExecEnded {
			delete(b.jobs, o.info.ExecID)
			b.order = slices.Delete(b.order, i, i+1)
		} else {
			i++
		}
	}
}

// finished records how an exec ended, and then lets it be known. The error says
// that this could not be recorded.
func (e *Engine) finished(b *box, j *job, res api.ExecResult, output int64) error {
	b.mu.Lock()
	actor := j.info.Actor
	b.mu.Unlock()
	err := e.happened(b, b.event(actor, api.EventExecEnded, execEndedData{res, output}))
	b.settle(j, res, output)
	if err != nil {
		return &api.Error{Code: api.CodeAuditFailed, Message: fmt.Sprintf("exec %s ended (%s), and that could not be recorded: %v", res.ExecID, res.Ending, err), Hint: "see the daemon's log; GET the exec for its result"}
	}
	return nil
}

// settle makes the result of j known.
func (b *box) settle(j *job, res api.ExecResult, output int64) {
	j.kill()
	b.mu.Lock()
	defer b.mu.Unlock()
	j.info.Result, j.info.State, j.info.OutputBytes = &res, api.ExecEnded, output
	if j.timer != nil {
		j.timer.Stop()
	}
	b.left()
	close(j.done)
}

// joined counts a caller to whom j belongs; without any it ends after comeback.
func (b *box) joined(j *job, comeback time.Duration) (leave func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if j.info.Detached || j.info.State == api.ExecEnded {
		return func() {}
	}
	j.waiting++
	if j.timer != nil {
		j.timer.Stop()
	}
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		j.waiting--
		b.orphan(j, comeback)
	}
}

// orphan ends j after comeback, unless a caller comes back; b.mu is held.
func (b *box) orphan(j *job, comeback time.Duration) {
	if j.waiting > 0 || j.info.State == api.ExecEnded {
		return
	}
	j.timer = time.AfterFunc(comeback, func() {
		b.mu.Lock()
		alone := j.waiting == 0
		b.mu.Unlock()
		if alone {
			j.kill()
		}
	})
}

// view is a copy of what is known of j.
func (b *box) exec(j *job) api.Exec {
	b.mu.Lock()
	defer b.mu.Unlock()
	return j.info
}

// job finds one exec of b.
func (b *box) job(id string) (*job, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if j := b.jobs[id]; j != nil {
		return j, nil
	}
	return nil, &api.Error{Code: api.CodeExecNotFound, Message: fmt.Sprintf("exec %.40q is not known in sandbox %s", id, b.id), Hint: fmt.Sprintf("the newest %d are remembered", maxJobs)}
}
