// Package mem is the fake backend: a sandbox is the guest agent in this very
// process, over a pipe, with a folder for its files. It isolates nothing and no
// shipped program links it; tests do, because everything above a backend runs
// on it anywhere, without rights, and it passes the suite that real ones pass.
package mem

import (
	"context"
	"errors"
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

	// Gateway gets the broker's end of the socket of each gateway that Gateway
	// of the Backend starts, and owns it. nil: no sandbox can have a link.
	Gateway func(id string, broker *net.UnixConn)
}

// A Backend keeps its instances in memory.
type Backend struct {
	opt Options
	*host

	dead context.Context // ends with the process that this pretends to be in
	die  context.CancelFunc
}

// A host is what outlives a Backend.
type host struct {
	mu   sync.Mutex
	live map[string]*box
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
	return over(opt, &host{live: map[string]*box{}, past: map[string]backend.Exit{}})
}

func over(opt Options, h *host) *Backend {
	b := &Backend{opt: opt, host: h}
	b.dead, b.die = context.WithCancel(context.Background())
	return b
}

// Restart is the sudden death of the process that b is in, and the next one:
// streams that b handed out are cut, what is asked of its instances fails, and
// nobody hears of their ends. The instances go on, for the Backend returned, but
// for those that were bound to b.
func (b *Backend) Restart() *Backend {
	b.die()
	b.mu.Lock()
	var bound []*box
	for _, i := range b.live {
		if i.bound == b {
			bound = append(bound, i)
		}
	}
	b.mu.Unlock()
	for _, i := range bound {
		i.end("owner")
	}
	return over(b.opt, b.host)
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
	if err := errors.Join(ctx.Err(), b.lost()); err != nil {
		return nil, err
	}
	if s.Link && b.opt.Gateway == nil {
		return nil, &api.Error{Code: api.CodeEgressUnavailable, Message: "isolation " + b.opt.Name + " cannot give a sandbox a link", Hint: api.Hint(api.CodeEgressUnavailable)}
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
	inside := agent.NewLocal(dir)
	if s.Track {
		if err := inside.Track(); err != nil {
			os.RemoveAll(dir)
			return nil, err
		}
	}
	life, kill := context.WithCancel(context.Background())
	i := &box{
		host: b.host, id: s.ID, link: s.Link, dir: dir, inside: &guestHost{Host: inside},
		life: life, kill: kill, free: make(chan struct{}, 1), gone: make(chan struct{}),
	}
	if s.Bound {
		i.bound = b
	}
	i.agent = agent.New(i.inside)
	i.free <- struct{}{}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !s.Extend {
		i.last = s.Deadline
	}
	i.arm(s.Deadline)
	b.live[s.ID] = i
	return &instance{b: b, box: i}, nil
}

// Attach implements backend.Backend.
func (b *Backend) Attach(_ context.Context, h backend.Handle) (backend.Instance, error) {
	if err := b.lost(); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := b.live[h.ID]; i != nil && h.Backend == b.opt.Name {
		return &instance{b: b, box: i}, nil
	}
	return nil, backend.ErrGone
}

func (b *Backend) lost() error {
	if b.dead.Err() != nil {
		return errors.New("mem: this process is dead")
	}
	return nil
}

// Held implements backend.Holder.
func (b *Backend) Held(context.Context) ([]backend.Held, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []backend.Held
	for id, i := range b.live {
		out = append(out, backend.Held{Handle: backend.Handle{Backend: b.opt.Name, ID: id}, Paused: i.gate != nil, Deadline: i.at})
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

// An instance is a box as one Backend sees it.
type instance struct {
	b *Backend
	*box
}

type box struct {
	*host
	inside *guestHost
	agent  *agent.Agent // outlives each stream, as in a machine
	id     string
	link   bool
	dir    string
	life   context.Context // ends with the box
	kill   context.CancelFunc
	bound  *Backend    // with whose process it ends; nil: with none
	last   time.Time   // the latest deadline that there can be; zero: any
	timer  *time.Timer // under mu, as what follows
	at     time.Time
	gate   chan struct{} // there while it is paused; closed when it goes on
	free   chan struct{} // holds a token while nobody has the stream
	gone   chan struct{}

	once  sync.Once
	serve sync.WaitGroup
	guest net.Conn // the guest's end of the stream
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
	case <-i.b.dead.Done():
		return nil, i.b.lost()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	ours, theirs := net.Pipe()
	i.mu.Lock() // orders this with end, which waits for what is being served
	defer i.mu.Unlock()
	if i.life.Err() != nil {
		return nil, backend.ErrGone
	}
	i.guest = theirs
	i.serve.Go(func() {
		defer theirs.Close()
		i.agent.Serve(i.life, &gated{Conn: theirs, box: i.box})
	})
	s := &stream{Conn: ours, release: sync.OnceFunc(func() { i.free <- struct{}{} })}
	stop := context.AfterFunc(i.b.dead, func() { s.Close() })
	context.AfterFunc(i.life, func() { stop() })
	return s, nil
}

type stream struct {
	net.Conn
	release func()
}

// A gated conn is the guest's end: nothing gets through while it is paused.
type gated struct {
	net.Conn
	box *box
}

func (g *gated) wait() {
	for {
		g.box.mu.Lock()
		gate := g.box.gate
		g.box.mu.Unlock()
		if gate == nil {
			return
		}
		select {
		case <-gate:
		case <-g.box.life.Done():
			return
		}
	}
}

func (g *gated) Read(b []byte) (int, error) {
	n, err := g.Conn.Read(b)
	g.wait()
	return n, err
}

func (g *gated) Write(b []byte) (int, error) {
	g.wait()
	return g.Conn.Write(b)
}

// Pause implements backend.Pauser: the guest is not heard and hears nothing.
func (i *instance) Pause(ctx context.Context) error {
	return i.turn(ctx, true)
}

// Resume implements backend.Pauser.
func (i *instance) Resume(ctx context.Context) error { return i.turn(ctx, false) }

func (i *instance) turn(ctx context.Context, pause bool) error {
	if err := errors.Join(ctx.Err(), i.b.lost()); err != nil {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.life.Err() != nil {
		return backend.ErrGone
	}
	if pause && i.gate == nil {
		i.gate = make(chan struct{})
	} else if !pause && i.gate != nil {
		close(i.gate)
		i.gate = nil
	}
	return nil
}

func (s *stream) Close() error {
	err := s.Conn.Close()
	s.release()
	return err
}

func (i *instance) Wait(ctx context.Context) (backend.Exit, error) {
	gone := i.gone
	if i.b.lost() != nil {
		gone = nil // a dead process hears of nothing
	}
	select {
	case <-gone:
		return i.exit, nil
	case <-ctx.Done():
		return backend.Exit{}, ctx.Err()
	}
}

func (i *instance) Stop(ctx context.Context) error {
	if err := i.b.lost(); err != nil {
		return err
	}
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
	if err := errors.Join(ctx.Err(), i.b.lost()); err != nil {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.life.Err() != nil {
		return backend.ErrGone
	}
	if t.IsZero() || !i.last.IsZero() && t.After(i.last) {
		t = i.last
	}
	i.arm(t)
	return nil
}

// arm sets the timer; the zero time is never. mu is held.
func (i *box) arm(t time.Time) {
	i.at = t
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

func (i *box) end(cause string) {
	i.once.Do(func() {
		i.mu.Lock()
		if i.timer != nil {
			i.timer.Stop()
		}
		if i.guest != nil {
			i.guest.Close() // before anything inside is seen to die
		}
		i.kill()
		delete(i.live, i.id)
		i.exit = backend.Exit{Cause: cause, Code: 137, At: time.Now(), Deadline: i.at}
		i.past[i.id] = i.exit
		i.mu.Unlock()
		i.inside.end()
		i.serve.Wait()
		os.RemoveAll(i.dir)
		close(i.gone)
	})
}

// A guestHost knows what was started on it, so that all of it ends with the instance.
type guestHost struct {
	agent.Host

	mu      sync.Mutex
	started []string
	ended   bool
}

func (h *guestHost) Start(s guest.Start) (agent.Proc, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended {
		return nil, syscall.ESRCH
	}
	h.started = append(h.started, s.ID)
	return h.Host.Start(s)
}

func (h *guestHost) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
	for _, id := range h.started {
		h.Kill(context.Background(), id, guest.EndedKilled)
	}
}

// Usage implements backend.Meter: time only, the rest is this process's own.
func (i *instance) Usage() (backend.Usage, error) { return backend.Usage{}, nil }
