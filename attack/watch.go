package attack

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A watcher looks at a sandbox's host processes from outside while a program
// runs in it: whatever is below this process and was not there before.
type watcher struct {
	known  map[int]bool // processes from before the session
	before map[int]bool // and those that serve it, like the ones that parse what a guest says
	aside  map[int]bool // and those of sandboxes that are not attacked, with all below them
	paths  []string     // neither those nor a sandbox's may hold these open
	netns  string       // ours
	group  string       // ours, of the memory controller
	stop   chan struct{}
	done   chan struct{}
	now    chan chan struct{} // asks for a look at the confinement

	tasks, memory, disk int64 // peaks
	serving             Serving
	looked              int // processes whose confinement was seen
	seen                map[int]bool
	lacking             map[lack]bool
	word                string // by which a stand-in marks what it makes; "": there is none
}

// watch starts to look. planted are the paths of canaries, known the processes
// that are no part of the session.
func watch(planted []string, known, aside map[int]bool) *watcher {
	w := &watcher{known: known, aside: aside, paths: planted, lacking: map[lack]bool{}, seen: map[int]bool{},
		stop: make(chan struct{}), done: make(chan struct{}), now: make(chan chan struct{}, 4)}
	w.netns, _ = os.Readlink("/proc/self/ns/net")
	w.group = memoryGroup("self")
	w.before = pids()
	go w.run()
	return w
}

func (w *watcher) run() {
	defer close(w.done)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-w.stop:
			w.sample()
			return
		case ready := <-w.now:
			w.confinement()
			close(ready)
		case <-tick.C:
			w.sample()
		}
	}
}

// confined looks at the walls of each process now, while the program is known
// to run: before that, a sandbox is still being put up.
func (w *watcher) confined() {
	ready := make(chan struct{})
	select {
	case w.now <- ready:
		<-ready
	case <-w.done:
	}
}

// end stops looking. The figures are constant afterwards.
func (w *watcher) end() {
	close(w.stop)
	<-w.done
}

// pids are those below this process now.
func pids() map[int]bool {
	out := map[int]bool{}
	for _, p := range descendants() {
		out[p.pid] = true
	}
	return out
}

func (w *watcher) born() (out []proc) {
	all := descendants()
	parent := map[int]int{}
	for _, p := range all {
		parent[p.pid] = p.parent
	}
	for _, p := range all {
		if !w.before[p.pid] && !p.zombie && !w.isAside(parent, p.pid) {
			out = append(out, p)
		}
	}
	return out
}

// isAside says whether pid is, or is below, a process that is not looked at.
func (w *watcher) isAside(parent map[int]int, pid int) bool {
	for hops := 0; pid != 0 && hops < 64; hops++ {
		if w.aside[pid] {
			return true
		}
		pid = parent[pid]
	}
	return false
}

// servers are the session's processes that no sandbox runs in.
func (w *watcher) servers() (out []int) {
	for p := range w.before {
		if !w.known[p] && !w.aside[p] {
			out = append(out, p)
		}
	}
	return out
}

func (w *watcher) sample() {
	var tasks, disk int64
	groups := map[string]bool{}
	files := map[[2]uint64]int64{}
	for i, p := range w.born() {
		tasks += int64(max(1, len(names("/proc/"+strconv.Itoa(p.pid)+"/task"))))
		if i < 8 { // all are in one group, and the first hold what there is to hold
			if g := memoryGroup(strconv.Itoa(p.pid)); g != "" && g != w.group && g != v1Root {
				groups[g] = true
			}
		}
		if i < 8 && p.parent != os.Getpid() {
			unlinked(p.pid, files)
		}
	}
	for _, n := range files {
		disk += n
	}
	var memory int64
	for g := range groups {
		memory += groupMemory(g)
	}
	w.serving.look(w.servers())
	w.tasks, w.memory, w.disk = max(w.tasks, tasks), max(w.memory, memory), max(w.disk, disk)
}

func status(dir string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(readText(dir + "/status")) {
		if k, v, ok := strings.Cut(line, ":"); ok {
			out[k] = strings.TrimSpace(v)
		}
	}
	return out
}

// cards are the devices of a process's network beside loopback.
func cards(dir string) (out []string) {
	for i, line := range strings.Split(readText(dir+"/net/dev"), "\n") {
		name, _, ok := strings.Cut(strings.TrimSpace(line), ":")
		if i >= 2 && ok && name != "lo" {
			out = append(out, name)
		}
	}
	return out
}

func names(dir string) []string {
	d, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer d.Close()
	out, _ := d.Readdirnames(-1)
	return out
}

// holds says whether pid has path open.
func holds(pid int, path string) bool {
	dir := "/proc/" + strconv.Itoa(pid) + "/fd/"
	return slices.ContainsFunc(names(dir), func(fd string) bool {
		to, _ := os.Readlink(dir + fd)
		return to == path
	})
}

// unlinked adds the space of files without a name that pid holds open: what
// backs a sandbox's writable layer. Files in memory are no part of it.
func unlinked(pid int, files map[[2]uint64]int64) {
	dir := "/proc/" + strconv.Itoa(pid) + "/fd"
	for _, fd := range names(dir) {
		to, _ := os.Readlink(filepath.Join(dir, fd))
		if !strings.HasPrefix(to, "/") || strings.HasPrefix(to, "/memfd:") || strings.HasPrefix(to, "/dev/") {
			continue
		}
		var st syscall.Stat_t
		if syscall.Stat(filepath.Join(dir, fd), &st) == nil && st.Mode&syscall.S_IFMT == syscall.S_IFREG && st.Nlink == 0 {
			files[[2]uint64{st.Dev, st.Ino}] = st.Blocks * 512
		}
	}
}

// v1Root is where version 1 puts a process that is about to be gone.
const v1Root = "/sys/fs/cgroup/memory"

// memoryGroup is the directory of a process's memory cgroup, "" if unknown.
func memoryGroup(pid string) string {
	for _, g := range groupsOf(pid) {
		if slices.Contains(g.controllers, "memory") {
			return filepath.Join(v1Root, g.path)
		}
		if g.v2 {
			if dir := filepath.Join("/sys/fs/cgroup", g.path); readText(dir+"/memory.current") != "" {
				return dir
			}
		}
	}
	return ""
}

// inRoot says that version 2 has a process in no group but the first of all, in
// which nothing is bounded.
func inRoot(pid string) bool {
	all := groupsOf(pid)
	return len(all) == 1 && all[0].v2 && all[0].path == "/"
}

// A group is a cgroup that a process is in: on version 1 one for some controllers.
type group struct {
	v2          bool
	controllers []string
	path        string
}

// groupsOf are those of a process; pid may be self.
func groupsOf(pid string) (out []group) {
	for line := range strings.Lines(readText("/proc/" + pid + "/cgroup")) {
		if f := strings.SplitN(strings.TrimSpace(line), ":", 3); len(f) == 3 {
			out = append(out, group{f[0] == "0", strings.Split(f[1], ","), f[2]})
		}
	}
	return out
}

// groupMemory is the most that a group ever used, or what it uses now.
func groupMemory(dir string) int64 {
	for _, name := range []string{"memory.max_usage_in_bytes", "memory.peak", "memory.current"} {
		if n, err := strconv.ParseInt(strings.TrimSpace(readText(dir+"/"+name)), 10, 64); err == nil {
			return n
		}
	}
	return 0
}
