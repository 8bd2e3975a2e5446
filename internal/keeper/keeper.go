package keeper

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bermhq/berm/internal/jail"
)

// Config is what a keeper stands on.
type Config struct {
	StateDir string // runs/ and templates/ are below it
	Runtime  string // the program that sandboxes run, on the host
	Rootless bool   // root only in a user namespace of its own
	NoSweep  bool   // leave what dead keepers left, to look at it

	// Ceiling, if there is one, is the most that the engine may ask for: what
	// parses hostile bytes cannot widen what the caller of berm wanted.
	Ceiling *Ceiling

	// What follows is for Serve.
	DaemonUID int           // may connect too, beside root and the keeper's own uid; 0: nobody else
	Linger    time.Duration // how long ModeLinger waits with nothing to do; 0: 10 s

	ask    time.Duration // how long a sandbox may take to answer; 0: askTime
	perSec int           // requests that a daemon may make in a second; 0: maxPerSecond
	every  time.Duration // the least time between two gateways of one sandbox; 0: gatewayEvery
	worn   time.Duration // the same after maxGateways of them; 0: gatewayWorn
}

// A Ceiling bounds the sandboxes of one keeper.
type Ceiling struct {
	Limits    jail.Limits   `json:"limits"`    // of each; zero in a field: not bounded
	Sandboxes int           `json:"sandboxes"` // in all; under Serve: at one time
	Life      time.Duration `json:"life"`      // of each, from its launch; 0: not bounded
	Link      bool          `json:"link"`      // they may have one
}

// A Keeper launches and ends sandboxes for one engine at a time.
type Keeper struct {
	cfg      Config
	mode     Mode
	launcher *jail.Launcher
	groups   *jail.Hierarchy
	missing  map[string]error
	exe      *os.File
	state    *os.File      // the state directory, to ask its file system
	stir     chan struct{} // something changed that Serve waits for

	probing sync.Mutex // held while something is tried out

	mu       sync.Mutex    // guards what follows
	link     *link         // the engine; nil: there is none now
	arrival  chan struct{} // closed when there is one again; nil: nobody waits for that
	running  map[string]*sandbox
	past     []Exited // that no engine has noted yet, oldest first; not under Run
	launched int
	closing  bool
	over     bool // a daemon ended all and was told so
}

// newKeeper readies all that launching needs. The caller closes the launcher.
func newKeeper(cfg Config, mode Mode) (*Keeper, error) {
	if cfg.ask <= 0 {
		cfg.ask = askTime
	}
	if cfg.perSec <= 0 {
		cfg.perSec = maxPerSecond
	}
	if cfg.every <= 0 {
		cfg.every = gatewayEvery
	}
	if cfg.worn <= 0 {
		cfg.worn = gatewayWorn
	}
	k := &Keeper{cfg: cfg, mode: mode, running: map[string]*sandbox{}, stir: make(chan struct{}, 1)}
	if err := jail.Room(); err != nil {
		return nil, err
	}
	k.groups, k.missing = jail.FindHierarchy()
	exe, err := os.Open(cfg.Runtime)
	if err != nil {
		return nil, fmt.Errorf("runtime: %w", err)
	}
	k.exe = exe
	if k.state, err = os.Open(cfg.StateDir); err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	// The empty root is laid over the state directory, in a private namespace.
	k.launcher, err = jail.NewLauncher(cfg.StateDir, k.groups, cfg.Rootless)
	return k, err
}

// sweep cleans up what dead keepers left, beside the rest.
func (k *Keeper) sweep() (done chan struct{}) {
	done = make(chan struct{})
	go func() {
		defer close(done)
		if !k.cfg.NoSweep {
			Sweep(k.runs(), false)
		}
	}()
	return done
}

// Run serves one engine on engine until it or the owner goes away, then ends
// every sandbox, cleans up and returns. owner carries one message, see Up; its
// end is the other. It also sweeps up what keepers that were killed have left.
func Run(cfg Config, owner, engine *net.UnixConn) error {
	k, err := newKeeper(cfg, ModeOwner)
	if err != nil {
		owner.Write([]byte(err.Error()))
		return err
	}
	owner.Write([]byte(up))
	defer k.launcher.Close()
	swept := k.sweep()
	go func() {
		var b [1]byte
		for {
			if _, err := owner.Read(b[:]); err != nil {
				engine.Close() // serve ends, and with it everything
				return
			}
		}
	}()
	k.link = &link{conn: engine}
	err = k.serve(k.link)
	k.shutdown()
	<-swept
	os.Remove(k.runs())
	return err
}

func (k *Keeper) runs() string { return filepath.Join(k.cfg.StateDir, "runs") }

func (k *Keeper) do(q request, s *sandbox, files []*os.File) (reply, []*os.File, error) {
	switch q.Op {
	case "launch":
		if s == nil {
			return reply{}, nil, errors.New("launch: request is not whole")
		}
		out, err := k.launch(s, *q.Launch, files)
		if err != nil {
			return reply{}, nil, err
		}
		r := reply{PID: s.pid, Parts: s.parts, Control: true, Link: s.wire != nil}
		if out, err = s.addGauge(&r, out); err != nil {
			s.end(CauseStopped)
			return reply{}, nil, err
		}
		return r, out, nil
	case "stop":
		if s := k.find(q.ID); s != nil {
			s.end(CauseStopped)
			<-s.gone
		}
		return reply{}, nil, nil
	case "deadline":
		s := k.find(q.ID)
		if s == nil {
			return reply{}, nil, &Refusal{Code: "sandbox.not-found", Message: "no such sandbox: " + q.ID}
		}
		s.setDeadline(q.DeadlineMS)
		return reply{}, nil, nil
	case "facts":
		return reply{Facts: k.facts(q.Probe)}, nil, nil
	case "hello":
		h, err := k.greet(q)
		return reply{Hello: h}, nil, err
	case "list":
		held, more := k.list(q.ID)
		return reply{Held: held, More: more}, nil, nil
	case "ended":
		past, more := k.ended(q.ID)
		return reply{Past: past, More: more}, nil, nil
	case "forget":
		k.forget(q.ID)
		return reply{}, nil, nil
	case "attach":
		return k.attach(q.ID)
	case "control":
		return k.control(q.ID)
	case "pause", "resume":
		return reply{}, nil, k.pauseOrResume(q.ID, q.Op == "pause")
	case "shutdown":
		k.end()
		return reply{}, nil, nil
	}
	return reply{}, nil, fmt.Errorf("unknown request %q", q.Op)
}

func (k *Keeper) find(id string) *sandbox {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.running[id]
}

// shutdown ends every sandbox and returns when nothing of them is left, or
// after two seconds: what then still stands is left to the next sweep.
func (k *Keeper) shutdown() {
	k.mu.Lock()
	k.closing = true
	all := make([]*sandbox, 0, len(k.running))
	for _, s := range k.running {
		all = append(all, s)
	}
	k.mu.Unlock()
	for _, s := range all {
		s.end(CauseOwner)
	}
	limit := time.After(2 * time.Second)
	for _, s := range all {
		select {
		case <-s.gone:
		case <-limit:
			return
		}
	}
}

// Harden is what a keeper does for itself first: no core dumps, as many
// descriptors as it may have, and no signal of a terminal's.
func Harden() {
	unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
	jail.RaiseFiles()
	unix.Umask(0o022) // the worker, who is nobody, reads the figures of cgroups
}
