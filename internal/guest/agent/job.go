package agent

import (
	"context"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/bermhq/berm/internal/guest"
)

// An Agent serves one machine. What it knows of the processes there outlives
// each attachment of a host, and each stream.
type Agent struct {
	host Host

	mu    sync.Mutex
	jobs  map[string]*job // what runs, is about to, or was kept
	ended []*job          // of those the ended ones, oldest first
	room  int64           // for logs of the ended
}

// New returns the agent of h.
func New(h Host) *Agent {
	return &Agent{host: h, jobs: make(map[string]*job), room: maxEndedSize}
}

// Bounds of what is kept of processes that have ended. Logs are memory of the
// guest: with little of that, they take a part.
const (
	maxEnded     = 64
	maxEndedSize = 16 << 20
	endedShare   = 32
)

// A job is one Start: a process until it has ended, and with a log, a while
// longer.
type job struct {
	id    string
	args  []string
	log   *outlog // nil if nothing is kept
	ready chan struct{}

	// Set when ready is closed.
	asked time.Time // when the request came
	began time.Time
	pid   int     // 0 if nothing was executed
	typed *typist // nil if there is no standard input to come back to

	over chan struct{}
	exit guest.Exit // set when over is closed

	mu   sync.Mutex
	proc Proc // while it runs: what it holds is not kept
	seen guest.Exit
	news chan struct{} // closed at the next sighting; nil while nobody waits
}

// begin notes a start in the order of the wire, so that nothing sent after it
// can overtake it. It returns nil if there is one of that ID.
func (a *Agent) begin(s guest.Start) *job {
	j := &job{id: s.ID, args: shorten(s.Args), ready: make(chan struct{}), over: make(chan struct{})}
	if s.Keep > 0 {
		j.log = newLog(s.Keep)
		j.log.hold(s.Hold)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.jobs[s.ID] != nil {
		return nil
	}
	a.jobs[s.ID] = j
	if s.MemoryBytes > 0 {
		a.room = min(maxEndedSize, s.MemoryBytes/endedShare)
	}
	return j
}

// shorten cuts arguments to what is worth listing.
func shorten(args []string) (out []string) {
	for room := 1 << 10; len(args) > 0 && room > 0 && len(out) < 64; args = args[1:] {
		a := args[0]
		if len(a) > room {
			a = strings.Clone(a[:room])
		}
		out = append(out, a)
		room -= len(a) + 8
	}
	return out
}

// find returns the job of that ID, started or not as it may have come out.
func (a *Agent) find(ctx context.Context, id string) (*job, error) {
	a.mu.Lock()
	j := a.jobs[id]
	a.mu.Unlock()
	if j == nil {
		return nil, syscall.ENOENT
	}
	select {
	case <-j.ready:
		return j, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// finish records how j ended and forgets it, or what is oldest if j is kept.
func (a *Agent) finish(j *job, e guest.Exit) {
	a.mu.Lock()
	j.mu.Lock()
	j.proc = nil
	j.mu.Unlock()
	e.ElapsedNanos = max(int64(time.Since(j.asked)), 1)
	j.exit = e
	close(j.over)
	if j.log == nil {
		delete(a.jobs, j.id)
		a.mu.Unlock()
		return
	}
	a.ended = append(a.ended, j)
	size := int64(0)
	for i := len(a.ended) - 1; i >= 0; i-- {
		size += a.ended[i].log.size()
		if i < len(a.ended)-1 && (size > a.room || len(a.ended)-i > maxEnded) {
			for _, old := range a.ended[:i+1] {
				delete(a.jobs, old.id)
			}
			a.ended = append([]*job(nil), a.ended[i+1:]...)
			break
		}
	}
	a.mu.Unlock()
	j.log.end()
}

// kill ends what id began, or is about to.
func (a *Agent) kill(ctx context.Context, id string) guest.KillReply {
	if _, err := a.find(ctx, id); err != nil && ctx.Err() != nil {
		return guest.KillReply{Left: 1}
	}
	return a.host.Kill(ctx, id, guest.EndedKilled)
}

// list describes all jobs that were executed.
func (a *Agent) list() (out []guest.ProcessInfo) {
	a.mu.Lock()
	all := make([]*job, 0, len(a.jobs))
	for _, j := range a.jobs {
		all = append(all, j)
	}
	a.mu.Unlock()
	for _, j := range all {
		select {
		case <-j.ready:
			if i := j.info(); i.Running || i.Kept {
				out = append(out, i)
			}
		default:
		}
	}
	return out
}

// info describes j, which is ready.
func (j *job) info() guest.ProcessInfo {
	i := guest.ProcessInfo{ID: j.id, PID: j.pid, Args: j.args, StartedNanos: j.began.UnixNano(), Kept: j.log != nil}
	if j.log != nil {
		i.OutputBytes = j.log.written()
	}
	select {
	case <-j.over:
		i.Exit = j.exit
	default:
		i.Running = true
		i.Exit, _ = j.sighting()
	}
	return i
}

// saw takes a sighting.
func (j *job) saw(e guest.Exit) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.seen = e
	if j.news != nil {
		close(j.news)
		j.news = nil
	}
}

// sighting is the latest, and a channel that is closed at the next.
func (j *job) sighting() (guest.Exit, <-chan struct{}) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.news == nil {
		j.news = make(chan struct{})
	}
	return j.seen, j.news
}

// running is j's process, nil when it has ended.
func (j *job) running() Proc {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.proc
}
