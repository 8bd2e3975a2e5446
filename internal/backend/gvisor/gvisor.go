// Package gvisor is the user-space-kernel rung: each sandbox is a gVisor
// sentry, started by the keeper in an empty root with its own uid, no
// capabilities and no network but a wire to its gateway if it was given one, its root an EROFS image. What the guest calls a
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
	opt    Options

	mu   sync.Mutex
	live map[string]*instance
}

// Options adjust a Backend.
type Options struct {
	// Runtime names the program to start, below the keeper's runtimes/; "" is
	// the one that the keeper was started with.
	Runtime string
	// Gateway is called with the broker's end of the socket of each gateway
	// that is started for a sandbox with a link, and owns it. Each call has a
	// goroutine of its own. nil: no sandbox can have a link.
	Gateway func(id string, broker *net.UnixConn)
}

// New returns a Backend over a keeper. agentImage names the image that holds
// the guest agent, in the keeper's template store.
func New(k *keeper.Client, agentImage string, opt ...Options) *Backend {
	b := &Backend{keeper: k, agent: agentImage, live: map[string]*instance{}}
	if len(opt) > 0 {
		b.opt = opt[0]
	}
	k.OnGateway(b.gateway)
	return b
}

// gateway passes on the broker's end of a gateway's socket.
func (b *Backend) gateway(id string, f *os.File) {
	if b.opt.Gateway == nil {
		f.Close() // that ends it
		return
	}
	if c, err := jail.Conn(f); err == nil {
		b.opt.Gateway(id, c)
	}
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
	f, err := b.keeper.Facts(ctx, false)
	if err == nil && f.Obstacle != nil {
		err = &api.Error{Code: api.CodeRungUnavailable, Message: "gvisor: " + f.Obstacle.Why, Hint: f.Obstacle.Fix}
	}
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
	if s.Link && b.opt.Gateway == nil {
		return nil, &api.Error{Code: api.CodeEgressUnavailable, Message: "this berm was started without a broker, so a sandbox can have no link",
			Hint: api.Hint(api.CodeEgressUnavailable)}
	}
	if n := 1 + len(s.Upper); n > maxLayers {
		return nil, &api.Error{Code: api.CodeTemplateInvalid, Message: fmt.Sprintf("template: %d layers, and at most %d can be stacked", n, maxLayers),
			Hint: "import it again: layers beyond that are merged"}
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
		ID: s.ID, Args: bootArgs(s, numCPU(s.Limits)), Images: b.images(s), Limits: HostLimits(s.Limits), DiskBytes: diskSize(s.Limits),
		Extend: s.Extend, Bound: s.Bound, Link: s.Link, Runtime: b.opt.Runtime, PauseCall: callPause, ResumeCall: callResume,
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

// images are those of a sandbox, the one that is its root when it comes up first.
func (b *Backend) images(s backend.Spec) []string {
	if !stacked(s) {
		return []string{s.Image, b.agent}
	}
	return append([]string{b.agent, s.Image}, s.Upper...)
}

// keep lists i while it lives.
func (b *Backend) keep(i *instance) {
	b.mu.Lock()
	b.live[i.id] = i
	b.mu.Unlock()
	go func() {
		select {
		case <-i.run.Gone:
		case <-b.keeper.Done(): // it may go on, for whoever comes next
		}
		b.mu.Lock()
		if b.live[i.id] == i {
			delete(b.live, i.id)
		}
		b.mu.Unlock()
		i.release()
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
