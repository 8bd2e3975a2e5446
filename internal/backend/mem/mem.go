// Package mem is the fake backend: a sandbox is the guest agent in this very
// process, over a pipe, with a folder for its files. It isolates nothing and no
// shipped program links it; tests do, because everything above a backend runs
// on it anywhere, without rights, and it passes the suite that real ones pass.
package mem

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/backend"
	"github.com/bermhq/berm/internal/guest"
	"github.com/bermhq/berm/internal/guest/agent"
)

// Options adjust a Backend. The zero value is a rung "mem" of boundary "none".
type Options struct {
	Name, Boundary string
	Dir            string // where the instances' folders go; "" is the system's place
}

// A Backend keeps its instances in memory.
type Backend struct {
	opt Options

	mu   sync.Mutex
	live map[string]*instance
	past map[string]backend.Exit // how those ended that nobody has forgotten
}

// New returns an empty Backend.
func New(opt Options) *Backend {
	if opt.Name == "" {
		opt.Name = "mem"
	}
	if opt.Boundary == "" {
		opt.Boundary = "none"
	}
	return &Backend{opt: opt, live: map[string]*instance{}, past: map[string]backend.Exit{}}
}

// Info implements backend.Backend.
func (b *Backend) Info() backend.Info {
	return backend.Info{Name: b.opt.Name, Boundary: b.opt.Boundary}
}

// Check implements backend.Backend. It always can.
func (b *Backend) Check(context.Context) error { return nil }

// Live is how many instances there are.
func (b *Backend) Live() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.live)
}

// Start implements backend.Backend.
func (b *Backend) Start(ctx context.Context, s backend.Spec) (backend.Instance, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(b.opt.Dir, "mem-"+s.ID+"-")
	if err != nil {
		return nil, err
	}
	for _, d := range []string{api.Workspace, api.GuestHome, "/tmp"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			os.RemoveAll(dir)
			return nil, err
		}
	}
	life, kill := context.WithCancel(context.Background())
	i := &instance{
		b: b, id: s.ID, dir: dir, host: &host{Host: agent.NewLocal(dir)},
		life: life, kill: kill, free: make(chan struct{}, 1), gone: make(chan struct{}), began: time.Now(),
	}
	i.agent = agent.New(i.host)
	i.free <- struct{}{}
	b.mu.Lock()
	defer b.mu.Unlock()
	i.last = s.Deadline
	i.arm(s.Deadline)
	b.live[s.ID] = i
	return i, nil
}

// Attach implements backend.Backend.
func (b *Backend) Attach(_ context.Context, h backend.Handle) (backend.Instance, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := b.live[h.ID]; i != nil && h.Backend == b.opt.Name {
		return i, nil
	}
	return nil, backend.ErrGone
}

// Held implements backend.Holder.
func (b *Backend) Held(context.Context) ([]backend.Held, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []backend.Held
	for _, i := range b.live {
		out = append(out, backend.Held{Handle: i.Handle()})
	}
	for id, x := range b.past {
		out = append(out, backend.Held{Handle: backend.Handle{Backend: b.opt.Name, ID: id}, Ended: true, Exit: x})
	}
	return out, nil
}

// Forget implements backend.Holder.
func (b *Backend) Forget(_ context.Context, id string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.past, id)
	return nil
}

type instance struct {
	b     *Backend
	id    string
	dir   string
	host  *host
	agent *agent.Agent    // outlives each stream, as in a machine
	life  context.Context // ends with the instance
	kill  context.CancelFunc
	last  time.Time     // Spec.Deadline
	timer *time.Timer   // under b.mu
	free  chan struct{} // holds a token while nobody has the stream
	gone  chan struct{}
	began time.Time

	once  sync.Once
	serve sync.WaitGroup
	guest net.Conn // the guest's end of the stream, under b.mu
	exit  backend.Exit
}

func (i *instance) Handle() backend.Handle {
	return backend.Handle{Backend: i.b.opt.Name, ID: i.id}
}

// Agent implements backend.Instance. The stream is handed out again after it
// was closed.
func (i *instance) Agent(ctx context.Context) (net.Conn, error) {
	select {
	case <-i.free:
	case <-i.life.Done():
		return nil, backend.ErrGone
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	ours, theirs := net.Pipe()
	i.b.mu.Lock() // orders this with end, which waits for what is being served
	defer i.b.mu.Unlock()
	if i.life.Err() != nil {
		return nil, backend.ErrGone
	}
	i.guest = theirs
	i.serve.Go(func() {
		defer theirs.Close()
		i.agent.Serve(i.life, theirs)
	})
	return &stream{Conn: ours, release: sync.OnceFunc(func() { i.free <- struct{}{} })}, nil
}

type stream struct {
	net.Conn
	release func()
}

func (s *stream) Close() error {
	err := s.Conn.Close()
	s.release()
	return err
}

func (i *instance) Wait(ctx context.Context) (backend.Exit, error) {
	select {
	case <-i.gone:
		return i.exit, nil
	case <-ctx.Done():
		return backend.Exit{}, ctx.Err()
	}
}

func (i *instance) Stop(ctx context.Context) error {
	go i.end("stopped")
	select {
	case <-i.gone:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// SetDeadline implements backend.Deadliner.
func (i *instance) SetDeadline(ctx context.Context, t time.Time) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	i.b.mu.Lock()
	defer i.b.mu.Unlock()
	if i.life.Err() != nil {
		return backend.ErrGone
	}
	if t.IsZero() || !i.last.IsZero() && t.After(i.last) {
		t = i.last
	}
	i.arm(t)
	return nil
}

// arm sets the timer; the zero time is never. b.mu is held.
func (i *instance) arm(t time.Time) {
	if i.timer != nil {
		i.timer.Stop()
	}
	if !t.IsZero() {
		i.timer = time.AfterFunc(time.Until(t), func() { i.end("deadline") })
	}
}

// Crash ends an instance as if its outermost process had died by cause: a cap
// of the outer wall, or "" for no reason that the host knows.
func (b *Backend) Crash(id, cause string) {
	b.mu.Lock()
	i := b.live[id]
	b.mu.Unlock()
	if i != nil {
		i.end(cause)
	}
}

func (i *instance) end(cause string) {
	i.once.Do(func() {
		i.b.mu.Lock()
		if i.timer != nil {
			i.timer.Stop()
		}
		if i.guest != nil {
			i.guest.Close() // before anything inside is seen to die
		}
		i.kill()
		delete(i.b.live, i.id)
		i.exit = backend.Exit{Cause: cause, Code: 137}
		i.b.past[i.id] = i.exit
		i.b.mu.Unlock()
		i.host.end()
		i.serve.Wait()
		os.RemoveAll(i.dir)
		close(i.gone)
	})
}

// A host knows what was started on it, so that all of it ends with the instance.
type host struct {
	agent.Host

	mu      sync.Mutex
	started []string
	ended   bool
}

func (h *host) Start(s guest.Start) (agent.Proc, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended {
		return nil, syscall.ESRCH
	}
	h.started = append(h.started, s.ID)
	return h.Host.Start(s)
}

func (h *host) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
	for _, id := range h.started {
		h.Kill(context.Background(), id, guest.EndedKilled)
	}
}

// Usage implements backend.Meter: time only, the rest is this process's own.
func (i *instance) Usage() (backend.Usage, error) { return backend.Usage{}, nil }
