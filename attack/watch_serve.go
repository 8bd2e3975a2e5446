package attack

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Serving is what Berm's own processes outside of the sandboxes hold, all of
// them together: whatever a guest does, it stays within bounds.
type Serving struct {
	Processes   int
	Descriptors int64 // peak
	Memory      int64 // peak of what is resident
}

// Bounds of Serving. At rest it is some dozens of descriptors and 60 MiB.
const (
	servingDescriptors = 512
	servingMemory      = 384 << 20
)

// look counts once.
func (s *Serving) look(pids []int) {
	var descriptors, memory int64
	for _, p := range pids {
		dir := "/proc/" + strconv.Itoa(p)
		descriptors += int64(len(names(dir + "/fd")))
		if f := strings.Fields(readText(dir + "/statm")); len(f) > 1 {
			n, _ := strconv.ParseInt(f[1], 10, 64)
			memory += n * int64(os.Getpagesize())
		}
	}
	s.Processes = len(pids)
	s.Descriptors, s.Memory = max(s.Descriptors, descriptors), max(s.Memory, memory)
}

// A meter measures what share of the processors a sandbox's cgroup takes.
type meter struct {
	dir   string
	used  time.Duration
	began time.Time
}

// newMeter starts with the group of the first process that is in one of its own.
func newMeter(of []proc) *meter {
	for _, p := range of {
		if dir := cpuGroup(strconv.Itoa(p.pid)); dir != "" && dir != cpuGroup("self") {
			m := &meter{dir: dir, began: time.Now()}
			m.used, _ = cpuUsed(dir)
			return m
		}
	}
	return nil
}

// share is how many processors' worth of time were taken since the start; -1 if
// that is not known.
func (m *meter) share() float64 {
	if m == nil {
		return -1
	}
	used, ok := cpuUsed(m.dir)
	elapsed := time.Since(m.began)
	if !ok || elapsed < 300*time.Millisecond {
		return -1
	}
	return float64(used-m.used) / float64(elapsed)
}

// cpuGroup is the directory in which a process's time is counted, "" if unknown.
func cpuGroup(pid string) string {
	for _, g := range groupsOf(pid) {
		dir := filepath.Join("/sys/fs/cgroup", g.path)
		switch {
		case g.path == "/":
			continue
		case slices.Contains(g.controllers, "cpuacct"):
			dir = filepath.Join("/sys/fs/cgroup/cpuacct", g.path)
		case !g.v2:
			continue
		}
		if _, ok := cpuUsed(dir); ok {
			return dir
		}
	}
	return ""
}

// cpuUsed is the time that a group has taken.
func cpuUsed(dir string) (time.Duration, bool) {
	if n, err := strconv.ParseInt(strings.TrimSpace(readText(dir+"/cpuacct.usage")), 10, 64); err == nil {
		return time.Duration(n), true
	}
	for line := range strings.Lines(readText(dir + "/cpu.stat")) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == "usage_usec" {
			n, err := strconv.ParseInt(f[1], 10, 64)
			return time.Duration(n) * time.Microsecond, err == nil
		}
	}
	return 0, false
}
