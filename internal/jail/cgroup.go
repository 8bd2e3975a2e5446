package jail

import (
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

// Limits of one cgroup. Zero means that nothing is limited.
type Limits struct {
	MemoryBytes int64
	Tasks       int64   // processes and threads on the host
	CPUs        float64 // cores' worth of time
}

// Hierarchy is where this process may make cgroups: directly below its own
// cgroup in each v1 controller, or below a v2 cgroup that hands controllers on.
type Hierarchy struct {
	V2      bool
	parents map[string]string // v1: controller -> directory; v2: "" -> directory
	hands   []string          // v2: controllers that groups below it get
	base    bool              // v2: the parent is a group of Berm's own, there while groups are in it
}

// The controllers that the caps stand on. cpuacct and freezer are used where
// they exist: for the figures, and to kill without a race.
var (
	needed   = []string{"memory", "pids", "cpu"}
	optional = []string{"cpuacct"}
)

// Cgroup is one group that holds all processes of one sandbox.
type Cgroup struct {
	V2   bool
	Dirs map[string]string // as in Hierarchy; serialised in owner records
}

// Create makes the group name with its limits already in force. On error
// nothing is left.
func (h *Hierarchy) Create(name string, l Limits) (_ *Cgroup, err error) {
	c := h.Plan(name)
	var made []string
	defer func() {
		if err != nil {
			for _, dir := range made {
				unix.Rmdir(dir)
			}
			c.dropBase()
		}
	}()
	for _, dir := range c.dirs() {
		if err := h.mkdir(dir); err != nil {
			return nil, fmt.Errorf("cgroup: %w", err)
		}
		made = append(made, dir)
	}
	for _, s := range settings(h.V2, l) {
		dir := c.dir(s.ctrl)
		if dir == "" {
			return nil, fmt.Errorf("cgroup controller %s is not available", s.ctrl)
		}
		err := os.WriteFile(filepath.Join(dir, s.file), []byte(s.value), 0)
		if err != nil && !(s.soft && errors.Is(err, os.ErrNotExist)) {
			return nil, fmt.Errorf("cgroup %s %s=%s: %w", dir, s.file, s.value, err)
		}
	}
	return c, nil
}

// Plan is the group that Create would make: what an owner record names before
// there is anything to own.
func (h *Hierarchy) Plan(name string) *Cgroup {
	c := &Cgroup{V2: h.V2, Dirs: map[string]string{}}
	for _, ctrl := range h.controllers() {
		c.Dirs[ctrl] = filepath.Join(h.parents[ctrl], name)
	}
	return c
}

// Named lists the groups below h whose names start with prefix.
func (h *Hierarchy) Named(prefix string) []string {
	var out []string
	if h == nil {
		return nil
	}
	for _, c := range h.controllers() {
		found, _ := filepath.Glob(filepath.Join(h.parents[c], prefix+"*"))
		out = append(out, found...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Probe makes and removes a group with a limit of each controller that is not
// missing, so that "can be enforced" is a fact.
func (h *Hierarchy) Probe(name string, missing map[string]error) error {
	l := Limits{MemoryBytes: 64 << 20, Tasks: 64, CPUs: 1}
	if missing["memory"] != nil {
		l.MemoryBytes = 0
	}
	if missing["pids"] != nil {
		l.Tasks = 0
	}
	if missing["cpu"] != nil {
		l.CPUs = 0
	}
	c, err := h.Create(name, l)
	if err != nil {
		return err
	}
	return c.rmdir()
}

func (h *Hierarchy) controllers() []string {
	var out []string
	for c := range h.parents {
		out = append(out, c)
	}
	slices.Sort(out)
	return out
}

type setting struct {
	ctrl, file, value string
	soft              bool // the file may be missing: the kernel has no such ability, so nothing can exceed it
}

const cpuPeriod = 100_000 // microseconds

func settings(v2 bool, l Limits) []setting {
	var out []setting
	itoa := func(n int64) string { return strconv.FormatInt(n, 10) }
	if l.MemoryBytes > 0 {
		if v2 {
			out = append(out, setting{"memory", "memory.max", itoa(l.MemoryBytes), false},
				setting{"memory", "memory.swap.max", "0", true},
				setting{"memory", "memory.oom.group", "1", true})
		} else {
			out = append(out, setting{"memory", "memory.limit_in_bytes", itoa(l.MemoryBytes), false},
				setting{"memory", "memory.memsw.limit_in_bytes", itoa(l.MemoryBytes), true})
		}
	}
	if l.Tasks > 0 {
		out = append(out, setting{"pids", "pids.max", itoa(l.Tasks), false})
	}
	if l.CPUs > 0 {
		quota := int64(l.CPUs * cpuPeriod)
		if v2 {
			out = append(out, setting{"cpu", "cpu.max", fmt.Sprintf("%d %d", quota, cpuPeriod), false})
		} else {
			out = append(out, setting{"cpu", "cpu.cfs_period_us", itoa(cpuPeriod), false},
				setting{"cpu", "cpu.cfs_quota_us", itoa(quota), false})
		}
	}
	return out
}

func (c *Cgroup) dir(ctrl string) string {
	if c.V2 {
		return c.Dirs[""]
	}
	return c.Dirs[ctrl]
}

// dirs are the distinct directories of the group.
func (c *Cgroup) dirs() []string {
	var out []string
	for _, d := range c.Dirs {
		if !slices.Contains(out, d) {
			out = append(out, d)
		}
	}
	slices.Sort(out)
	return out
}

// Kill sends SIGKILL to everything in the group, once.
func (c *Cgroup) Kill() {
	if c.V2 && os.WriteFile(filepath.Join(c.Dirs[""], "cgroup.kill"), []byte("1"), 0) == nil {
		return
	}
	for _, d := range c.dirs() {
		for _, pid := range procs(d) {
			unix.Kill(pid, unix.SIGKILL)
		}
	}
}

// Remove ends what is left in the group and takes the group away. It tries
// until the timeout and says what would not go.
func (c *Cgroup) Remove(timeout time.Duration) error {
	deadline := time.Now().Add(timeout)
	for pause := 200 * time.Microsecond; ; pause = min(2*pause, 20*time.Millisecond) {
		err := c.rmdir()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return err
		}
		c.Kill()
		time.Sleep(pause)
	}
}

func (c *Cgroup) rmdir() error {
	var errs []error
	for _, d := range c.dirs() {
		if err := unix.Rmdir(d); err != nil && err != unix.ENOENT {
			errs = append(errs, fmt.Errorf("rmdir %s: %w", d, err))
		}
	}
	if len(errs) == 0 {
		c.dropBase()
	}
	return errors.Join(errs...)
}

// Procs are the processes of the group.
func (c *Cgroup) Procs() []int {
	dirs := c.dirs()
	if len(dirs) == 0 {
		return nil
	}
	return procs(dirs[0])
}

func procs(dir string) []int {
	b, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	var out []int
	for _, f := range strings.Fields(string(b)) {
		if pid, err := strconv.Atoi(f); err == nil && pid > 1 {
			out = append(out, pid)
		}
	}
	return out
}

// OnCgroup says whether a directory is one of a cgroup file system.
func OnCgroup(dir string) bool {
	var fs unix.Statfs_t
	err := unix.Statfs(dir, &fs)
	return err == nil && (fs.Type == unix.CGROUP_SUPER_MAGIC || fs.Type == unix.CGROUP2_SUPER_MAGIC)
}

// Empty says whether no process is in the group, or the group is gone.
func (c *Cgroup) Empty() bool {
	for _, d := range c.dirs() {
		if len(procs(d)) > 0 {
			return false
		}
	}
	return true
}
