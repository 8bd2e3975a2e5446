package sandbox

import (
	"cmp"
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

// A Stream names one output of an exec.
type Stream uint8

// The outputs of an exec. A terminal has only Stdout.
const (
	Stdout Stream = iota
	Stderr
)

// Streams connect one exec with whoever asked for it. The zero value reads
// nothing and drops the output.
type Streams struct {
	// Output takes what the program wrote, in order, from one goroutine. An
	// error means that the other side is gone, and ends the exec as killed. A
	// call that takes too long is not waited for: it may outlive Exec, and
	// then is the last.
	Output func(s Stream, p []byte) error
	// Input brings events until it is closed; closing it means nothing by
	// itself. What is sent is always taken without delay, so the sender can
	// go on watching its own side; it bounds the stdin that is on its way.
	Input <-chan Input
	// Took is told how many bytes of stdin the program's side has taken, and 0
	// when the end of it is there too.
	Took func(n int)
	// Started is told that the exec was decided: it will have an ending, and
	// an error can only be that this could not be recorded or brought here.
	Started func()
	// Lost is told of bytes that belong before the next Output and are no
	// longer kept.
	Lost func(s Stream, n int64)
}

func (s Streams) started() {
	if s.Started != nil {
		s.Started()
	}
}

// An Input is one event for a running exec: exactly one field is set.
type Input struct {
	Stdin      []byte
	StdinClose bool
	Rows, Cols uint16 // the terminal has a new size
	Signal     int
}

const (
	outAhead     = 1 << 20  // output that may wait for a slow reader
	outRemainder = 16 << 20 // the same for what is left when the exec is over
	outPiece     = 32 << 10 // the most that Output gets at once
)

// Exec runs one command to its end. An error means that nothing was executed,
// or with audit.failed that the end of it could not be recorded; every other
// trouble is an ending. A request with an exec_id that is known is answered
// from that exec.
func (e *Engine) Exec(ctx context.Context, id string, req api.ExecRequest, s Streams) (api.ExecResult, error) {
	b, err := e.find(ctx, id)
	if err != nil {
		return api.ExecResult{}, err
	}
	p, err := b.plan(req)
	if err != nil {
		return api.ExecResult{}, err
	}
	if req.ExecID != "" || req.Detach {
		return e.execOnce(ctx, b, p, req.Detach, s)
	}
	x := e.execution(b, p, s)
	x.endAll = req.EndAll
	if err := x.hold(ctx, p.timeout); err != nil {
		return api.ExecResult{}, err
	}
	defer x.release()
	j, _, err := e.begin(ctx, b, p, false, false)
	if err != nil {
		return api.ExecResult{}, err
	}
	x.job = j
	s.started()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(j.killed, cancel)()
	res, err := x.perform(ctx, p)
	return res, errors.Join(err, e.finished(b, j, res, x.sent[Stdout]+x.sent[Stderr]))
}

func (e *Engine) execution(b *box, p plan, s Streams) *execution {
	return &execution{e: e, b: b, id: p.start.ID, streams: s, began: time.Now(), mark: b.mark(), timeout: p.timeout,
		out: newQueue(outAhead), flooded: make(chan struct{}), deaf: make(chan struct{}),
		limit: b.spec.Limits.OutputBytes}
}

// perform asks the guest to run x and sees to it until it is over.
func (x *execution) perform(ctx context.Context, p plan) (api.ExecResult, error) {
	var err error
	x.began = time.Now() // what came before was the journal's time
	x.p, err = x.b.guest.Start(ctx, p.start)
	close(x.job.asked)
	switch {
	case errors.Is(err, guest.ErrBusy):
		text := fmt.Sprintf("sandbox %s: %v", x.b.id, err)
		return api.ExecResult{ExecID: x.id, ExitCode: 125, Ending: api.EndHostFailure, CapsHit: []string{}, NotStarted: text, TimingsMS: map[string]float64{}},
			&api.Error{Code: api.CodeRate, Message: text, Hint: "wait for one to end", RetryAfter: retryRather}
	case err != nil:
		stop := ""
		if ctx.Err() != nil {
			stop = api.EndKilled
		}
		return x.finish(err, stop), nil
	}
	if p.input != "" {
		go func() {
			x.p.Write([]byte(p.input))
			x.p.CloseStdin()
		}()
	}
	return x.run(ctx, p.timeout), nil
}

// An execution is one exec on its way from start to ending.
type execution struct {
	e       *Engine
	b       *box
	id      string
	job     *job
	p       *guest.Process
	timeout time.Duration
	streams Streams
	began   time.Time
	ran     time.Time // when the guest was known to be up
	over    time.Time // when the program had ended
	mark    mark
	limit   int64
	kept    int64 // bytes of output that are kept inside; 0: none, they come here

	out     *queue
	flooded chan struct{} // closed at the flood bound
	deaf    chan struct{} // closed when Output failed
	sent    [2]int64      // bytes per stream; read's own until it returns
	passed  atomic.Int64  // calls of Output that have returned
	dropped bool          // output was thrown away because nobody took it
	endAll  bool
	loose   bool   // the host's deadline still has room for a boot
	caps    capSet // run's own, and so is disk
	noted   capSet // of those, the ones that the log knows
	disk    int64  // the most that a sample saw in use
}

// run waits for whatever comes first: the program's end, a deadline, a flood,
// the caller's going away, the sandbox's end.
func (x *execution) run(ctx context.Context, timeout time.Duration) api.ExecResult {
	ended, sendDone := make(chan error, 1), make(chan struct{})
	go func() { ended <- x.read(ctx) }()
	readDone := ended // nil once it was read
	go func() { defer close(sendDone); x.send() }()
	over := make(chan struct{})
	defer close(over)
	if x.streams.Input != nil {
		go feed(x.streams, x.p, over, nil)
	}

	ready, gone := x.b.ready, x.b.gone
	var deadline <-chan time.Time
	tick := time.NewTicker(x.e.opt.Sample)
	defer tick.Stop()

	var stop string
	var err error
wait:
	for {
		select {
		case err = <-readDone:
			readDone = nil
			break wait
		case <-ready: // the clock of the program starts here
			ready, x.ran = nil, time.Now()
			if timeout > 0 {
				t := time.NewTimer(timeout)
				defer t.Stop()
				deadline = t.C
			}
		case <-deadline:
			stop = api.EndTimeout
			x.caps.add(api.CapTimeout)
			break wait
		case <-x.flooded:
			stop = api.EndOutput
			break wait
		case <-ctx.Done():
			stop = api.EndKilled
			break wait
		case <-x.deaf:
			stop = api.EndKilled
			break wait
		case <-gone:
			break wait
		case <-tick.C:
			x.sample()
			if x.b.spec.Limits.Pids > 0 && slices.Contains(x.p.Seen().Caps, guest.CapProcesses) {
				x.caps.add(api.CapProcesses) // the one cap that only the guest can see; see credit
			}
			x.tell()
			if x.loose && ready == nil { // not sooner: most commands are over by now
				x.loose = false
				go x.tighten(timeout)
			}
		}
	}
	if readDone != nil {
		if readDone, err = x.awake(stop, readDone); readDone != nil {
			err = x.halt(stop, readDone)
		}
	}
	select {
	case <-x.flooded: // cut there, even if the program ended in the same moment
		stop = cmp.Or(stop, api.EndOutput)
	default:
	}
	x.out.close()
	if x.endAll && err == nil && (stop != "" || x.p.Exit().Background) {
		x.sweep()
	}
	x.over = time.Now()
	x.sample()
	x.release() // what follows is not the program's time
	if x.kept > 0 && err == nil && x.b.now() == Running {
		x.sent[Stdout] = x.e.written(x.b, x.id, x.e.opt.Grace)
	}
	if deadline == nil && timeout > 0 { // it was over before its clock was seen to start
		t := time.NewTimer(timeout)
		defer t.Stop()
		deadline = t.C
	}
	x.drain(ctx, sendDone, deadline, stop == "" && err == nil, stop == api.EndKilled)
	return x.finish(err, stop)
}

// awake waits until a paused sandbox goes on, or is gone: a program that is
// stopped cannot be ended by its agent, and the others in there shall live.
func (x *execution) awake(stop string, readDone chan error) (chan error, error) {
	for wake := x.b.asleep(); stop != "" && wake != nil; wake = x.b.asleep() {
		select {
		case <-wake:
		case <-x.b.gone:
			return readDone, nil
		case err := <-readDone:
			return nil, err
		}
	}
	return readDone, nil
}

// tell notes caps as soon as they are touched.
func (x *execution) tell() {
	if x.e.opt.Journal == nil || x.caps == x.noted {
		return
	}
	for _, c := range (x.caps &^ x.noted).list() {
		x.e.note(x.b, x.b.event(system, api.EventCapHit, capData{Cap: c, ExecID: x.id}))
	}
	x.noted = x.caps
}

// sweep ends what the command left running, or the sandbox with it.
func (x *execution) sweep() {
	ctx, cancel := context.WithTimeout(context.Background(), x.e.opt.EndAll)
	defer cancel()
	if err := x.p.Kill(ctx); err != nil {
		x.e.opt.Log.Warn("what a command left running would not end", "sandbox_id", x.b.id, "error", err)
		x.e.stop(x.b, api.EndKilled)
	}
}

// drain hands on what is left of the output. A program that ended by itself
// has until its deadline; after that, and after every other ending, output must
// move, and be out before long: the exec is over whether or not somebody reads.
func (x *execution) drain(ctx context.Context, sendDone <-chan struct{}, deadline <-chan time.Time, own, deaf bool) {
	select {
	case <-sendDone:
		return
	default:
	}
	patience, gone, lost := x.e.opt.Drain, x.b.gone, true
	var began, moved time.Time // of the hurry; zero: none yet
	hurry := func() {
		if began.IsZero() {
			began = time.Now()
			moved = began
		}
	}
	if !own {
		hurry()
	}
	forget := func() { // nobody is there to take it
		x.out.kill()
		lost = false
		patience = min(patience, x.e.opt.Grace)
		hurry()
	}
	if deaf {
		forget()
	}
	tick := time.NewTicker(max(x.e.opt.Grace/4, time.Millisecond))
	defer tick.Stop()
	for last := x.passed.Load(); ; {
		select {
		case <-sendDone:
			return
		case <-deadline:
			hurry()
		case <-gone:
			gone = nil
			hurry()
		case <-ctx.Done():
			ctx = context.Background()
			forget()
		case now := <-tick.C:
			if n := x.passed.Load(); n != last {
				last, moved = n, now
			}
			if !began.IsZero() && (now.Sub(later(moved, began)) > patience || now.Sub(began) > 5*patience) {
				x.dropped = lost
				x.out.kill()
				return
			}
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// halt ends a program that is still running, through the agent if that works
// in time, else by stopping the sandbox, and returns how reading ended.
func (x *execution) halt(stop string, readDone <-chan error) error {
	x.out.raise(outRemainder)
	over := time.NewTimer(2 * x.e.opt.Grace)
	defer over.Stop()
	if stop != "" {
		ctx, cancel := context.WithTimeout(context.Background(), x.e.opt.Grace)
		defer cancel() // of no use once the end was read
		go x.kill(ctx)
	}
	select {
	case err := <-readDone:
		return err
	case <-over.C:
	}
	if stop != "" {
		x.e.stop(x.b, stop)
	}
	x.b.guest.Close()
	x.out.kill() // a reader that waits for room would never end
	return <-readDone
}

// kill asks the agent to end the program, again and again: the first time may
// be too early for one that is just being started.
func (x *execution) kill(ctx context.Context) {
	for ctx.Err() == nil {
		x.p.Kill(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// read takes the output from the guest until the program's end, and cuts it at
// the flood bound.
func (x *execution) read(ctx context.Context) error {
	left := x.limit * api.FloodFactor
	for {
		s, p, err := x.p.Read(context.WithoutCancel(ctx))
		if err == io.EOF { // and only that: a stream that broke may wrap an EOF too
			return nil
		}
		if err != nil {
			return err
		}
		if len(p) == 0 || left < 0 {
			continue
		}
		if left -= int64(len(p)); left < 0 {
			p = p[:int64(len(p))+left]
			close(x.flooded)
		}
		stream := Stdout
		if s == guest.Stderr {
			stream = Stderr
		}
		x.sent[stream] += int64(len(p))
		x.out.put(chunk{stream, append([]byte(nil), p...)})
	}
}

// send hands the output on, at the speed of whoever takes it.
func (x *execution) send() {
	for {
		c, ok := x.out.get()
		if !ok {
			return
		}
		if x.streams.Output == nil {
			continue
		}
		for p := c.data; len(p) > 0; {
			n := min(len(p), outPiece)
			if x.streams.Output(c.stream, p[:n]) != nil {
				x.out.kill()
				close(x.deaf)
				return
			}
			p = p[n:]
			x.passed.Add(1)
			if x.out.killed() {
				return
			}
		}
	}
}
