package jail

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Stat is what a group has used.
type Stat struct {
	CPU        time.Duration
	Memory     int64 // bytes now, without file pages that can be dropped
	MemoryPeak int64 // bytes, the kernel's own high-water mark
	Tasks      int64 // now
	OOMKills   int64
	TaskFails  int64 // forks refused at the task limit
}

// Stat reads the group's counters. A counter that the kernel does not keep
// reads as zero; a group that is gone, goes
// meanwhile, or is closed to this user is an error.
func (c *Cgroup) Stat() (Stat, error) {
	s := c.stat()
	for _, d := range c.dirs() {
		if _, err := os.Stat(filepath.Join(d, "cgroup.procs")); err != nil {
			return Stat{}, err
		}
	}
	return s, nil
}

func (c *Cgroup) stat() Stat {
	if c.V2 {
		return c.statV2()
	}
	var s Stat
	s.CPU = time.Duration(c.number("cpuacct", "cpuacct.usage"))
	mem := c.fields("memory", "memory.stat")
	s.Memory = mem["rss"] + mem["shmem"]
	s.MemoryPeak = c.number("memory", "memory.max_usage_in_bytes")
	s.OOMKills = c.fields("memory", "memory.oom_control")["oom_kill"]
	s.Tasks = c.number("pids", "pids.current")
	s.TaskFails = c.fields("pids", "pids.events")["max"]
	return s
}

func (c *Cgroup) statV2() Stat {
	var s Stat
	s.CPU = time.Duration(c.fields("", "cpu.stat")["usage_usec"]) * time.Microsecond
	mem := c.fields("", "memory.stat")
	s.Memory = mem["anon"] + mem["shmem"] + mem["kernel"]
	s.MemoryPeak = c.number("", "memory.peak")
	s.OOMKills = c.fields("", "memory.events")["oom_kill"]
	s.Tasks = c.number("", "pids.current")
	s.TaskFails = c.fields("", "pids.events")["max"]
	return s
}

func (c *Cgroup) read(ctrl, file string) string {
	dir := c.dir(ctrl)
	if dir == "" {
		return ""
	}
	b, _ := os.ReadFile(filepath.Join(dir, file))
	return string(b)
}

func (c *Cgroup) number(ctrl, file string) int64 {
	n, _ := strconv.ParseInt(strings.TrimSpace(c.read(ctrl, file)), 10, 64)
	return n
}

func (c *Cgroup) fields(ctrl, file string) map[string]int64 {
	out := map[string]int64{}
	for line := range strings.Lines(c.read(ctrl, file)) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			if n, err := strconv.ParseInt(v, 10, 64); err == nil {
				out[k] = n
			}
		}
	}
	return out
}
