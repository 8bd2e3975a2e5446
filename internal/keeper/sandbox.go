package keeper

import (
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bermhq/berm/internal/jail"
)

// A sandbox is one child and all that the host holds for it.
type sandbox struct {
	id    string
	pid   int
	group *jail.Cgroup
	gauge *jail.Gauge
	lease *jail.Lease
	claim *claim
	upper *os.File
	agent *os.File // our own end of its stream, for the next engine; nil under Run
	unOOM func()

	once    sync.Once
	last    int64 // the latest deadline there can be, Unix milliseconds; 0: any
	started time.Time
	ask     Launch // what it was launched with
	by      *link  // over which it was launched
	wire    *wire  // nil: it has no link

	hold     sync.Mutex // guards the descriptors above against being released
	released bool

	pausing sync.Mutex    // one pause or resume at a time; guards the next two
	asked   *net.UnixConn // over which it was asked to stop by itself; nil: it was not
	stopped []int         // processes that were stopped by signals

	mu       sync.Mutex // guards what follows
	timer    *time.Timer
	deadline int64
	proc     *os.Process
	cause    string
	up       bool          // the engine has been told that it is up
	telling  chan struct{} // closed when it has, or could not be; nil: still coming up
	paused   bool
	gone     chan struct{} // closed when nothing is left

	lap   time.Time
	parts map[string]float64 // milliseconds of each step of the launch
}

// step notes what the time since the last step was spent on.
func (s *sandbox) step(name string) {
	now := time.Now()
	s.parts[name] = float64(now.Sub(s.lap).Microseconds()) / 1000
	s.lap = now
}

// maxUnkept bounds what is told of a clean-up that failed: a page of ends must
// fit a message.
const maxUnkept = 300

// bootTimeout bounds the time from fork to the byte that says "up".
const bootTimeout = 20 * time.Second

// end kills the child, or the one that is about to be born; the first cause
// stands.
func (s *sandbox) end(cause string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause == "" {
		s.cause = cause
	}
	if s.proc != nil {
		s.proc.Signal(syscall.SIGKILL)
	}
}

// setDeadline has the child ended at a time, Unix milliseconds, or at the last
// time that it was launched with. With neither, never.
func (s *sandbox) setDeadline(ms int64) {
	if s.last > 0 && (ms <= 0 || ms > s.last) {
		ms = s.last
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
	s.deadline = max(ms, 0)
	if ms > 0 {
		s.timer = time.AfterFunc(time.Until(time.UnixMilli(ms)), func() { s.end(CauseDeadline) })
	}
}

// stopTimer ends all deadlines.
func (s *sandbox) stopTimer() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer != nil {
		s.timer.Stop()
	}
}

// born notes the child, and kills it if its end came first.
func (s *sandbox) born(p *os.Process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proc = p
	if s.cause != "" {
		p.Signal(syscall.SIGKILL)
	}
}

// wait sees the child's end, cleans up and tells the engine.
func (s *sandbox) wait(k *Keeper) {
	st, err := s.proc.Wait()
	if s.wire != nil {
		s.wire.end() // it counts in the group, whose figures are taken next
	}
	e := Exited{ID: s.id, Code: -1, EndedMS: time.Now().UnixMilli()}
	if err == nil {
		if ws, ok := st.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			e.Code = 128 + int(ws.Signal())
		} else {
			e.Code = st.ExitCode()
		}
	}
	if s.group != nil {
		e.Stat, _ = s.gauge.Stat() // the group is ours to remove, so it is there
	}
	e.Upper = Allocated(s.upper)
	s.mu.Lock()
	e.Cause, e.DeadlineMS = s.cause, s.deadline
	s.mu.Unlock()
	switch {
	case e.Stat.OOMKills > 0 && (e.Cause == "" || e.Cause == CauseMemory):
		e.Cause = CauseMemory
	case e.Stat.TaskFails > 0 && e.Cause == "":
		e.Cause = CauseProcesses
	}
	if err := s.undo(k); err != nil {
		e.Unkept = err.Error()
		e.Unkept = e.Unkept[:min(len(e.Unkept), maxUnkept)]
	}
	l := k.drop(s, &e)
	close(s.gone)
	if l != nil {
		l.post(reply{Exited: &e})
	}
}

// undo releases what the sandbox holds, the record last. It is called once
// the child is gone, or when there never was one.
func (s *sandbox) undo(k *Keeper) (err error) {
	s.once.Do(func() {
		s.stopTimer()
		s.unOOM()
		if s.wire != nil {
			s.wire.end()
		}
		k.launcher.Unlisten(s.id)
		s.hold.Lock()
		s.released = true
		closeAll([]*os.File{s.upper, s.agent})
		if s.gauge != nil {
			s.gauge.Close()
		}
		s.hold.Unlock()
		s.pausing.Lock()
		if s.asked != nil {
			s.asked.Close()
		}
		s.pausing.Unlock()
		if s.group != nil {
			err = s.group.Remove(2 * time.Second)
		}
		s.lease.Release()
		if s.claim != nil && err == nil {
			s.claim.release()
		}
	})
	return err
}

// drop forgets a sandbox that is gone, and keeps how it ended for an engine
// that may not be there to hear it. It returns the one that is.
func (k *Keeper) drop(s *sandbox, e *Exited) *link {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.running, s.id)
	if e != nil && k.mode.lasts() {
		k.past = append(k.past, *e)
		k.past = k.past[max(0, len(k.past)-maxPast):]
	}
	k.stirred()
	return k.link
}

// Allocated is how many bytes of the disk f takes; 0 where that is not known.
func Allocated(f *os.File) int64 {
	n, _ := allocated(f)
	return n
}

func allocated(f *os.File) (n int64, known bool) {
	var st unix.Stat_t
	if f == nil || unix.Fstat(int(f.Fd()), &st) != nil {
		return 0, false
	}
	return st.Blocks * 512, true
}
