package agent

import (
	"errors"
	"io"
	"os"
	"path"
	"strings"
	"syscall"
	"time"

	"github.com/bermhq/berm/internal/guest"
)

// A process is the first process of an exec.
type process struct {
	l     *Linux
	ex    *exec
	s     guest.Start
	pid   int
	stdin *os.File
	out   [2]*output // stdout, stderr
	pts   int        // the terminal's number, or -1
	over  chan struct{}
	// sights holds the latest sighting until the host can be told.
	sights chan guest.Exit

	// Below, l.mu.
	gone   bool
	seen   seen
	told   guest.Exit // the last that went to sights
	toldAt time.Time
	ending string        // why it is being ended, if it is
	slain  chan struct{} // then: closed when the rest of its exec is gone too
	exit   guest.Exit
}

// Start runs one process in a session of its own, with the rights of its user
// and no others.
func (l *Linux) Start(s guest.Start) (Proc, error) {
	if len(s.Args) == 0 {
		return nil, syscall.EINVAL
	}
	dir := path.Clean("/" + s.Dir)
	if st, err := os.Stat(dir); err != nil || !st.IsDir() {
		return nil, refusal{"working directory " + dir, syscall.ENOTDIR}
	}
	l.mu.Lock()
	s.Env = append(append([]string(nil), l.env...), s.Env...)
	l.mu.Unlock()
	exe, err := lookPath(s.Args[0], dir, s.Env)
	if err != nil {
		return nil, err
	}
	p := &process{l: l, s: s, pts: -1, over: make(chan struct{}), sights: make(chan guest.Exit, 1)}
	child, err := p.wire()
	if err != nil {
		p.closeAll()
		return nil, err
	}
	attr := &syscall.ProcAttr{Dir: dir, Env: s.Env, Files: child, Sys: &syscall.SysProcAttr{Setsid: true}}
	if s.TTY {
		attr.Sys.Setctty = true
	}
	err = l.fork(p, exe, attr)
	for i, fd := range child {
		if int(fd) != l.null && (i == 0 || fd != child[i-1]) {
			syscall.Close(int(fd))
		}
	}
	if err != nil {
		p.closeAll()
		return nil, startError(s.Args[0], exe, err)
	}
	return p, nil
}

// fork starts p and registers it before anybody can reap it.
func (l *Linux) fork(p *process, exe string, attr *syscall.ProcAttr) error {
	groups := groupsOf(p.s.UID, p.s.GID)
	l.mu.Lock()
	defer l.mu.Unlock()
	if ex := l.execs[p.s.ID]; ex != nil {
		return syscall.EEXIST
	}
	l.lastTag++
	ex := &exec{id: p.s.ID, tag: l.lastTag, main: p}
	attr.Sys.Credential = &syscall.Credential{Uid: p.s.UID, Gid: p.s.GID, Groups: append(groups, ex.tag)}
	by := l.users
	if p.s.UID == 0 {
		if l.roots == nil {
			l.roots = newLauncher(rootCaps)
			outlive()
		}
		by = l.roots
	}
	l.limitTasks(p.s.Pids, p.s.UID == 0)
	pid, err := by.start(exe, p.s.Args, attr)
	if err != nil {
		return err
	}
	p.ex, p.pid = ex, pid
	l.running[pid] = p
	l.execs[ex.id] = ex
	select {
	case l.child <- struct{}{}:
	default:
	}
	l.watch.begin(l)
	return nil
}

func startError(name, exe string, err error) error {
	var no syscall.Errno
	if !errors.As(err, &no) {
		return err
	}
	if no == syscall.ENOENT && exe != "" {
		return refusal{name + ": its interpreter is missing", no}
	}
	return refusal{name, no}
}

// lookPath finds what a shell would run: names with a slash are taken as they
// are, below dir; others are looked for in PATH of env.
func lookPath(name, dir string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		full := name
		if !path.IsAbs(name) {
			full = path.Join(dir, name)
		}
		if err := executable(full); err != nil {
			return "", refusal{name, err.(syscall.Errno)}
		}
		return full, nil
	}
	where := "/usr/local/bin:/usr/bin:/bin"
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			where = v
		}
	}
	best := syscall.ENOENT
	for _, d := range strings.Split(where, ":") {
		full := path.Join(d, name)
		if !path.IsAbs(full) {
			full = path.Join(dir, full)
		}
		err := executable(full)
		if err == nil {
			return full, nil
		}
		if err == error(syscall.EACCES) {
			best = syscall.EACCES
		}
	}
	return "", refusal{name, best}
}

func executable(full string) error {
	st, err := os.Stat(full)
	if err != nil {
		var no syscall.Errno
		if errors.As(err, &no) {
			return no
		}
		return syscall.ENOENT
	}
	if st.IsDir() || st.Mode()&0o111 == 0 {
		return syscall.EACCES
	}
	return nil
}

// wire makes the ends of the three standard descriptors and returns the child's.
func (p *process) wire() ([]uintptr, error) {
	if p.s.TTY {
		return p.wireTTY()
	}
	in := p.l.null
	if p.s.Stdin || in < 0 {
		var fds [2]int
		if err := syscall.Pipe2(fds[:], syscall.O_CLOEXEC); err != nil {
			return nil, err
		}
		in = fds[0]
		if p.s.Stdin {
			p.stdin = nonblock(fds[1], "stdin")
		} else {
			syscall.Close(fds[1])
		}
	}
	child := []uintptr{uintptr(in)}
	for i := range p.out {
		var fds [2]int
		if err := syscall.Pipe2(fds[:], syscall.O_CLOEXEC); err != nil {
			return child, err
		}
		p.out[i] = newOutput(fds[0])
		child = append(child, uintptr(fds[1]))
	}
	return child, nil
}

func (p *process) wireTTY() ([]uintptr, error) {
	m, s, n, err := openTTY(p.s.UID, p.s.GID)
	if err != nil {
		return nil, err
	}
	p.pts, p.out[0] = n, newOutput(m)
	p.out[0].tty = true
	if p.s.Rows|p.s.Cols != 0 {
		setWinsize(m, p.s.Rows, p.s.Cols)
	}
	return []uintptr{uintptr(s), uintptr(s), uintptr(s)}, nil
}

func nonblock(fd int, name string) *os.File {
	syscall.SetNonblock(fd, true)
	return os.NewFile(uintptr(fd), name)
}

func (p *process) closeAll() {
	if p.stdin != nil {
		p.stdin.Close()
	}
	for _, o := range p.out {
		if o != nil {
			o.Close()
		}
	}
}

// PID is the process's number.
func (p *process) PID() int { return p.pid }

// Stdin is the pipe, or the terminal's keyboard.
func (p *process) Stdin() io.WriteCloser {
	switch {
	case p.pts >= 0:
		return &keyboard{p: p}
	case p.stdin != nil:
		return p.stdin
	}
	return nil
}

// Output is one of the outputs; a terminal has one.
func (p *process) Output(s guest.Stream) io.ReadCloser {
	if o := p.out[s-1]; o != nil {
		return o
	}
	return nil
}

// Wait waits for the end of the process itself, and if somebody ended it, of
// everything that it started.
func (p *process) Wait() guest.Exit {
	<-p.over
	if p.exit.EndedBy != "" {
		<-p.slain
	}
	return p.exit
}

// Seen brings what the watcher sees.
func (p *process) Seen() <-chan guest.Exit { return p.sights }

// Signal goes to the foreground group of the terminal, or to the session
// leader's group.
func (p *process) Signal(sig int) error {
	p.l.mu.Lock()
	defer p.l.mu.Unlock()
	if p.gone {
		return syscall.ESRCH
	}
	group := p.pid
	if sig != int(syscall.SIGKILL) {
		if g := p.foreground(); g > 1 {
			group = g
		}
	}
	return syscall.Kill(-group, syscall.Signal(sig))
}

// ended records how the process ended. l.mu is held.
func (p *process) ended(ws syscall.WaitStatus) {
	e := guest.Exit{}
	if ws.Signaled() {
		e.Signal = int(ws.Signal())
		// Whoever was ending it said so first, and this is how they do it.
		if ws.Signal() == syscall.SIGKILL {
			e.EndedBy = p.ending
		}
	} else {
		e.Code = ws.ExitStatus()
	}
	p.gone = true
	p.ex.main = nil
	last := p.l.sample()
	p.look(last)
	if e.EndedBy == guest.EndedMemory || e.EndedBy == guest.EndedProcesses {
		p.seen.touch(e.EndedBy)
	}
	s := p.seen.exit()
	e.Caps, e.PidsPeak, e.MemoryPeak, e.DiskPeak = s.Caps, s.PidsPeak, s.MemoryPeak, s.DiskPeak
	close(p.sights)
	p.l.watch.end(p.l)
	e.Background = p.ending == "" && p.l.settle(p.ex, last)
	p.exit = e
	for _, o := range p.out {
		if o != nil {
			o.ending(time.Now().Add(grace))
		}
	}
	close(p.over)
}

// settle forgets the execs of which nothing is left, and says whether something
// of ex is. l.mu is held.
func (l *Linux) settle(ex *exec, s sample) (left bool) {
	live := make(map[uint32]bool)
	if s.tasks > int64(len(l.running)) { // else nothing but first processes lives
		for _, t := range l.tasks() {
			if !t.zombie {
				live[t.tag] = true
			}
		}
	}
	for id, e := range l.execs {
		if e.main == nil && !live[e.tag] && !(l.first && live[0]) {
			delete(l.execs, id)
		}
	}
	return live[ex.tag]
}
