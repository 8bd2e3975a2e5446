package jail

import (
	"io"
	"os"
	"path/filepath"
	"slices"
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

// A Gauge reads the figures of one group through files that were opened before.
// It can be handed to a process that sees no cgroup file system: the files are
// all that it gets.
type Gauge struct {
	v2    bool
	names []string // "controller/file", as Files
	files []*os.File
	peak  int64 // the most memory that Stat has seen
}

// gauged are the files that figures come from.
func gauged(v2 bool) []string {
	if v2 {
		return []string{"/cpu.stat", "/memory.stat", "/memory.peak", "/memory.current", "/memory.events", "/pids.current", "/pids.events"}
	}
	return []string{"cpuacct/cpuacct.usage", "memory/memory.stat", "memory/memory.max_usage_in_bytes",
		"memory/memory.oom_control", "pids/pids.current", "pids/pids.events"}
}

// Gauge opens the group's figures. What this kernel does not keep is left out
// and reads as zero.
func (c *Cgroup) Gauge() *Gauge {
	g := &Gauge{v2: c.V2}
	for _, name := range gauged(c.V2) {
		ctrl, file, _ := strings.Cut(name, "/")
		dir := c.dir(ctrl)
		if dir == "" {
			continue
		}
		if f, err := os.Open(filepath.Join(dir, file)); err == nil {
			g.names, g.files = append(g.names, name), append(g.files, f)
		}
	}
	return g
}

// GaugeOf puts together a gauge that came from another process.
func GaugeOf(v2 bool, names []string, files []*os.File) *Gauge {
	return &Gauge{v2: v2, names: names, files: files[:min(len(names), len(files))]}
}

// Parts are what GaugeOf needs on the other side.
func (g *Gauge) Parts() (names []string, files []*os.File) { return g.names, g.files }

// Close closes the files.
func (g *Gauge) Close() {
	for _, f := range g.files {
		f.Close()
	}
}

// Stat reads the figures. A group that is gone, or never had any, is an error.
func (g *Gauge) Stat() (Stat, error) {
	var failed error
	read := func(name string) string {
		i := slices.Index(g.names, name)
		if i < 0 || i >= len(g.files) {
			return ""
		}
		b := make([]byte, 8<<10)
		n, err := g.files[i].ReadAt(b, 0)
		if err != nil && err != io.EOF {
			failed = err
		}
		return string(b[:n])
	}
	if len(g.files) == 0 {
		return Stat{}, os.ErrNotExist
	}
	var s Stat
	if g.v2 {
		s.CPU = time.Duration(fields(read("/cpu.stat"))["usage_usec"]) * time.Microsecond
		mem := fields(read("/memory.stat"))
		s.Memory = mem["anon"] + mem["shmem"] + mem["kernel"]
		g.peak = max(g.peak, number(read("/memory.current")))
		s.MemoryPeak = max(g.peak, number(read("/memory.peak"))) // the kernel keeps it since 5.19; before, the most that was seen
		s.OOMKills = fields(read("/memory.events"))["oom_kill"]
		s.Tasks = number(read("/pids.current"))
		s.TaskFails = fields(read("/pids.events"))["max"]
		return s, failed
	}
	s.CPU = time.Duration(number(read("cpuacct/cpuacct.usage")))
	mem := fields(read("memory/memory.stat"))
	s.Memory = mem["rss"] + mem["shmem"]
	s.MemoryPeak = number(read("memory/memory.max_usage_in_bytes"))
	s.OOMKills = fields(read("memory/memory.oom_control"))["oom_kill"]
	s.Tasks = number(read("pids/pids.current"))
	s.TaskFails = fields(read("pids/pids.events"))["max"]
	return s, failed
}

func number(s string) int64 {
	n, _ := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
	return n
}

func fields(s string) map[string]int64 {
	out := map[string]int64{}
	for line := range strings.Lines(s) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			if n, err := strconv.ParseInt(v, 10, 64); err == nil {
				out[k] = n
			}
		}
	}
	return out
}
