package keeper

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
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
}

// A Ceiling bounds the sandboxes of one keeper.
type Ceiling struct {
	Limits    jail.Limits   `json:"limits"` // of each; zero in a field: not bounded
	Sandboxes int           `json:"sandboxes"`
	Life      time.Duration `json:"life"` // of each, from its launch; 0: not bounded
}

// maxInFlight bounds the requests that are worked on at one time. The next one
// is not read before.
const maxInFlight = 64

// A Keeper launches and ends sandboxes for one engine.
type Keeper struct {
	cfg      Config
	launcher *jail.Launcher
	groups   *jail.Hierarchy
	missing  map[string]error
	exe      *os.File
	state    *os.File // the state directory, to ask its file system
	conn     *net.UnixConn

	sendMu sync.Mutex // one message at a time on conn

	mu       sync.Mutex // guards what follows
	running  map[string]*sandbox
	launched int
	closing  bool
}

// Run serves one engine on engine until it or the owner goes away, then ends
// every sandbox, cleans up and returns. owner carries nothing: its end is the
// message. It also sweeps up what keepers that were killed have left.
func Run(cfg Config, owner, engine *net.UnixConn) error {
	k := &Keeper{cfg: cfg, conn: engine, running: map[string]*sandbox{}}
	if err := jail.Room(); err != nil {
		return err
	}
	k.groups, k.missing = jail.FindHierarchy()
	exe, err := os.Open(cfg.Runtime)
	if err != nil {
		return fmt.Errorf("runtime: %w", err)
	}
	k.exe = exe
	if k.state, err = os.Open(cfg.StateDir); err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	// The empty root is laid over the state directory, in a private namespace.
	k.launcher, err = jail.NewLauncher(cfg.StateDir, k.groups, cfg.Rootless)
	if err != nil {
		return err
	}
	defer k.launcher.Close()

	swept := make(chan struct{})
	go func() {
		defer close(swept)
		if !cfg.NoSweep {
			Sweep(k.runs(), false)
		}
	}()
	go func() {
		var b [1]byte
		for {
			if _, err := owner.Read(b[:]); err != nil {
				engine.Close() // serve ends, and with it everything
				return
			}
		}
	}()
	err = k.serve()
	k.shutdown()
	<-swept
	os.Remove(k.runs())
	return err
}

func (k *Keeper) runs() string { return filepath.Join(k.cfg.StateDir, "runs") }

func (k *Keeper) serve() error {
	buf := make([]byte, maxMessage)
	slots := make(chan struct{}, maxInFlight)
	for {
		slots <- struct{}{}
		var q request
		files, err := receive(k.conn, buf, &q)
		if err != nil {
			if errors.Is(err, net.ErrClosed) || errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("engine: %w", err)
		}
		// A launch is known before the next message is read, so that a stop
		// that comes right behind it finds it.
		var s *sandbox
		if q.Op == "launch" && q.Launch != nil {
			s, err = k.admit(*q.Launch)
		}
		go func() {
			defer func() { <-slots }()
			k.handle(q, s, err, files)
		}()
	}
}

func (k *Keeper) handle(q request, s *sandbox, err error, files []*os.File) {
	defer closeAll(files)
	var r reply
	var out []*os.File
	if err == nil {
		r, out, err = k.do(q, s, files)
	}
	if err != nil {
		var ref *Refusal
		if !errors.As(err, &ref) {
			ref = &Refusal{Code: "host.failure", Message: err.Error(), Hint: "berm doctor"}
		}
		r = reply{Err: ref}
	}
	r.Seq = q.Seq
	if err := k.post(r, out...); err != nil && r.Err == nil {
		// Nobody hears of what was done, so it must not stand.
		if s != nil {
			s.end(CauseStopped)
		}
		k.post(reply{Seq: q.Seq, Err: &Refusal{Code: "host.failure", Message: "answer: " + err.Error(), Hint: "berm doctor"}})
	}
	closeAll(out)
}

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
		r := reply{PID: s.pid, Parts: s.parts}
		if s.gauge != nil {
			names, files := s.gauge.Parts()
			r.Gauge, r.V2 = names, s.group.V2
			for _, f := range files { // the caller closes what it sends
				d, err := dup(f)
				if err != nil {
					closeAll(out)
					s.end(CauseStopped)
					return reply{}, nil, err
				}
				out = append(out, d)
			}
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
	}
	return reply{}, nil, fmt.Errorf("unknown request %q", q.Op)
}

// post sends to the engine. That it is gone is noticed by serve.
func (k *Keeper) post(v reply, files ...*os.File) error {
	k.sendMu.Lock()
	defer k.sendMu.Unlock()
	return send(k.conn, v, files...)
}

// facts says what this host can do. probe tries it out and looks for leaks.
func (k *Keeper) facts(probe bool) *Facts {
	f := &Facts{Rootless: k.cfg.Rootless, CgroupV2: k.groups != nil && k.groups.V2, Missing: map[string]string{}}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(k.state.Fd()), &fs); err == nil {
		f.StateFree = int64(fs.Bavail) * fs.Bsize
	}
	for c, err := range k.missing {
		f.Missing[c] = err.Error()
	}
	for _, v := range []string{"mds", "l1tf", "meltdown"} {
		b, err := os.ReadFile("/sys/devices/system/cpu/vulnerabilities/" + v)
		if err == nil && strings.HasPrefix(string(b), "Vulnerable") {
			f.CPU = append(f.CPU, v+": "+strings.TrimSpace(string(b)))
		}
	}
	if !probe {
		return f
	}
	if len(f.Missing) == 0 {
		if err := k.groups.Probe("berm-probe-" + strconv.Itoa(os.Getpid())); err != nil {
			f.Groups = err.Error()
		}
	}
	switch lease, err := jail.LeaseUID(); {
	case k.cfg.Rootless:
		f.OwnUIDs = "not started as root: every sandbox runs as the user who called berm"
	case err != nil:
		f.OwnUIDs = err.Error()
	default:
		lease.Release()
	}
	if scratch, err := jail.Scratch(k.cfg.StateDir); err != nil {
		f.State = err.Error()
	} else {
		scratch.Close()
	}
	f.WayOut = k.wayOut()
	f.Leaks = Leaks(k.cfg.StateDir, k.groups)
	return f
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

// A wanted is a cap that was asked for, the controller it stands on and its flag.
type wanted struct{ ctrl, flag string }

func (k *Keeper) asked(l jail.Limits) (out []wanted) {
	if l.MemoryBytes > 0 {
		out = append(out, wanted{"memory", "memory"})
	}
	if l.Tasks > 0 {
		out = append(out, wanted{"pids", "pids"})
	}
	if l.CPUs > 0 {
		out = append(out, wanted{"cpu", "cpus"})
	}
	return out
}

// unenforceable refuses a limit that this host cannot keep.
func (k *Keeper) unenforceable(l jail.Limits) error {
	for _, c := range k.asked(l) {
		if err := k.missing[c.ctrl]; err != nil {
			return &Refusal{
				Code:    "limit.unenforceable",
				Message: fmt.Sprintf("%s: this host cannot enforce the cap: %v", c.flag, err),
				Hint:    k.wayOut() + "; to accept that nothing enforces it: " + k.giveUp(l),
			}
		}
	}
	return nil
}

// wayOut is how a user gets cgroups on this host.
func (k *Keeper) wayOut() string {
	if k.groups != nil && k.groups.V2 {
		return "sudo berm ..., or in a cgroup of your own: systemd-run --user --scope -p Delegate=yes berm ..."
	}
	return "sudo berm ..." // v1 controllers are not handed to users
}

// giveUp names the flags of all the caps in l that this host cannot keep.
func (k *Keeper) giveUp(l jail.Limits) string {
	var out []string
	for _, c := range k.asked(l) {
		if k.missing[c.ctrl] != nil {
			out = append(out, "--"+c.flag+"=unlimited")
		}
	}
	return strings.Join(out, " ")
}

// Harden is what a keeper does for itself first: no core dumps, as many
// descriptors as it may have, and no signal of a terminal's.
func Harden() {
	unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
	var n unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &n) == nil {
		n.Cur = n.Max
		unix.Setrlimit(unix.RLIMIT_NOFILE, &n)
	}
	unix.Umask(0o022) // the worker, who is nobody, reads the figures of cgroups
}
