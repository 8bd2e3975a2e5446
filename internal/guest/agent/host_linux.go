package agent

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/bermhq/berm/internal/guest"
)

// Linux is the machine the agent runs on: a gVisor sandbox or a real kernel.
// As process 1 it owns every process there is; elsewhere, in tests, only those
// it started.
type Linux struct {
	first  bool // process 1
	gvisor bool
	began  time.Time
	null   int // /dev/null for reading
	users  *launcher
	roots  *launcher // nil until needed

	mu      sync.Mutex // held over each fork until its child is registered
	running map[int]*process
	execs   map[string]*exec // those of which something may live
	lastTag uint32
	env     []string
	child   chan struct{} // a first child was born
	watch   watcher
}

// An exec is one Start and all that came of it. Every process of it carries
// its tag as a supplementary group, which takes a privilege to drop.
type exec struct {
	id   string
	tag  uint32
	main *process // nil once it has ended
}

// tagBase is the first tag. No group database reaches that far.
const tagBase = 2_000_000_000

// NewLinux takes over this machine: from here on its children are reaped.
func NewLinux() *Linux {
	l := &Linux{
		first:   os.Getpid() == 1,
		gvisor:  onGVisor(),
		began:   time.Now(),
		running: make(map[int]*process),
		execs:   make(map[string]*exec),
		lastTag: tagBase,
		child:   make(chan struct{}, 1),
	}
	if !l.first {
		// Other agents may run here too: keep tags apart, adopt orphans.
		l.lastTag += uint32(os.Getpid()) * 500
		syscall.RawSyscall(syscall.SYS_PRCTL, prSetChildSubreaper, 1, 0)
	}
	syscall.Umask(0o022)
	l.null, _ = syscall.Open("/dev/null", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	setrlimit(syscall.RLIMIT_NOFILE, 65536)
	setrlimit(syscall.RLIMIT_CORE, 0)
	l.users = newLauncher(0)
	go l.reap()
	return l
}

// onGVisor looks into the kernel's log, which gVisor makes up but for its name.
func onGVisor() bool {
	var b [512]byte
	n, err := syscall.Klogctl(3, b[:]) // SYSLOG_ACTION_READ_ALL
	if err != nil {
		return false
	}
	const name = "gVisor"
	for i := 0; i+len(name) <= n; i++ {
		if string(b[i:i+len(name)]) == name {
			return true
		}
	}
	return false
}

// Files are this machine's own.
func (l *Linux) Files() Files { return Files{Own: os.Geteuid() == 0} }

// Boot says what is known of this machine.
func (l *Linux) Boot() guest.Boot {
	b := guest.Boot{StartNanos: l.began.UnixNano(), PID: os.Getpid(), Kernel: "linux"}
	if l.gvisor {
		b.Kernel = "gvisor"
	}
	b.Hostname, _ = os.Hostname()
	return b
}

// Usage samples once.
func (l *Linux) Usage() guest.Usage {
	s := l.sample()
	u := guest.Usage{
		Tasks: s.tasks, AgentTasks: s.agent,
		MemoryBytes: s.memory, MemoryTotal: s.memoryTotal,
		DiskBytes: s.disk, DiskTotal: s.diskTotal,
	}
	l.mu.Lock()
	u.Processes = int64(len(l.running))
	l.mu.Unlock()
	return u
}

// Control makes this machine another one. Where the kernel lets nobody set the
// clock (gVisor follows its host's) that part is skipped.
func (l *Linux) Control(id guest.Identity) error {
	if !l.first { // a test: this is not our machine
		id.Hostname, id.UnixNanos = "", 0
	}
	if id.Hostname != "" {
		if err := syscall.Sethostname([]byte(id.Hostname)); err != nil {
			return err
		}
	}
	if id.UnixNanos != 0 {
		tv := syscall.NsecToTimeval(id.UnixNanos)
		if err := syscall.Settimeofday(&tv); err != nil && !l.gvisor {
			return err
		}
	}
	if len(id.Seed) > 0 {
		if err := reseed(id.Seed); err != nil && !l.gvisor {
			return err
		}
	}
	l.mu.Lock()
	l.env = append([]string(nil), id.Env...)
	l.mu.Unlock()
	return nil
}

// reseed stirs the seed in; it counts as fresh even if the kernel knows better.
func reseed(seed []byte) error {
	fd, err := syscall.Open("/dev/urandom", syscall.O_WRONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	_, err = syscall.Write(fd, seed)
	return err
}

// outlive has the agent pass over signals that would end it: the guest's root can
// send them.
func outlive() {
	nowhere := make(chan os.Signal, 1)
	signal.Notify(nowhere, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGPIPE,
		syscall.SIGALRM, syscall.SIGABRT, syscall.SIGTRAP, syscall.SIGSYS, syscall.SIGXCPU, syscall.SIGXFSZ, syscall.SIGVTALRM, syscall.SIGIO, syscall.SIGPWR)
}

// reap waits for every child, the adopted ones included.
func (l *Linux) reap() {
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, wallChildren, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil: // no children now
			<-l.child
		default:
			l.mu.Lock()
			p := l.running[pid]
			if delete(l.running, pid); p != nil {
				p.ended(ws)
			}
			l.mu.Unlock()
		}
	}
}
