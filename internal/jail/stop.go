package jail

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// StopAll stops a child with all its processes, which are those of its group, or
// of its pid namespace where it has no group. It returns those that it stopped once none of any runs. With gently it stops
// the first one alone, because the others do nothing without it; only what still
// runs after that long is stopped as well.
//
// Why not the cgroup freezer: to freeze and to stop both cut short what a process
// waits for. gVisor's stubs wait for the answer to a seccomp notification, come
// back with another one, and are killed for it; so they must be left alone.
//
// A process that is stopped is not woken from within: all that could send the
// signal is stopped too.
func StopAll(pid int, group *Cgroup, gently, timeout time.Duration) ([]int, error) {
	ns, err := os.Readlink(nsOf(pid))
	if err != nil {
		return nil, err
	}
	if own, err := os.Readlink(nsOf(os.Getpid())); err != nil || own == ns {
		return nil, errors.New("it is not in a pid namespace of its own")
	}
	all := func() []int { return members(ns) }
	if group != nil {
		all = group.Procs
	}
	began := time.Now()
	stopped := []int{pid}
	unix.Kill(pid, unix.SIGSTOP)
	for before := map[int]string(nil); ; {
		now := map[int]string{}
		quiet := before != nil
		for _, p := range all() {
			now[p] = cpuOf(p)
			if was, known := before[p]; known && was == now[p] {
				continue
			}
			quiet = false
			if time.Since(began) >= gently {
				if !slices.Contains(stopped, p) {
					stopped = append(stopped, p)
				}
				unix.Kill(p, unix.SIGSTOP)
			}
		}
		if quiet {
			return stopped, nil
		}
		if time.Since(began) > timeout {
			return stopped, errors.New("some of its processes do not stop")
		}
		before = now
		time.Sleep(stopSample)
	}
}

// stopSample is more than the tick that the time of a process is counted in.
const stopSample = 15 * time.Millisecond

// ContinueAll undoes StopAll, the first one last: it serves the others.
func ContinueAll(pids []int) {
	for i := len(pids) - 1; i >= 0; i-- {
		unix.Kill(pids[i], unix.SIGCONT)
	}
}

func nsOf(pid int) string { return fmt.Sprintf("/proc/%d/ns/pid", pid) }

// members are the processes of a pid namespace.
func members(ns string) (out []int) {
	ents, _ := os.ReadDir("/proc")
	for _, e := range ents {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if l, err := os.Readlink(nsOf(pid)); err == nil && l == ns {
			out = append(out, pid)
		}
	}
	return out
}

// cpuOf is the time that the threads of a process have run, as text to compare.
func cpuOf(pid int) string {
	var b strings.Builder
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	for _, f := range tasks {
		s, _ := os.ReadFile(f)
		ran, _, _ := bytes.Cut(s, []byte(" "))
		b.Write(ran)
		b.WriteByte(' ')
	}
	if b.Len() > 0 {
		return b.String()
	}
	s, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)) // in ticks, where the kernel keeps no other
	f := strings.Fields(string(s[bytes.LastIndexByte(s, ')')+1:]))
	if len(f) < 13 {
		return ""
	}
	return f[11] + " " + f[12]
}
