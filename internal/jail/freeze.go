package jail

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// CanFreeze says whether all of the group can be frozen at once.
func (c *Cgroup) CanFreeze() bool {
	if c == nil {
		return false
	}
	file := filepath.Join(c.dir("freezer"), "freezer.state")
	if c.V2 {
		file = filepath.Join(c.dir(""), "cgroup.freeze")
	} else if c.dir("freezer") == "" {
		return false
	}
	return unix.Access(file, unix.W_OK) == nil
}

// Freeze stops every process of the group, those that are forked meanwhile
// included, and returns when none runs.
func (c *Cgroup) Freeze(timeout time.Duration) error {
	if err := c.setFrozen(true); err != nil {
		return err
	}
	deadline := time.Now().Add(timeout)
	for pause := 100 * time.Microsecond; !c.frozen(); pause = min(2*pause, 10*time.Millisecond) {
		if time.Now().After(deadline) {
			return errors.New("the cgroup does not freeze")
		}
		if !c.V2 {
			c.setFrozen(true) // v1 may need to be asked again
		}
		time.Sleep(pause)
	}
	return nil
}

// Thaw has the group go on. One that cannot be frozen is none to thaw.
func (c *Cgroup) Thaw() error {
	if !c.CanFreeze() {
		return nil
	}
	return c.setFrozen(false)
}

func (c *Cgroup) setFrozen(yes bool) error {
	file, value := filepath.Join(c.dir("freezer"), "freezer.state"), "THAWED"
	if c.V2 {
		file, value = filepath.Join(c.dir(""), "cgroup.freeze"), "0"
	}
	if yes && c.V2 {
		value = "1"
	} else if yes {
		value = "FROZEN"
	}
	if err := os.WriteFile(file, []byte(value), 0); err != nil {
		return fmt.Errorf("freeze: %w", err)
	}
	return nil
}

func (c *Cgroup) frozen() bool {
	if c.V2 {
		b, err := os.ReadFile(filepath.Join(c.dir(""), "cgroup.events"))
		return err == nil && fields(string(b))["frozen"] == 1
	}
	b, err := os.ReadFile(filepath.Join(c.dir("freezer"), "freezer.state"))
	return err == nil && strings.TrimSpace(string(b)) == "FROZEN"
}

// StopAll stops the processes in the pid namespace whose first process is pid,
// by signal: for where nothing can be frozen. With gently it stops the first
// one, and of the others only those that then still use the processor. It
// returns those that it stopped, once nothing runs.
//
// A process that is stopped cannot be woken from within: all that could send the
// signal is stopped too.
func StopAll(pid int, gently bool, timeout time.Duration) ([]int, error) {
	ns, err := os.Readlink(nsOf(pid))
	if err != nil {
		return nil, err
	}
	deadline := time.Now().Add(timeout)
	var stopped []int
	done := map[int]bool{}
	stop := func(p int) {
		if !done[p] {
			done[p] = true
			stopped = append(stopped, p)
		}
		unix.Kill(p, unix.SIGSTOP)
	}
	stop(pid)
	for before := map[int]string(nil); ; {
		now := map[int]string{}
		busy := false
		for _, p := range members(ns) {
			spent := cpuOf(p)
			now[p] = spent
			was, known := before[p]
			switch {
			case !done[p] && !gently, known && was != spent:
				stop(p)
				busy = true
			case !known:
				busy = true // new, so it counts only from here on
			}
		}
		if before != nil && !busy {
			return stopped, nil
		}
		if time.Now().After(deadline) {
			return stopped, errors.New("some of its processes do not stop")
		}
		before = now
		time.Sleep(25 * time.Millisecond) // more than the tick that time is counted in
	}
}

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
