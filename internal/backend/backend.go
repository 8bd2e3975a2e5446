// Package backend says what it takes to be a place where a sandbox runs. Each
// isolation kind (rung) implements Backend; the engine knows nothing else of
// it. A backend opens no route to anywhere by itself and knows no policy: what
// may leave a sandbox goes to the gateway at the far end of its only wire.
package backend

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/bermhq/berm/api"
)

// ErrGone is returned by Attach for an instance that has ended.
var ErrGone = errors.New("instance is gone")

// Info is constant data about a backend.
type Info struct {
	Name     string // the rung: "gvisor", ...
	Boundary string // the boundary class: "user-kernel", ...
}

// Spec is everything that one instance is made of. Nothing reaches the guest
// that is not named here.
type Spec struct {
	ID    string // sandbox id, ^[a-z0-9]{24,40}$; also the name of its host resources
	Image string // name of a root image in the template store
	// Upper are images that lie on top of Image, lowest first.
	Upper []string
	// Track keeps what is written apart, so that the guest can say what changed.
	Track bool
	// Root allows commands to be the guest's root: with the rights that a
	// container's root usually has, inside and nowhere else.
	Root     bool
	Hostname string
	Limits   api.Limits // defaults filled in; api.Unlimited where the caller said so
	Deadline time.Time  // the instance is killed by the host at this time; zero: never
	// Extend allows that SetDeadline moves the end past Deadline.
	Extend bool
	// Link gives the instance a wire, its only one: its far end is a gateway's,
	// which is started when the first frame comes. See Options of the backend
	// for who hears of that.
	Link bool
	// Bound has the host end the instance, with the cause "owner", as soon as
	// the process that started it is gone, however that came.
	Bound bool
}

// Handle finds a running instance again after a restart of the engine.
type Handle struct {
	Backend string `json:"backend"`
	ID      string `json:"id"`
}

// Exit is how an instance ended, as the host saw it.
type Exit struct {
	Cause string // "", or api.CapMemory, api.CapProcesses: the outer wall that ended it; or "stopped", "deadline", "owner", "disk"
	Code  int    // exit status or 128+signal of the outermost process

	At       time.Time // when; zero: not known
	Deadline time.Time // that it had then; zero: none, or not known
}

// Usage is what an instance took, from outside.
type Usage struct {
	CPU         time.Duration
	MemoryBytes int64 // now, without reclaimable page cache
	MemoryPeak  int64
	Tasks       int64 // host tasks now
	DiskBytes   int64 // allocated by the writable layer now
	OOMKills    int64 // times the host's memory cap killed
	TaskFails   int64 // times the host's task cap refused a fork
}

// A Backend starts instances of one isolation kind. It is safe for concurrent
// use. Start either returns a running instance or leaves no trace.
type Backend interface {
	Info() Info
	// Check says whether this host can run it; an *api.Error says what to enable.
	Check(ctx context.Context) error
	Start(ctx context.Context, s Spec) (Instance, error)
	// Attach finds an instance that Start made, also from another process.
	// It returns ErrGone if the instance has ended, and any other error if that
	// is not known.
	Attach(ctx context.Context, h Handle) (Instance, error)
}

// An Instance is one running sandbox.
type Instance interface {
	Handle() Handle
	// Agent returns the byte stream to the guest agent. Bytes on it are hostile.
	// The stream is one per instance: a second call gets it only after the
	// first connection was closed.
	Agent(ctx context.Context) (net.Conn, error)
	// Wait blocks until the instance has ended, however it ended.
	Wait(ctx context.Context) (Exit, error)
	// Stop ends the instance. It is idempotent and returns when no trace is
	// left on the host.
	Stop(ctx context.Context) error
}

// A Meter is an Instance that can say what it uses. After the end it says what
// was used in all.
type Meter interface {
	Usage() (Usage, error)
}

// A Deadliner is an Instance whose end can be moved. Whoever holds the deadline
// must be able to end the instance even if the engine is stuck or stopped.
type Deadliner interface {
	// SetDeadline has the host end the instance at t, with the cause
	// "deadline". It may be moved in both directions; it is never past
	// Spec.Deadline, and the zero time is that again. With Spec.Extend it may be
	// any time, and the zero time is never. A time that has passed ends the
	// instance now, a paused one too. It returns an error if the instance has
	// ended.
	SetDeadline(ctx context.Context, t time.Time) error
}

// A Pauser is an Instance that can be stopped and go on. A paused one uses no
// processor at all, keeps its memory, and can be stopped for good. Both calls
// are idempotent.
type Pauser interface {
	Pause(ctx context.Context) error
	Resume(ctx context.Context) error
}

// A Holder is a Backend whose instances outlive the process that started them.
type Holder interface {
	// Held lists what runs, and what ended while nobody was told. An ended one
	// is listed again until Forget.
	Held(ctx context.Context) ([]Held, error)
	// Forget drops what is known of an ended instance.
	Forget(ctx context.Context, id string) error
}

// Held is one instance that a Holder knows.
type Held struct {
	Handle
	Ended    bool
	Exit     Exit      // of an ended one
	Usage    Usage     // of an ended one: all that it used
	Paused   bool      // of one that runs
	Deadline time.Time // of one that runs; zero: none
}

// Timed is an Instance that says what its start was spent on, in milliseconds
// per step.
type Timed interface {
	Timings() map[string]float64
}

// A Weakened Backend knows facts of the host that make a sandbox with these
// limits less than its boundary class and its caps say.
type Weakened interface {
	HostFacts(ctx context.Context, l api.Limits) ([]string, error)
}

// A Doctor is a Backend (or what it stands on) that explains the host's walls.
type Doctor interface {
	Walls(ctx context.Context) ([]api.Wall, error)
	// Leaks lists what ended sandboxes have left on the host.
	Leaks(ctx context.Context) ([]api.Leak, error)
}
