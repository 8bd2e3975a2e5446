package gvisor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/backend"
	"github.com/bermhq/berm/internal/jail"
	"github.com/bermhq/berm/internal/keeper"
)

// An instance is one gVisor sandbox.
type instance struct {
	b   *Backend
	id  string
	run *keeper.Running

	mu       sync.Mutex
	agent    *os.File      // the stream, until it is taken
	taken    chan struct{} // closed when whoever took it has closed it
	released bool          // its descriptors are closed
}

func (i *instance) start() error {
	i.agent = i.run.Agent
	c, err := newControl(i.run.Control)
	if err != nil {
		return err
	}
	// Nothing more is asked over this connection: pause, snapshot and restore
	// take fresh ones from the keeper.
	defer c.close()
	if i.run.Gauge != nil {
		if _, err := i.run.Gauge.Stat(); err != nil { // without it no ending could be told
			return fmt.Errorf("read the figures of the sandbox: %w", err)
		}
	}
	began := time.Now()
	network, files := loopbackOnly(), []*os.File(nil)
	if i.run.Link != nil {
		network, files = withLink(), []*os.File{i.run.Link}
	}
	err = c.call(methodNetwork, network, 10*time.Second, files...)
	closeFiles(files...) // the sentry has its own; without it, this one is the end
	if err != nil {
		return err
	}
	err = c.call(methodStart, i.id, 20*time.Second)
	i.run.Parts["start"] = float64(time.Since(began).Microseconds()) / 1000
	return err
}

// Timings are the steps of the launch.
func (i *instance) Timings() map[string]float64 { return i.run.Parts }

func (i *instance) Handle() backend.Handle {
	return backend.Handle{Backend: api.IsolationGVisor, ID: i.id}
}

// Agent returns the byte stream to the guest agent. It is handed out again once
// it was closed, if the keeper has it too.
func (i *instance) Agent(ctx context.Context) (net.Conn, error) {
	i.mu.Lock()
	f, before := i.agent, i.taken
	i.agent = nil
	mine := make(chan struct{})
	if i.taken == nil {
		i.taken = mine
	}
	i.mu.Unlock()
	if before != nil {
		select {
		case <-before:
		case <-i.run.Gone:
			return nil, backend.ErrGone
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		i.mu.Lock()
		again := i.taken == before
		if again {
			i.taken = mine
		}
		i.mu.Unlock()
		if !again {
			return i.Agent(ctx) // another was quicker
		}
	}
	free := sync.OnceFunc(func() { close(mine) })
	if f == nil {
		r, err := i.b.keeper.Attach(ctx, i.id)
		if err != nil {
			free()
			return nil, ended(err)
		}
		closeFiles(r.Control, r.Upper)
		if r.Gauge != nil {
			r.Gauge.Close()
		}
		f = r.Agent
	}
	c, err := jail.Conn(f)
	if err != nil {
		free()
		return nil, err
	}
	return &stream{UnixConn: c, free: free}, nil
}

// A stream is the connection to an agent that somebody has.
type stream struct {
	*net.UnixConn
	free func()
}

func (s *stream) Close() error {
	err := s.UnixConn.Close()
	s.free()
	return err
}

// release closes what belongs to a sandbox that is gone: the file of its
// writable layer takes room on the disk until then.
func (i *instance) release() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.released = true
	closeFiles(i.agent, i.run.Upper)
	i.agent = nil
	if i.run.Gauge != nil {
		i.run.Gauge.Close()
	}
}

func closeFiles(files ...*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}

// Wait blocks until nothing of the sandbox is left.
func (i *instance) Wait(ctx context.Context) (backend.Exit, error) {
	select {
	case <-i.run.Gone:
		e := i.run.Exited
		if e.Unkept != "" {
			return exit(e), fmt.Errorf("clean up %s: %s", i.id, e.Unkept)
		}
		return exit(e), nil
	case <-ctx.Done():
		return backend.Exit{}, ctx.Err()
	}
}

// exit is the keeper's word on an end.
func exit(e keeper.Exited) backend.Exit {
	x := backend.Exit{Cause: e.Cause, Code: e.Code}
	if e.EndedMS > 0 {
		x.At = time.UnixMilli(e.EndedMS)
	}
	if e.DeadlineMS > 0 {
		x.Deadline = time.UnixMilli(e.DeadlineMS)
	}
	return x
}

// Stop ends the sandbox and returns when no trace is left.
func (i *instance) Stop(ctx context.Context) error {
	i.mu.Lock()
	if i.agent != nil {
		i.agent.Close()
		i.agent = nil
	}
	i.mu.Unlock()
	err := i.b.keeper.Stop(ctx, i.id)
	if errors.Is(err, keeper.ErrClosed) {
		err = nil
	}
	if err != nil {
		return err
	}
	if _, err := i.Wait(ctx); err != nil {
		return err
	}
	i.b.mu.Lock()
	if i.b.live[i.id] == i {
		delete(i.b.live, i.id)
	}
	i.b.mu.Unlock()
	return nil
}

// Pause has the keeper stop all of it.
func (i *instance) Pause(ctx context.Context) error { return i.turn(ctx, i.b.keeper.Pause) }

// Resume has it go on.
func (i *instance) Resume(ctx context.Context) error { return i.turn(ctx, i.b.keeper.Resume) }

func (i *instance) turn(ctx context.Context, how func(context.Context, string) error) error {
	err := how(ctx, i.id)
	if err == nil {
		return nil
	}
	select {
	case <-i.run.Gone:
		return backend.ErrGone
	default:
		return translate(err)
	}
}

// SetDeadline has the keeper end the sandbox at t, even if the engine is stuck.
func (i *instance) SetDeadline(ctx context.Context, t time.Time) error {
	return i.b.keeper.SetDeadline(ctx, i.id, t)
}

// Usage measures from outside, or tells the last figures after the end.
func (i *instance) Usage() (backend.Usage, error) {
	i.mu.Lock()
	if !i.released {
		var st jail.Stat
		var err error
		if i.run.Gauge != nil {
			st, err = i.run.Gauge.Stat()
		}
		disk := keeper.Allocated(i.run.Upper)
		i.mu.Unlock()
		if err == nil {
			return usage(st, disk), nil
		}
		// It is being taken away: the keeper has the last figures.
		select {
		case <-i.run.Gone:
		case <-time.After(3 * time.Second):
			return backend.Usage{}, err
		}
	} else {
		i.mu.Unlock()
		select {
		case <-i.run.Gone:
		default:
			return backend.Usage{}, keeper.ErrCut
		}
	}
	return usage(i.run.Exited.Stat, i.run.Exited.Upper), nil
}

func usage(s jail.Stat, upper int64) backend.Usage {
	return backend.Usage{CPU: s.CPU, MemoryBytes: s.Memory, MemoryPeak: s.MemoryPeak, Tasks: s.Tasks,
		DiskBytes: upper, OOMKills: s.OOMKills, TaskFails: s.TaskFails}
}
