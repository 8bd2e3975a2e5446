package agent

import (
	"context"
	"io"
	"os"
	"path"
	"sync"
	"syscall"
	"time"

	"github.com/bermhq/berm/internal/guest"
)

// A Local is a Host in this process, for tests and the fake backend. It runs no
// program of the machine: its commands are the builtins in builtin.go, and its
// files are those below one directory. It keeps no wall of any kind.
type Local struct {
	dir   string
	began time.Time

	mu    sync.Mutex
	procs map[string]*localProc
	env   []string
	name  string
	last  int                       // PID
	base  map[string]guest.FileInfo // what Track saw, by name inside
}

// NewLocal returns a Host whose files are below dir.
func NewLocal(dir string) *Local {
	return &Local{dir: dir, began: time.Now(), procs: make(map[string]*localProc), name: "local"}
}

// Boot says that this is no machine at all.
func (l *Local) Boot() guest.Boot {
	l.mu.Lock()
	defer l.mu.Unlock()
	return guest.Boot{Hostname: l.name, Kernel: "none", StartNanos: l.began.UnixNano(), PID: 1}
}

// Files are those below the directory.
func (l *Local) Files() Files { return Files{Root: l.dir} }

// Start runs a builtin.
func (l *Local) Start(s guest.Start) (Proc, error) {
	if len(s.Args) == 0 {
		return nil, syscall.EINVAL
	}
	run, err := l.lookup(s.Args[0])
	if err != nil {
		return nil, refusal{s.Args[0], err.(syscall.Errno)}
	}
	p := &localProc{l: l, s: s, over: make(chan struct{}), sights: make(chan guest.Exit, 1)}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.procs[s.ID] != nil {
		return nil, syscall.EEXIST
	}
	l.procs[s.ID] = p
	l.last++
	p.pid = 1 + l.last
	p.s.Env = append(append([]string(nil), l.env...), s.Env...)
	for i := range p.outR {
		p.outR[i], p.outW[i] = io.Pipe()
	}
	p.inR, p.inW = io.Pipe()
	if !s.Stdin && !s.TTY {
		p.inW.Close()
	}
	go p.run(run)
	return p, nil
}

func (l *Local) lookup(name string) (builtin, error) {
	base := path.Base(name)
	if b := command(base); b != nil && (name == base || name == "/bin/"+base || name == "/usr/bin/"+base) {
		return b, nil
	}
	if full, err := l.Files().abs(name); err == nil {
		if _, err := os.Lstat(full); err == nil {
			return nil, syscall.EACCES
		}
	}
	return nil, syscall.ENOENT
}

// Kill ends one builtin.
func (l *Local) Kill(ctx context.Context, id, why string) guest.KillReply {
	l.mu.Lock()
	p := l.procs[id]
	l.mu.Unlock()
	if p == nil {
		return guest.KillReply{}
	}
	p.end(guest.Exit{Signal: 9, EndedBy: why})
	<-p.over
	return guest.KillReply{Killed: 1}
}

// Usage counts builtins.
func (l *Local) Usage() guest.Usage {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := int64(len(l.procs))
	return guest.Usage{Tasks: n, AgentTasks: 1, Processes: n}
}

// Control takes the name and the environment.
func (l *Local) Control(id guest.Identity) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if id.Hostname != "" {
		l.name = id.Hostname
	}
	l.env = append([]string(nil), id.Env...)
	return nil
}

// A localProc is a running builtin.
type localProc struct {
	l      *Local
	s      guest.Start
	pid    int // of its own making
	ctx    context.Context
	cancel context.CancelFunc
	inR    *io.PipeReader
	inW    *io.PipeWriter
	outR   [2]*io.PipeReader
	outW   [2]*io.PipeWriter
	over   chan struct{}
	sights chan guest.Exit // the builtin's own

	mu    sync.Mutex
	early *guest.Exit // how it was ended from outside, if it was
	exit  guest.Exit
}

func (p *localProc) run(b builtin) {
	e := b(&stdio{ctx: p.ctx, p: p, in: p.inR, out: p.outW[0], err: p.outW[1]}, p.s.Args)
	close(p.sights)
	p.inR.CloseWithError(syscall.EPIPE)
	p.mu.Lock()
	if p.early != nil {
		e = *p.early
	}
	p.exit = e
	p.mu.Unlock()
	p.cancel()
	p.l.mu.Lock()
	delete(p.l.procs, p.s.ID)
	p.l.mu.Unlock()
	p.outW[0].Close()
	p.outW[1].Close()
	close(p.over)
}

// end makes the builtin stop wherever it is.
func (p *localProc) end(e guest.Exit) {
	p.mu.Lock()
	if p.early == nil {
		p.early = &e
	}
	p.mu.Unlock()
	p.cancel()
	p.inR.CloseWithError(syscall.EPIPE)
	p.outW[0].Close()
	p.outW[1].Close()
}

// PID is a number of this Local's own.
func (p *localProc) PID() int { return p.pid }

func (p *localProc) Stdin() io.WriteCloser {
	if !p.s.Stdin && !p.s.TTY {
		return nil
	}
	return p.inW
}

func (p *localProc) Output(s guest.Stream) io.ReadCloser {
	if p.s.TTY && s == guest.Stderr {
		go io.Copy(io.Discard, p.outR[1])
		return nil
	}
	return p.outR[s-1]
}

func (p *localProc) Wait() guest.Exit {
	<-p.over
	return p.exit
}

func (p *localProc) Signal(sig int) error {
	if sig > 0 && sig != int(syscall.SIGCHLD) && sig != int(syscall.SIGWINCH) && sig != int(syscall.SIGCONT) {
		p.end(guest.Exit{Signal: sig})
	}
	return nil
}

func (p *localProc) Resize(rows, cols uint16) error { return nil }

// Seen brings what a builtin says was seen.
func (p *localProc) Seen() <-chan guest.Exit { return p.sights }

// Close ends every builtin.
func (l *Local) Close() error {
	l.mu.Lock()
	var all []*localProc
	for _, p := range l.procs {
		all = append(all, p)
	}
	l.mu.Unlock()
	for _, p := range all {
		p.end(guest.Exit{Signal: 9, EndedBy: guest.EndedKilled})
		<-p.over
	}
	return nil
}
