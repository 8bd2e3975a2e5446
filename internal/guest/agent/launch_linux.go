package agent

import (
	"runtime"
	"syscall"
)

const (
	prSetNoNewPrivs     = 38
	prCapbsetDrop       = 24
	prSetChildSubreaper = 36
	wallChildren        = 0x40000000 // __WALL
	rlimitNproc         = 6
	rlimInfinity        = ^uint64(0)
)

// A launcher is a thread that starts processes. It gave up new privileges, and
// for ordinary users the capability bounding set, for itself and so for all its
// children: done once, not at every start.
type launcher struct {
	work chan launch
}

type launch struct {
	path  string
	args  []string
	attr  *syscall.ProcAttr
	reply chan launched
}

type launched struct {
	pid int
	err error
}

func newLauncher(drop bool) *launcher {
	l := &launcher{work: make(chan launch)}
	go l.loop(drop)
	return l
}

func (l *launcher) loop(drop bool) {
	runtime.LockOSThread()
	syscall.RawSyscall6(syscall.SYS_PRCTL, prSetNoNewPrivs, 1, 0, 0, 0, 0)
	for c := uintptr(0); drop && c < 64; c++ {
		if _, _, no := syscall.RawSyscall(syscall.SYS_PRCTL, prCapbsetDrop, c, 0); no != 0 {
			break // beyond the last, or not ours to drop
		}
	}
	for w := range l.work {
		pid, err := syscall.ForkExec(w.path, w.args, w.attr)
		w.reply <- launched{pid, err}
	}
}

func (l *launcher) start(path string, args []string, attr *syscall.ProcAttr) (int, error) {
	w := launch{path: path, args: args, attr: attr, reply: make(chan launched, 1)}
	l.work <- w
	r := <-w.reply
	return r.pid, r.err
}

// limitTasks sets what the next child inherits. The agent itself is exempt by
// its capabilities. l.mu is held.
func (l *Linux) limitTasks(pids int64) {
	n := rlimInfinity
	if pids > 0 {
		if l.gvisor {
			// gVisor counts a task for the user that cloned it, so the first
			// process of each exec counts for root and not for its own user.
			pids = max(0, pids-int64(len(l.running))-1)
		}
		n = uint64(pids)
	}
	setrlimit(rlimitNproc, n)
}

func setrlimit(what int, n uint64) {
	syscall.Setrlimit(what, &syscall.Rlimit{Cur: n, Max: n})
}
