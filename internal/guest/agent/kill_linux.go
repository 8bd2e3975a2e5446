package agent

import (
	"context"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/bermhq/berm/internal/guest"
)

// killTime bounds one Kill.
const killTime = 5 * time.Second

// Kill ends everything of one exec.
func (l *Linux) Kill(ctx context.Context, id, why string) guest.KillReply {
	l.mu.Lock()
	ex := l.execs[id]
	l.mu.Unlock()
	if ex == nil {
		return guest.KillReply{}
	}
	return l.slay(ctx, ex, why)
}

// slay ends everything of ex, for the reason given, and waits until it is gone.
// Process by process would lose against a process that forks faster than it is
// read about: so where all there is belongs to ex, one call signals all, and
// elsewhere everything is stopped first, which fills the task limit with
// stopped processes.
func (l *Linux) slay(ctx context.Context, ex *exec, why string) guest.KillReply {
	var r guest.KillReply
	until := time.Now().Add(killTime)
	l.mu.Lock()
	if m := ex.main; m != nil && m.ending == "" {
		m.ending, m.slain = why, make(chan struct{})
		defer close(m.slain)
	}
	l.mu.Unlock()
	for round := 0; ; round++ {
		l.mu.Lock()
		if m := ex.main; m != nil {
			// First, so that its death is ours and it reports on no other's.
			syscall.Kill(m.pid, syscall.SIGKILL)
		}
		sole := l.first && len(l.execs) == 1
		if sole {
			syscall.Kill(-1, syscall.SIGKILL)
		}
		found := l.find(ex.tag)
		if !sole {
			sig := syscall.SIGKILL
			if round < 3 && len(found) > 8 {
				sig = syscall.SIGSTOP
			}
			for _, t := range found {
				syscall.Kill(t.pid, sig)
			}
		}
		r.Killed = max(r.Killed, int64(len(found)))
		r.Left = int64(len(found))
		done := len(found) == 0 && ex.main == nil
		if done {
			delete(l.execs, ex.id)
		}
		l.mu.Unlock()
		if done || time.Now().After(until) || ctx.Err() != nil {
			return r
		}
		time.Sleep(min(time.Duration(round*round)*50*time.Microsecond, 5*time.Millisecond))
	}
}

// A task is a process as /proc shows it.
type task struct {
	pid, ppid int
	tag       uint32 // 0: none
	threads   int
	rss       int64
	zombie    bool
}

// find returns the processes with a tag, zombies included. In a guest it also
// returns those without any tag: they were made by someone who dropped it, and
// belong to whoever is asked about first. l.mu is held, so no child is between
// its fork and its tag.
func (l *Linux) find(tag uint32) []task {
	var out []task
	for _, t := range l.tasks() {
		if t.tag == tag || l.first && t.tag == 0 {
			out = append(out, t)
		}
	}
	return out
}

// tasks reads /proc: all but the agent and a kernel's own.
func (l *Linux) tasks() []task {
	d, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1)
	me := os.Getpid()
	buf := make([]byte, 4<<10)
	var out []task
	for _, n := range names {
		pid, err := strconv.Atoi(n)
		if err != nil || pid == me {
			continue
		}
		fd, err := syscall.Open("/proc/"+n+"/status", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		k, _ := syscall.Read(fd, buf)
		syscall.Close(fd)
		if k <= 0 {
			continue
		}
		t := parseStatus(buf[:k])
		if t.pid = pid; l.gvisor || pid != 2 && t.ppid != 2 {
			out = append(out, t)
		}
	}
	return out
}

// parseStatus reads the fields of /proc/PID/status that matter here. The name
// in its first line is the process's own choice, but cannot hold a line break
// that is not escaped.
func parseStatus(b []byte) task {
	var t task
	for len(b) > 0 {
		line := b
		for i, c := range b {
			if c == '\n' {
				line = b[:i]
				break
			}
		}
		b = b[min(len(line)+1, len(b)):]
		key, rest := cutColon(line)
		switch key {
		case "State":
			t.zombie = len(rest) > 1 && (rest[1] == 'Z' || rest[1] == 'X')
		case "PPid":
			t.ppid = int(number(rest))
		case "Threads":
			t.threads = int(number(rest))
		case "VmRSS":
			t.rss = number(rest) << 10
		case "Groups":
			for len(rest) > 0 {
				for len(rest) > 0 && (rest[0] < '0' || rest[0] > '9') {
					rest = rest[1:]
				}
				if g := number(rest); g > tagBase {
					t.tag = uint32(g)
				}
				for len(rest) > 0 && rest[0] >= '0' && rest[0] <= '9' {
					rest = rest[1:]
				}
			}
		}
	}
	return t
}

func cutColon(line []byte) (string, []byte) {
	for i, c := range line {
		if c == ':' {
			return string(line[:i]), line[i+1:]
		}
	}
	return "", nil
}

func number(b []byte) (n int64) {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t') {
		b = b[1:]
	}
	for _, c := range b {
		if c < '0' || c > '9' || n > 1<<50 {
			break
		}
		n = n*10 + int64(c-'0')
	}
	return n
}
