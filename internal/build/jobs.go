package build

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/sandbox"
)

// Builds makes templates, a few at a time, and remembers for a while how it went.
// It is safe for concurrent use.
type Builds struct {
	opt Options

	mu      sync.Mutex
	jobs    []*job // oldest first
	queue   []*job // of them, those that have not begun
	running int
	closed  bool
	wg      sync.WaitGroup
}

// A job is one build.
type job struct {
	id     string
	tenant string
	actor  string
	req    api.BuildRequest
	plan   plan
	files  *files // nil: none
	rootfs io.ReadSeeker
	close  func() // of what came with the request
	log    *logbook
	cancel context.CancelCauseFunc
	turn   chan struct{} // closed when it may begin
	done   chan struct{}

	mu    sync.Mutex
	build api.Build
	ended time.Time
}

// New returns Builds that do nothing yet. What an earlier process began and did
// not end is failed from the start.
func New(opt Options) *Builds {
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	if opt.Spool == nil {
		opt.Spool = spool
	}
	opt.AtOnce = cmp.Or(opt.AtOnce, 2)
	opt.Keep = cmp.Or(opt.Keep, 100)
	opt.For = cmp.Or(opt.For, time.Hour)
	b := &Builds{opt: opt}
	b.interrupted()
	return b
}

// A saved build is one that was not over.
type saved struct {
	Build  api.Build `json:"build"`
	Tenant string    `json:"tenant"`
	Actor  string    `json:"actor"`
}

// interrupted takes over what the records hold: builds that died with their
// daemon. Their sandboxes were bound to it, and what they had made without a
// name is a step that another build may use.
func (b *Builds) interrupted() {
	if b.opt.Records == nil {
		return
	}
	err := b.opt.Records.Each(func(key string, raw json.RawMessage) error {
		var s saved
		if json.Unmarshal(raw, &s) == nil && s.Build.ID == key {
			j := &job{id: key, tenant: s.Tenant, actor: s.Actor, log: newLogbook(), cancel: func(error) {}, done: make(chan struct{}), build: s.Build, close: func() {}}
			j.log.add("The daemon was stopped in the middle of this build.")
			b.jobs = append(b.jobs, j)
		}
		return nil
	})
	if err != nil {
		b.opt.Log.Error("builds of an earlier daemon cannot be read", "error", err)
	}
	for _, j := range b.jobs {
		b.end(sandbox.As(context.Background(), sandbox.Caller{Tenant: j.tenant, Actor: "system"}), j, api.Template{},
			&api.Error{Code: api.CodeBuildFailed, Message: "the daemon was stopped in the middle of it", Hint: "build it again: the steps that were done are kept"})
	}
}

// Start checks a request, reads what came with it, and starts the build. ctx is
// its caller's, and the build goes on after it.
func (b *Builds) Start(ctx context.Context, req api.BuildRequest, in Input) (api.Build, error) {
	caller := sandbox.CallerOf(ctx)
	p, err := b.check(ctx, &req, in)
	if err != nil {
		return api.Build{}, err
	}
	j := &job{id: api.NewID(api.KindBuild), tenant: caller.Tenant, actor: caller.Actor, req: req, plan: p, log: newLogbook(), turn: make(chan struct{}), done: make(chan struct{}), close: func() {}}
	if err := b.take(j, in); err != nil {
		return api.Build{}, err
	}
	j.build = api.Build{ID: j.id, Name: req.Name, Status: api.BuildQueued, StartedAt: now(), CPU: api.DefaultCPUs, MemoryMB: api.DefaultMemoryBytes >> 20, TenantName: caller.Tenant}
	run, cancel := context.WithCancelCause(sandbox.As(context.WithoutCancel(ctx), caller))
	j.cancel = cancel

	b.mu.Lock()
	b.forget()
	switch waiting := len(b.queue); {
	case b.closed:
		err = &api.Error{Code: api.CodeShuttingDown, Message: "no build is begun any more"}
	case waiting >= maxQueued:
		err = &api.Error{Code: api.CodeRate, Message: fmt.Sprintf("%d builds are waiting already", waiting), Hint: "wait for one to end: berm template builds", RetryAfter: 10}
	default:
		b.jobs, b.queue = append(b.jobs, j), append(b.queue, j)
		b.wg.Add(1)
	}
	b.mu.Unlock()
	if err == nil {
		if err = b.begun(ctx, j); err != nil {
			b.mu.Lock()
			b.jobs = slices.DeleteFunc(b.jobs, func(o *job) bool { return o == j })
			b.mu.Unlock()
			b.leave(j)
			b.wg.Done()
		}
	}
	if err != nil {
		cancel(err)
		j.close()
		return api.Build{}, err
	}
	v := j.view()
	go b.run(run, j)
	b.pass()
	return v, nil
}

// take reads what came with a request into files without names.
func (b *Builds) take(j *job, in Input) (err error) {
	hold := func() (f interface {
		io.ReadWriteSeeker
		io.Closer
	}, err error) {
		return b.opt.Spool()
	}
	if in.Context != nil {
		f, err := b.opt.Spool()
		if err != nil {
			return fmt.Errorf("keep the context: %w", err)
		}
		j.close = func() { f.Close() }
		if j.files, err = readFiles(in.Context, f); err != nil {
			f.Close()
			return err
		}
	}
	if in.Rootfs != nil {
		f, err := hold()
		if err != nil {
			return fmt.Errorf("keep the archive: %w", err)
		}
		before := j.close
		j.close = func() { before(); f.Close() }
		n, err := io.Copy(f, io.LimitReader(in.Rootfs, maxRootfs+1))
		if err == nil && n > maxRootfs {
			err = &api.Error{Code: api.CodeTooLarge, Message: fmt.Sprintf("the archive has more than %d bytes", int64(maxRootfs)), Hint: api.Hint(api.CodeTooLarge)}
		}
		if err == nil {
			_, err = f.Seek(0, io.SeekStart)
		}
		if err != nil {
			j.close()
			return err
		}
		j.rootfs = f
	}
	return nil
}

// maxRootfs bounds an archive that is imported.
const maxRootfs = 16 << 30

// begun puts the decision on disk, before anything follows from it.
func (b *Builds) begun(ctx context.Context, j *job) error {
	if b.opt.Records != nil {
		if err := b.opt.Records.Put(j.id, saved{j.view(), j.tenant, j.actor}); err != nil {
			return fmt.Errorf("record the build: %w", err)
		}
	}
	if err := b.tell(ctx, j, EventBuildStarted, map[string]any{"build_id": j.id, "template": j.req.Name, "source": j.plan.source}); err != nil {
		if b.opt.Records != nil {
			b.opt.Records.Delete(j.id)
		}
		return err
	}
	return nil
}

// Types of the events that builds leave in the audit log.
const (
	EventBuildStarted = "template.build-started" // decided; nothing was done yet
	EventBuildFailed  = "template.build-failed"
	EventBuilt        = "template.built"
	EventPulled       = "template.pulled"
)

func (b *Builds) tell(ctx context.Context, j *job, kind string, data map[string]any) error {
	if b.opt.Event == nil {
		return nil
	}
	raw, err := json.Marshal(data)
	if err != nil {
		return err
	}
	return b.opt.Event(ctx, api.Event{Type: kind, Tenant: j.tenant, Actor: j.actor, Data: raw})
}

// run waits for its turn, builds, and sees to the end.
func (b *Builds) run(ctx context.Context, j *job) {
	defer b.wg.Done()
	defer j.cancel(nil)
	var made api.Template
	var err error
	select {
	case <-j.turn:
		j.set(func(v *api.Build) { v.Status = api.BuildRunning })
		made, err = b.perform(ctx, j)
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	b.leave(j)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	j.close()
	b.end(ctx, j, made, err)
}

// perform is the build, with a panic of its own as an error: the daemon holds
// what others are doing.
func (b *Builds) perform(ctx context.Context, j *job) (made api.Template, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &api.Error{Code: api.CodeHostFailure, Message: fmt.Sprintf("build: %v", p), Hint: "this is a mistake in Berm; please report it"}
			b.opt.Log.Error("a build panicked", "build", j.id, "panic", p)
		}
	}()
	return b.make(ctx, j)
}

// end says how a build went, in its log, in the audit log, and to whoever asks.
func (b *Builds) end(ctx context.Context, j *job, made api.Template, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	data := map[string]any{"build_id": j.id, "template": j.build.Name, "source": j.plan.source}
	kind := EventBuilt
	switch {
	case err != nil:
		kind, data["reason"] = EventBuildFailed, harmless(err.Error())
	case j.req.ImageRef != "":
		kind = EventPulled
	}
	if made.Digest != "" {
		data["digest"] = made.Digest
	}
	if terr := b.tell(ctx, j, kind, data); terr != nil {
		b.opt.Log.Error("the end of a build is not in the audit log", "build", j.id, "error", terr)
	}
	if b.opt.Records != nil {
		if derr := b.opt.Records.Delete(j.id); derr != nil {
			b.opt.Log.Error("the record of a build stays", "build", j.id, "error", derr)
		}
	}
	j.set(func(v *api.Build) {
		v.EndedAt, v.Progress = now(), nil
		if err == nil {
			v.Status, v.Template, v.Bytes, v.SizeMB = api.BuildDone, &made, made.SizeBytes, (made.SizeBytes+1<<20-1)>>20
			return
		}
		v.Status, v.Error, v.Code = api.BuildFailed, err.Error(), api.CodeBuildFailed
		var ae *api.Error
		if errors.As(err, &ae) {
			v.Code, v.Hint = ae.Code, cmp.Or(ae.Hint, api.Hint(ae.Code))
		}
	})
	if err != nil {
		j.log.add("failed: " + err.Error())
	}
	j.mu.Lock()
	j.ended = time.Now()
	j.mu.Unlock()
	j.log.close()
	close(j.done)
}

func now() string { return time.Now().UTC().Format(time.RFC3339) }

func (j *job) set(f func(*api.Build)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	f(&j.build)
}

func (j *job) view() api.Build {
	j.mu.Lock()
	defer j.mu.Unlock()
	v := j.build
	if v.Progress != nil {
		p := *v.Progress
		v.Progress = &p
	}
	return v
}

// progress is told how far the work is.
func (j *job) progress(p api.TemplateProgress) {
	j.set(func(v *api.Build) { v.Progress = &p })
}

func (j *job) over() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return !j.ended.IsZero()
}

// pass lets those begin that come first, as many as may run.
func (b *Builds) pass() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.running < b.opt.AtOnce && len(b.queue) > 0 {
		close(b.queue[0].turn)
		b.queue = b.queue[1:]
		b.running++
	}
}

// leave gives a turn back, or a place in the queue.
func (b *Builds) leave(j *job) {
	b.mu.Lock()
	if i := slices.Index(b.queue, j); i >= 0 {
		b.queue = slices.Delete(b.queue, i, i+1)
	} else {
		b.running--
	}
	b.mu.Unlock()
	b.pass()
}

// forget drops what was over long ago; b.mu is held.
func (b *Builds) forget() {
	over := 0
	for _, j := range b.jobs {
		if j.over() {
			over++
		}
	}
	b.jobs = slices.DeleteFunc(b.jobs, func(j *job) bool {
		j.mu.Lock()
		old := !j.ended.IsZero() && (over > b.opt.Keep || time.Since(j.ended) > b.opt.For)
		j.mu.Unlock()
		if old {
			over--
		}
		return old
	})
}

// List is the caller's builds, the newest first.
func (b *Builds) List(ctx context.Context) []api.Build {
	tenant := sandbox.CallerOf(ctx).Tenant
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forget()
	out := []api.Build{}
	for _, j := range slices.Backward(b.jobs) {
		if j.tenant == tenant {
			out = append(out, j.view())
		}
	}
	return out
}

func (b *Builds) find(ctx context.Context, id string) (*job, error) {
	tenant := sandbox.CallerOf(ctx).Tenant
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forget()
	for _, j := range b.jobs {
		if j.id == id && j.tenant == tenant {
			return j, nil
		}
	}
	return nil, &api.Error{Code: api.CodeBuildNotFound, Message: fmt.Sprintf("build %.40q does not exist, or was forgotten", id), Hint: api.Hint(api.CodeBuildNotFound)}
}

// Get is one build.
func (b *Builds) Get(ctx context.Context, id string) (api.Build, error) {
	j, err := b.find(ctx, id)
	if err != nil {
		return api.Build{}, err
	}
	return j.view(), nil
}

// Cancel ends a build and returns when nothing of it is left; one that is over
// stays as it is.
func (b *Builds) Cancel(ctx context.Context, id string) error {
	j, err := b.find(ctx, id)
	if err != nil {
		return err
	}
	j.cancel(&api.Error{Code: api.CodeBuildFailed, Message: "it was cancelled", Hint: "build it again: the steps that were done are kept"})
	select {
	case <-j.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Lines tells f the log of a build, line by line; with follow, until it is over.
func (b *Builds) Lines(ctx context.Context, id string, follow bool, f func(line string) error) error {
	j, err := b.find(ctx, id)
	if err != nil {
		return err
	}
	return j.log.lines(ctx, follow, f)
}

// Close ends every build, waits until nothing is left of them, and refuses new
// ones.
func (b *Builds) Close(ctx context.Context) error {
	b.mu.Lock()
	b.closed = true
	jobs := slices.Clone(b.jobs)
	b.mu.Unlock()
	for _, j := range jobs {
		j.cancel(&api.Error{Code: api.CodeBuildFailed, Message: "the daemon was stopped in the middle of it", Hint: "build it again: the steps that were done are kept"})
	}
	done := make(chan struct{})
	go func() { b.wg.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
