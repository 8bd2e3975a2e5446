// Package gvisor is the user-space-kernel rung: each sandbox is a gVisor
// sentry, started by the keeper in an empty root with its own uid, no
// capabilities and no network, its root an EROFS image. What the guest calls a
// kernel is an unprivileged process here.
package gvisor

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/backend"
	"github.com/bermhq/berm/internal/jail"
	"github.com/bermhq/berm/internal/keeper"
)

// Backend starts gVisor sandboxes through a keeper.
type Backend struct {
	keeper *keeper.Client
	agent  string // image name of the guest agent's layer

	mu   sync.Mutex
	live map[string]*instance
}

// New returns a Backend over a keeper. agentImage names the image that holds
// the guest agent, in the keeper's template store.
func New(k *keeper.Client, agentImage string) *Backend {
	return &Backend{keeper: k, agent: agentImage, live: map[string]*instance{}}
}

// Info says what this rung is.
func (b *Backend) Info() backend.Info {
	return backend.Info{Name: api.IsolationGVisor, Boundary: api.BoundaryUserKernel}
}

// Check says whether this host can run it.
func (b *Backend) Check(ctx context.Context) error {
	if runtime.GOARCH != "amd64" {
		return &api.Error{Code: api.CodeRungUnavailable,
			Message: "gvisor: this build runs sandboxes on amd64 only, this host is " + runtime.GOARCH,
			Hint:    "use an x86-64 Linux host"}
	}
	_, err := b.keeper.Facts(ctx, false)
	return err
}

// Host tasks for a sandbox whose guest may have n tasks: gVisor keeps up to two
// per guest process and shares them between threads, next to its own.
func hostTasks(n int64) int64 {
	if n <= 0 {
		return 0
	}
	return min(4*n+128, maxTasks)
}

// maxTasks is the most that a pids cgroup takes.
const maxTasks = 4 << 20

// HostLimits are the limits of the cgroup around a sandbox with these caps.
func HostLimits(l api.Limits) jail.Limits {
	j := jail.Limits{Tasks: hostTasks(l.Pids)}
	if l.MemoryBytes > 0 {
		j.MemoryBytes = l.MemoryBytes
	}
	if l.CPUs > 0 {
		j.CPUs = l.CPUs
	}
	return j
}

// numCPU is how many processors the guest sees. It is also how many gVisor's own
// scheduler has, and never fewer than two: with one, each of its blocking calls
// stalls the rest until a monitor notices, up to 10 ms later (a start took half
// as long again). The cgroup's quota is what bounds the time.
func numCPU(l api.Limits) int {
	n := runtime.NumCPU()
	if l.CPUs > 0 {
		n = min(n, int(math.Ceil(l.CPUs)))
	}
	return max(n, 2)
}

// fits refuses caps that are none, because the host has less.
func fits(l api.Limits) error {
	refuse := func(what, most, flag string) error {
		return &api.Error{Code: api.CodeLimitInvalid, Message: what + " is more than this host has (" + most + "), so it would cap nothing",
			Hint: "--" + flag + "=unlimited, if that is what you want"}
	}
	var si unix.Sysinfo_t
	if err := unix.Sysinfo(&si); err != nil {
		return fmt.Errorf("ask for the host's memory: %w", err)
	}
	if total := int64(si.Totalram) * int64(si.Unit); l.MemoryBytes > total {
		return refuse(fmt.Sprintf("memory: %d MiB", l.MemoryBytes>>20), fmt.Sprintf("%d MiB", total>>20), "memory")
	}
	if n := runtime.NumCPU(); l.CPUs > float64(n) {
		return refuse(fmt.Sprintf("cpus: %g", l.CPUs), strconv.Itoa(n), "cpus")
	}
	return nil
}

// Start launches a sandbox and returns when its guest agent has been started.
func (b *Backend) Start(ctx context.Context, s backend.Spec) (backend.Instance, error) {
	if err := fits(s.Limits); err != nil {
		return nil, err
	}
	spec, err := marshalSpec(s)
	if err != nil {
		return nil, err
	}
	f, err := memfile(spec)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	l := keeper.Launch{
		ID: s.ID, Args: bootArgs(s, numCPU(s.Limits)), Images: []string{s.Image, b.agent}, Limits: HostLimits(s.Limits),
	}
	if s.Limits.Pids < 0 {
		l.NProc = 4096 // the user accepted that no cgroup holds; this still keeps the host alive
	}
	if !s.Deadline.IsZero() {
		l.DeadlineMS = s.Deadline.UnixMilli()
	}
	r, err := b.keeper.Launch(ctx, l, f)
	if err != nil {
		return nil, translate(err)
	}
	i := &instance{b: b, id: s.ID, run: r}
	if err := i.start(); err != nil {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		i.Stop(stop)
		if r.Exited.Cause == keeper.CauseMemory {
			return nil, &api.Error{Code: api.CodeLimitInvalid,
				Message: fmt.Sprintf("memory: %d bytes are not enough to start a sandbox", s.Limits.MemoryBytes),
				Hint:    "--memory=64m or more"}
		}
		return nil, fmt.Errorf("start the guest: %w", err)
	}
	b.keep(i)
	return i, nil
}

// Attach finds a sandbox that this process started. None outlives the keeper
// that berm run starts, so there is no other yet.
func (b *Backend) Attach(_ context.Context, h backend.Handle) (backend.Instance, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := b.live[h.ID]; i != nil && h.Backend == api.IsolationGVisor {
		return i, nil
	}
	return nil, backend.ErrGone
}

// keep lists i while it lives.
func (b *Backend) keep(i *instance) {
	b.mu.Lock()
	b.live[i.id] = i
	b.mu.Unlock()
	go func() {
		<-i.run.Gone
		b.mu.Lock()
		delete(b.live, i.id)
		b.mu.Unlock()
	}()
}

func memfile(b []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("spec", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "spec")
	if _, err := f.Write(b); err != nil {
		f.Close()
		return nil, err
	}
	_, err = f.Seek(0, 0)
	return f, err
}

// translate gives a keeper's refusal the shape of the API.
func translate(err error) error {
	var r *keeper.Refusal
	if errors.As(err, &r) {
		return &api.Error{Code: r.Code, Message: r.Message, Hint: r.Hint}
	}
	return err
}

// An instance is one gVisor sandbox.
type instance struct {
	b   *Backend
	id  string
	run *keeper.Running

	mu    sync.Mutex // guards agent
	agent *os.File
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
	if err := c.call(methodNetwork, loopbackOnly(), 10*time.Second); err != nil {
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

// Agent returns the byte stream to the guest agent, once.
func (i *instance) Agent(context.Context) (net.Conn, error) {
	i.mu.Lock()
	f := i.agent
	i.agent = nil
	i.mu.Unlock()
	if f == nil {
		return nil, errors.New("the agent stream is taken")
	}
	c, err := jail.Conn(f)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Wait blocks until nothing of the sandbox is left.
func (i *instance) Wait(ctx context.Context) (backend.Exit, error) {
	select {
	case <-i.run.Gone:
		e := i.run.Exited
		if e.Unkept != "" {
			return backend.Exit{Cause: e.Cause, Code: e.Code}, fmt.Errorf("clean up %s: %s", i.id, e.Unkept)
		}
		return backend.Exit{Cause: e.Cause, Code: e.Code}, nil
	case <-ctx.Done():
		return backend.Exit{}, ctx.Err()
	}
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
	delete(i.b.live, i.id)
	i.b.mu.Unlock()
	return nil
}

// SetDeadline has the keeper end the sandbox at t, even if the engine is stuck.
func (i *instance) SetDeadline(ctx context.Context, t time.Time) error {
	return i.b.keeper.SetDeadline(ctx, i.id, t)
}

// Usage measures from outside, or tells the last figures after the end.
func (i *instance) Usage() (backend.Usage, error) {
	var st jail.Stat
	if i.run.Gauge != nil {
		var err error
		if st, err = i.run.Gauge.Stat(); err != nil {
			// It is being taken away: the keeper has the last figures.
			select {
			case <-i.run.Gone:
				return usage(i.run.Exited.Stat, i.run.Exited.Upper), nil
			case <-time.After(3 * time.Second):
				return backend.Usage{}, err
			}
		}
	}
	return usage(st, keeper.Allocated(i.run.Upper)), nil
}

func usage(s jail.Stat, upper int64) backend.Usage {
	return backend.Usage{CPU: s.CPU, MemoryBytes: s.Memory, MemoryPeak: s.MemoryPeak, Tasks: s.Tasks,
		DiskBytes: upper, OOMKills: s.OOMKills, TaskFails: s.TaskFails}
}
