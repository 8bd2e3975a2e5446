package agent

import (
	"context"
	"runtime"
	"slices"
	"syscall"
	"time"

	"github.com/bermhq/berm/internal/guest"
)

// How often the watcher looks: soon after a start, when all is calm, when memory is half used, and
// when at the present rate the cap is two looks away.
const (
	firstTick = 2 * time.Millisecond
	calmTick  = 25 * time.Millisecond
	busyTick  = 5 * time.Millisecond
	closeTick = 2 * time.Millisecond
)

// An exec may stay at its task cap for stay. It stays there as long as it is
// seen at it every quarter of that time, so that a bomb whose children come and
// go is one all the same; else time counts back at quarter speed.
const stay = time.Second

// A watcher samples the machine while anything runs. Its samples are of the
// machine, not of one exec: the caps are the sandbox's.
type watcher struct {
	on        bool
	stop      chan struct{}
	began     time.Time     // the last start
	atCap     time.Duration // the leaky measure
	touched   time.Time     // when the task cap was last seen reached
	memBefore int64

	diskBefore int64
}

// seen is what was seen while one process ran.
type seen struct {
	caps                []string
	tasks, memory, disk int64 // peaks
}

func (n *seen) look(s sample) {
	n.tasks, n.memory, n.disk = max(n.tasks, s.tasks), max(n.memory, s.memory), max(n.disk, s.disk)
}

// exit is what was seen as an Exit tells it.
func (n *seen) exit() guest.Exit {
	return guest.Exit{Caps: slices.Clone(n.caps), PidsPeak: n.tasks, MemoryPeak: n.memory, DiskPeak: n.disk}
}

func (n *seen) touch(c string) {
	if !slices.Contains(n.caps, c) {
		n.caps = append(n.caps, c)
	}
}

// A sample is one look.
type sample struct {
	tasks, agent        int64
	memory, memoryTotal int64
	disk, diskTotal     int64
	diskFull            bool
}

// sample looks. Tasks are without the agent's own threads.
func (l *Linux) sample() sample {
	var s sample
	var si syscall.Sysinfo_t
	if syscall.Sysinfo(&si) == nil {
		unit := int64(max(si.Unit, 1))
		s.memoryTotal = int64(si.Totalram) * unit
		s.memory = s.memoryTotal - int64(si.Freeram)*unit
		n, _ := runtime.ThreadCreateProfile(nil)
		s.agent = int64(n)
		s.tasks = max(0, int64(si.Procs)-s.agent)
	}
	var fs syscall.Statfs_t
	if syscall.Statfs("/", &fs) == nil {
		s.diskTotal = int64(fs.Blocks) * fs.Bsize
		s.disk = int64(fs.Blocks-fs.Bfree) * fs.Bsize
		s.diskFull = fs.Blocks > 0 && fs.Bavail == 0
	}
	return s
}

// begin starts to watch, or goes on. l.mu is held.
func (w *watcher) begin(l *Linux) {
	if w.on {
		w.began = time.Now()
		return
	}
	*w = watcher{on: true, stop: make(chan struct{}), began: time.Now()}
	go l.watching(w.stop)
}

// end stops watching when nothing runs any more. l.mu is held.
func (w *watcher) end(l *Linux) {
	if len(l.running) == 0 && w.on {
		w.on = false
		close(w.stop)
	}
}

func (l *Linux) watching(stop chan struct{}) {
	last := time.Now()
	tick := time.NewTimer(firstTick)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		s := l.sample()
		l.mu.Lock()
		if !l.watch.on || l.watch.stop != stop {
			l.mu.Unlock()
			return
		}
		now := time.Now()
		for _, p := range l.running {
			p.look(s)
			p.tell(now)
		}
		next, why := l.watch.note(l, s, now.Sub(last))
		last = now
		next = min(next, max(firstTick, now.Sub(l.watch.began)))
		var ex *exec
		if why != "" {
			ex = l.culprit(why)
		}
		l.mu.Unlock()
		if ex != nil {
			l.slay(context.Background(), ex, why)
		}
		tick.Reset(next)
	}
}

// note takes a sample into account. It returns when to look next and, when
// something must end, why.
func (w *watcher) note(l *Linux, s sample, dt time.Duration) (next time.Duration, why string) {
	pids, memory := l.caps()
	next = calmTick
	if pids > 0 {
		at := s.tasks >= pids
		if at {
			w.touched = time.Now()
		} else if time.Since(w.touched) < stay/4 {
			at = true // a bomb whose children fail and come again
		}
		if at {
			w.atCap += min(dt, stay/4) // a bomb starves the watcher too; a pause does not count
		} else {
			w.atCap = max(0, w.atCap-dt/4)
		}
		if w.atCap >= stay {
			w.atCap = 0
			why = guest.EndedProcesses
		}
	}
	if memory > 0 {
		limit := memory - reserve(memory)
		if s.memory >= limit {
			why = guest.EndedMemory
		} else if s.memory+2*(s.memory-w.memBefore) >= limit {
			next = closeTick
		} else if s.memory > limit/2 {
			next = busyTick
		}
		w.memBefore = s.memory
	}
	// A disk that fills may be full for a moment only: look often while it does.
	if grew := s.disk - w.diskBefore; grew > 0 && s.diskTotal > 0 {
		if s.disk+2*grew >= s.diskTotal {
			next = min(next, closeTick)
		} else if s.disk > s.diskTotal/2 {
			next = min(next, busyTick)
		}
	}
	w.diskBefore = s.disk
	return next, why
}

// look notes a sample in what p has seen. l.mu is held.
func (p *process) look(s sample) {
	p.seen.look(s)
	if s.diskFull {
		p.seen.touch(guest.CapDisk)
	}
	if n := p.s.Pids; n > 0 && s.tasks >= n {
		p.seen.touch(guest.CapProcesses)
	}
	if n := p.s.MemoryBytes; n > 0 && s.memory >= n-reserve(n) {
		p.seen.touch(guest.CapMemory)
	}
}

// tellEvery is how often peaks alone are worth a word to the host. A cap always
// is: there are three.
const tellEvery = 100 * time.Millisecond

// tell leaves what was seen for the host, if it is news. l.mu is held.
func (p *process) tell(now time.Time) {
	e, t := p.seen.exit(), &p.told
	peaks := e.PidsPeak > t.PidsPeak || e.MemoryPeak > t.MemoryPeak || e.DiskPeak > t.DiskPeak
	if len(e.Caps) == len(t.Caps) && (!peaks || now.Sub(p.toldAt) < tellEvery) {
		return
	}
	p.told, p.toldAt = e, now
	select {
	case <-p.sights: // older, and nobody heard it
	default:
	}
	p.sights <- e // only here, so there is room
}

// reserve is how far below the memory cap an exec is ended: what grows while
// nobody looks must fit between this and the outer wall.
func reserve(memory int64) int64 { return max(4<<20, memory*3/100) }

// caps are the tightest that any running process was given.
func (l *Linux) caps() (pids, memory int64) {
	for _, p := range l.running {
		if n := p.s.Pids; n > 0 && (pids == 0 || n < pids) {
			pids = n
		}
		if n := p.s.MemoryBytes; n > 0 && (memory == 0 || n < memory) {
			memory = n
		}
	}
	return pids, memory
}

// culprit is the exec that holds most of what ran out; one whose own process
// has ended may be it. l.mu is held.
func (l *Linux) culprit(why string) *exec {
	if len(l.execs) == 1 {
		for _, ex := range l.execs {
			return ex
		}
	}
	held := make(map[uint32]int64)
	for _, t := range l.tasks() {
		if why == guest.EndedMemory {
			held[t.tag] += t.rss
		} else {
			held[t.tag] += int64(max(t.threads, 1))
		}
	}
	var worst *exec
	for _, ex := range l.execs {
		if worst == nil || held[ex.tag] > held[worst.tag] {
			worst = ex
		}
	}
	return worst
}
