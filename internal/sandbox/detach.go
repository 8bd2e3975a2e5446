package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/guest"
)

// maxKeep bounds the output that the guest keeps of one exec. It is the
// guest's own memory.
const maxKeep = 16 << 20

// keep makes a plan for an exec whose output stays inside: as much as its
// answer would hold of both streams.
func (b *box) keep(p *plan) {
	limit := b.spec.Limits.OutputBytes
	p.start.Keep = min(2*limit, maxKeep)
	p.start.Flood = limit * api.FloodFactor
}

// Spawn starts a command that goes on without its caller.
func (e *Engine) Spawn(ctx context.Context, id string, req api.ExecRequest) (api.Exec, error) {
	b, err := e.find(ctx, id)
	if err != nil {
		return api.Exec{}, err
	}
	p, err := b.plan(req)
	if err != nil {
		return api.Exec{}, err
	}
	j, err := e.spawn(ctx, b, p, true)
	if err != nil {
		return api.Exec{}, err
	}
	if err := e.arrived(ctx, b, j); err != nil {
		return api.Exec{}, err
	}
	return b.exec(j), nil
}

// arrived waits until the guest has the request to start j: what was
// acknowledged must not be lost with this process. The guest reads in order, so
// an answer to anything that was asked later is enough. One that does not
// answer is the exec's own trouble.
func (e *Engine) arrived(ctx context.Context, b *box, j *job) error {
	if err := j.reach(ctx); err != nil {
		return err
	}
	if b.exec(j).State == api.ExecEnded {
		return nil // there may be no guest any more
	}
	ctx, cancel := context.WithTimeout(ctx, e.opt.Settle)
	defer cancel()
	b.guest.Usage(ctx)
	return nil
}

// spawn starts a kept exec, or finds the one that has its id.
func (e *Engine) spawn(ctx context.Context, b *box, p plan, detached bool) (*job, error) {
	b.keep(&p)
	p.start.Hold = !detached
	x := e.execution(b, p, Streams{})
	x.kept = p.start.Keep
	if err := x.hold(ctx, p.timeout); err != nil {
		return nil, err
	}
	j, fresh, err := e.begin(ctx, b, p, true, detached)
	if err != nil || !fresh {
		x.release()
		return j, err
	}
	x.job = j
	e.supervise(x, func() (api.ExecResult, error) { return x.perform(j.killed, p) })
	return j, nil
}

// supervise sees to a kept exec until its end is recorded.
func (e *Engine) supervise(x *execution, perform func() (api.ExecResult, error)) {
	e.wg.Go(func() { // the sandbox is alive, so Close has not finished waiting
		defer x.release()
		res, _ := perform()
		if err := e.finished(x.b, x.job, res, x.sent[Stdout]+x.sent[Stderr]); err != nil {
			e.opt.Log.Error("end of an exec not recorded yet", "sandbox_id", x.b.id, "exec_id", x.id, "error", err)
		}
	})
}

// written is how much output the guest says that a kept exec has written, as
// far as that is possible; 0 if it does not say.
func (e *Engine) written(b *box, id string, within time.Duration) int64 {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	list, err := b.guest.Processes(ctx)
	if err != nil {
		return 0
	}
	for _, p := range list {
		if p.ID == id {
			return min(max(p.OutputBytes, 0), b.spec.Limits.OutputBytes*api.FloodFactor*2)
		}
	}
	return 0
}

// execOnce is Exec for a request whose id its caller chose: asked twice, it
// runs once, and both get the output from its start.
func (e *Engine) execOnce(ctx context.Context, b *box, p plan, detached bool, s Streams) (api.ExecResult, error) {
	j, err := e.spawn(ctx, b, p, detached)
	if err != nil {
		return api.ExecResult{}, err
	}
	defer b.joined(j, e.opt.Comeback)()
	s.started()
	if s.Input != nil && b.exec(j).State != api.ExecEnded {
		over := make(chan struct{})
		defer close(over)
		go func() {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			if j.reach(ctx) != nil { // before that there is no input to open
				return
			}
			feed(s, &keptInput{ctx: ctx, g: b.guest, id: b.exec(j).ExecID}, over, j.done)
		}()
	}
	if j.kept && s.Output != nil {
		_, err = e.follow(ctx, b, j, 0, true, func(c api.Chunk) error {
			stream := Stdout
			if c.Stream == "stderr" {
				stream = Stderr
			}
			if c.Gap > 0 && s.Lost != nil {
				s.Lost(stream, c.Gap)
			}
			return s.Output(stream, c.Data)
		})
		var ae *api.Error
		if err != nil && !(errors.As(err, &ae) && (ae.Code == api.CodeSandboxEnded || ae.Code == api.CodeExecNotFound)) {
			return api.ExecResult{}, err
		}
	}
	select {
	case <-j.done:
	case <-ctx.Done():
		return api.ExecResult{}, ctx.Err()
	}
	res := *b.exec(j).Result
	if err != nil && res.Reason == "" { // how it ended is known all the same
		res.Reason = err.Error()
	}
	return res, nil
}

// Execs lists the commands of a sandbox, newest first.
func (e *Engine) Execs(ctx context.Context, id string) ([]api.Exec, error) {
	b, err := e.find(ctx, id)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make([]api.Exec, 0, len(b.order))
	for _, j := range slices.Backward(b.order) {
		out = append(out, j.info)
	}
	return out, nil
}

// GetExec returns one of them.
func (e *Engine) GetExec(ctx context.Context, id, exec string) (api.Exec, error) {
	b, j, err := e.findExec(ctx, id, exec)
	if err != nil {
		return api.Exec{}, err
	}
	v := b.exec(j)
	if j.kept && v.State == api.ExecRunning && b.usable() == nil {
		n := e.written(b, exec, min(e.opt.Stall, time.Second))
		b.mu.Lock()
		j.info.OutputBytes = max(j.info.OutputBytes, n)
		b.mu.Unlock()
		v = b.exec(j)
	}
	return v, nil
}

func (e *Engine) findExec(ctx context.Context, id, exec string) (*box, *job, error) {
	b, err := e.find(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	j, err := b.job(exec)
	return b, j, err
}

// running finds an exec that something can be told to.
func (e *Engine) running(ctx context.Context, id, exec string) (*box, *job, error) {
	b, j, err := e.findExec(ctx, id, exec)
	if err != nil {
		return nil, nil, err
	}
	if err := b.usable(); err != nil {
		return nil, nil, err
	}
	if err := j.reach(ctx); err != nil {
		return nil, nil, err
	}
	if b.exec(j).State == api.ExecEnded {
		return nil, nil, ended(exec)
	}
	return b, j, nil
}

func ended(exec string) error {
	return &api.Error{Code: api.CodeSandboxState, Message: fmt.Sprintf("exec %s has ended", exec), Hint: "GET it for its result"}
}

// SignalExec sends a signal to a command's process group.
func (e *Engine) SignalExec(ctx context.Context, id, exec string, sig int) error {
	if sig < 1 || sig > 64 {
		return badRequest("signal %d is none", sig)
	}
	b, _, err := e.running(ctx, id, exec)
	if err != nil {
		return err
	}
	if err := e.decided(ctx, b, b.event(CallerOf(ctx).Actor, api.EventExecSignalled, signalData{ExecID: exec, Signal: sig})); err != nil {
		return err
	}
	return e.tellExec(ctx, id, exec, func(ctx context.Context, g *guest.Client) error { return g.Signal(ctx, exec, sig) })
}

// ResizeExec gives the terminal of a command another size.
func (e *Engine) ResizeExec(ctx context.Context, id, exec string, rows, cols uint16) error {
	return e.tellExec(ctx, id, exec, func(ctx context.Context, g *guest.Client) error { return g.Resize(ctx, exec, rows, cols) })
}

func (e *Engine) tellExec(ctx context.Context, id, exec string, tell func(context.Context, *guest.Client) error) error {
	b, _, err := e.running(ctx, id, exec)
	if err != nil {
		return err
	}
	w := e.patience(ctx, b, e.opt.Stall)
	defer w.stop()
	err = tell(w.ctx, b.guest)
	if guest.IsRefusal(err) {
		return ended(exec) // or on its way there
	}
	return w.explain("exec "+exec, err)
}

// KillExec ends a command with all that it started, and returns when it has
// ended. One that has ended stays as it is.
func (e *Engine) KillExec(ctx context.Context, id, exec string) error {
	b, j, err := e.findExec(ctx, id, exec)
	if err != nil {
		return err
	}
	if b.exec(j).State == api.ExecEnded {
		return nil
	}
	if b.now() == Paused {
		return b.usable()
	}
	if err := e.decided(ctx, b, b.event(CallerOf(ctx).Actor, api.EventExecSignalled, signalData{ExecID: exec, Signal: 9, All: true})); err != nil {
		return err
	}
	j.kill()
	select {
	case <-j.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// WriteStdin sends r to the standard input of a detached command, and with end
// closes it. It returns how many bytes were taken. It waits for a program that
// does not read, as long as its caller does.
func (e *Engine) WriteStdin(ctx context.Context, id, exec string, r io.Reader, end bool) (int64, error) {
	b, j, err := e.running(ctx, id, exec)
	if err != nil {
		return 0, err
	}
	if !j.kept {
		return 0, &api.Error{Code: api.CodeExecConflict, Message: fmt.Sprintf("exec %s: its standard input belongs to the connection that runs it", exec), Hint: "start it with detach or an exec_id"}
	}
	give, err := b.slots.take("streams of input", maxExecs)
	if err != nil {
		return 0, err
	}
	defer give()
	defer b.busy()()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-j.done: // what was taken by then may still be said
			select {
			case <-time.After(e.opt.Grace):
				cancel()
			case <-ctx.Done():
			}
		case <-ctx.Done():
		}
	}()
	actor := CallerOf(ctx).Actor
	in, err := b.guest.Stdin(ctx, exec)
	var n int64
	defer func() {
		if n > 0 {
			e.note(b, b.event(actor, api.EventExecInput, inputData{ExecID: exec, Bytes: n}))
		}
	}()
	if err == nil {
		n, err = io.CopyBuffer(in, struct{ io.Reader }{r}, make([]byte, 32<<10))
	}
	if err == nil && end {
		err = in.Close()
	} else if err == nil {
		err = in.Leave()
	}
	if err == nil { // it may have ended since, because of that
		return n, nil
	}
	select {
	case <-j.done:
		return n, ended(exec)
	default:
	}
	if guest.IsRefusal(err) {
		return n, &api.Error{Code: api.CodeExecConflict, Message: fmt.Sprintf("exec %s: stdin: %v", exec, clip(err.Error(), 512)), Hint: "start it with stdin, and do not write after the end"}
	}
	return n, err
}

// Follow gives f the kept output of a detached exec from an offset; with follow
// it goes on until the exec has ended. It returns the exec as it is then.
func (e *Engine) Follow(ctx context.Context, id, exec string, offset int64, follow bool, f func(api.Chunk) error) (api.Exec, error) {
	b, j, err := e.findExec(ctx, id, exec)
	if err != nil {
		return api.Exec{}, err
	}
	if !j.kept {
		return api.Exec{}, &api.Error{Code: api.CodeExecConflict, Message: fmt.Sprintf("exec %s: its output went to the connection that ran it", exec), Hint: "start it with detach or an exec_id"}
	}
	if offset < 0 {
		return api.Exec{}, badRequest("offset: %d is none", offset)
	}
	defer b.joined(j, e.opt.Comeback)()
	return e.follow(ctx, b, j, offset, follow, f)
}

// follow is Follow on what was found. The guest may take its time while the
// program runs; when that is over, what is left of the output must move.
func (e *Engine) follow(ctx context.Context, b *box, j *job, offset int64, follow bool, f func(api.Chunk) error) (api.Exec, error) {
	if err := j.reach(ctx); err != nil {
		return b.exec(j), err
	}
	if err := b.alive(); err != nil {
		if b.now().final() {
			err = b.outputGone(j)
		}
		return b.exec(j), err
	}
	if !follow {
		if err := b.usable(); err != nil {
			return b.exec(j), err
		}
	}
	give, err := b.slots.take("readers of output", maxFollows)
	if err != nil {
		return api.Exec{}, err
	}
	defer give()
	defer b.busy()()
	id, caller := b.exec(j).ExecID, ctx
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var pace pace
	flood := b.spec.Limits.OutputBytes * api.FloodFactor
	go e.chase(ctx, b, j, follow, &pace, cancel)
	err = e.attach(ctx, b, id, offset, follow, func(c api.Chunk) error {
		pace.mine.Store(true) // f's time is not the guest's
		defer pace.mine.Store(false)
		pace.pieces.Add(1)
		if c.Offset >= flood { // what the guest took before it was ended
			return nil
		}
		c.Data = c.Data[:min(int64(len(c.Data)), flood-c.Offset)]
		return f(c)
	})
	if err == nil && follow {
		select {
		case <-j.done:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	switch {
	case err == nil:
		return b.exec(j), nil
	case errors.Is(context.Cause(ctx), errStalled):
		err = &api.Error{Code: api.CodeGuestSilent, Message: "output of exec " + id + ": " + errStalled.Error()}
	}
	if caller.Err() == nil && e.isGone(b) {
		select { // its end is told before long
		case <-j.done:
		case <-caller.Done():
			return b.exec(j), context.Cause(caller)
		}
		x := b.exec(j)
		if follow && x.Result != nil && x.Result.Ending == b.endedBy() {
			return x, nil // they ended as one, and what came before was read
		}
		return x, b.outputGone(j)
	}
	var ae *api.Error
	if guest.IsRefusal(err) {
		err = &api.Error{Code: api.CodeExecNotFound, Message: fmt.Sprintf("output of exec %s is no longer kept", id)}
	} else if errors.Is(err, guest.ErrProtocol) || errors.Is(err, guest.ErrGone) || errors.Is(err, guest.ErrClosed) {
		err = &api.Error{Code: api.CodeGuestProtocol, Message: "output of exec " + id + ": " + clip(err.Error(), 512)}
	} else if errors.Is(err, guest.ErrBusy) {
		err = &api.Error{Code: api.CodeRate, Message: err.Error(), Hint: "wait", RetryAfter: retryRather}
	} else if !errors.As(err, &ae) {
		return b.exec(j), err
	}
	return b.exec(j), err
}

// outputGone is the answer to whoever reads output that went with its sandbox.
func (b *box) outputGone(j *job) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return &api.Error{Code: api.CodeSandboxEnded, Message: fmt.Sprintf("sandbox %s is %s (%s), and the output of exec %s went with it", b.id, b.state, b.ending, j.info.ExecID), Hint: "GET the exec for its result"}
}

// attach reads the kept output, piece by piece.
func (e *Engine) attach(ctx context.Context, b *box, id string, offset int64, follow bool, f func(api.Chunk) error) error {
	p, err := b.guest.Attach(ctx, id, offset, follow)
	if err != nil {
		return err
	}
	defer p.Close()
	for {
		c, err := p.Chunk(ctx)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		out := api.Chunk{Stream: "stdout", Offset: c.Offset, Gap: c.Gap, Data: c.Data}
		if c.Stream == guest.Stderr {
			out.Stream = "stderr"
		}
		if err := f(out); err != nil {
			return err
		}
	}
}

// pace says whether pieces come.
type pace struct {
	pieces atomic.Int64
	mine   atomic.Bool // the reader has one in hand
}

// chase gives up on a guest that does not bring the rest of the output when the
// program has ended, or, without follow, what there is.
func (e *Engine) chase(ctx context.Context, b *box, j *job, follow bool, p *pace, cancel context.CancelCauseFunc) {
	if follow {
		select {
		case <-j.done:
		case <-ctx.Done():
			return
		}
	}
	t := time.NewTicker(e.opt.Listing)
	defer t.Stop()
	for last := int64(-1); ; {
		select {
		case <-t.C:
			if n := p.pieces.Load(); n != last || p.mine.Load() || b.now() == Paused {
				last = n
				continue
			}
			cancel(errStalled)
			return
		case <-ctx.Done():
			return
		case <-b.gone:
			cancel(guest.ErrGone)
			return
		}
	}
}
