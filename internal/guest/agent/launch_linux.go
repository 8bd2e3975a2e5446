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

// rootCaps are the capabilities that the guest's root may have, as far as the
// agent has them itself: those of backend/gvisor by number.
const rootCaps = 1<<0 | 1<<1 | 1<<3 | 1<<4 | 1<<5 | 1<<6 | 1<<7 | 1<<8 | 1<<10 | 1<<13 | 1<<18 | 1<<27 | 1<<29 | 1<<31

// A launcher is a thread that starts processes. It gave up new privileges, and
// the capability bounding set but for what its children may have, for itself
// and so for all of them: done once, not at every start.
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

func newLauncher(keep uint64) *launcher {
	l := &launcher{work: make(chan launch)}
	go l.loop(keep)
	return l
}

func (l *launcher) loop(keep uint64) {
	runtime.LockOSThread()
	syscall.RawSyscall6(syscall.SYS_PRCTL, prSetNoNewPrivs, 1, 0, 0, 0, 0)
	for c := uintptr(0); c < 64; c++ {
		if keep>>c&1 != 0 {
			continue
		}
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

// threadSlack is how many threads more the agent may come to have.
const threadSlack = 16

// limitTasks sets what the next child inherits. The agent itself is exempt by
// its capabilities. l.mu is held.
func (l *Linux) limitTasks(pids int64, root bool) {
	n := rlimInfinity
	if pids > 0 {
		if l.gvisor && root {
			// The agent's threads and the first process of each exec count for root
			// too. There may be more of the former by the time it matters: the limit
			// is above the cap by that much, and the watcher sees who is at the cap.
			threads, _ := runtime.ThreadCreateProfile(nil)
			pids += int64(threads) + threadSlack
		} else if l.gvisor {
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
