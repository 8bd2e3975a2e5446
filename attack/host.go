package attack

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A view is what the host holds at one moment, as far as a sandbox could have
// changed it: lines by kind.
type view map[string][]string

// kinds are what a view holds, in the order of the evidence.
var kinds = []string{"process", "state file", "cgroup", "mount", "socket", "module", "setting", "device"}

// look takes a view. Processes are descendants of this one, which inherits the
// orphans among them. Of mounts, cgroups and sockets only those with a mark of
// Berm's are kept: the rest of the host goes on living.
func look(stateDir string) view {
	v := view{}
	for _, p := range descendants() {
		v["process"] = append(v["process"], fmt.Sprintf("%d %s started %s", p.pid, p.comm, p.start))
	}
	v["state file"] = stateFiles(stateDir)
	v["cgroup"] = cgroups()
	v["mount"] = linesWith("/proc/self/mountinfo", "berm", "runsc", stateDir)
	v["socket"] = linesWith("/proc/net/unix", "berm-s", "runsc", stateDir)
	for line := range strings.Lines(readText("/proc/modules")) {
		name, _, _ := strings.Cut(line, " ")
		v["module"] = append(v["module"], name)
	}
	for _, s := range settings() {
		v["setting"] = append(v["setting"], s+" = "+strings.TrimSpace(readText(s)))
	}
	v["setting"] = append(v["setting"], owned()...)
	devices, _ := os.ReadDir("/dev")
	for _, d := range devices {
		v["device"] = append(v["device"], d.Name())
	}
	for _, list := range v {
		slices.Sort(list)
	}
	return v
}

// shared kinds are those in which other sandboxes of this host come and go too:
// there, only what names the sandbox in question is a difference.
var shared = []string{"cgroup", "mount", "socket"}

// anybodys kinds change for reasons that cannot be told from outside: a change
// is no proof, and no verdict can be given beside it.
var anybodys = []string{"new module", "module is", "new device", "device is"}

// compare lists what is in one view and not in the other, after the sandbox id
// has ended; "" if there was none.
func compare(before, after view, id string) (out []string) {
	for _, kind := range kinds {
		for _, s := range after[kind] {
			if slices.Contains(shared, kind) && (id == "" || !strings.Contains(s, id)) {
				continue
			}
			if _, found := slices.BinarySearch(before[kind], s); !found {
				out = append(out, "new "+kind+": "+s)
			}
		}
		if slices.Contains(shared, kind) {
			continue
		}
		for _, s := range before[kind] {
			if _, found := slices.BinarySearch(after[kind], s); !found {
				out = append(out, kind+" is gone: "+s)
			}
		}
	}
	return out
}

// settleTime is how long after its end a sandbox may still be seen.
const settleTime = 2 * time.Second

// settle looks until nothing differs from before, or until the time is up. left
// is what the sandbox did not take with it, moved what may be anybody's.
func settle(look func() view, before view, id string) (left, moved []string) {
	var diff []string
	for end := time.Now().Add(settleTime); ; time.Sleep(20 * time.Millisecond) {
		reapOrphans(before)
		diff = compare(before, look(), id)
		if len(diff) == 0 || time.Now().After(end) {
			break
		}
	}
	for _, d := range diff {
		if slices.ContainsFunc(anybodys, func(k string) bool { return strings.HasPrefix(d, k) }) {
			moved = append(moved, d)
		} else {
			left = append(left, d)
		}
	}
	return left, moved
}

// calm waits until the view of the host stays the same for a while, so that what
// is compared with it later is not what was on its way out.
func calm(stateDir string) {
	last, since := look(stateDir), time.Now()
	for end := time.Now().Add(settleTime); time.Now().Before(end) && time.Since(since) < 200*time.Millisecond; {
		time.Sleep(20 * time.Millisecond)
		now := look(stateDir)
		if len(compare(last, now, "")) > 0 {
			last, since = now, time.Now()
		}
	}
}

// stateFiles lists what is in the state directory beside the caches.
func stateFiles(dir string) (out []string) {
	filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		rel, rerr := filepath.Rel(dir, path)
		if err != nil || rerr != nil || rel == "." {
			return nil
		}
		if rel == "templates" || rel == "runtimes" {
			return filepath.SkipDir
		}
		out = append(out, rel)
		return nil
	})
	return out
}

// cgroups lists the groups that are named as Berm names its own.
func cgroups() (out []string) {
	filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil
		}
		if strings.HasPrefix(d.Name(), "berm-") {
			out = append(out, path)
			return filepath.SkipDir
		}
		return nil
	})
	return out
}

func linesWith(path string, words ...string) (out []string) {
	for line := range strings.Lines(readText(path)) {
		if slices.ContainsFunc(words, func(w string) bool { return w != "" && strings.Contains(line, w) }) &&
			!strings.Contains(line, canaryWord) {
			out = append(out, strings.TrimSpace(line))
		}
	}
	return out
}

func readText(path string) string {
	b, _ := os.ReadFile(path)
	return string(b)
}

// A proc is one process below this one.
type proc struct {
	pid, parent int
	comm, start string
	zombie      bool
}

// descendants lists every process below this one.
func descendants() []proc {
	all := map[int]proc{}
	names, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range names {
		b, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
		if open < 0 || end < open {
			continue
		}
		rest := strings.Fields(string(b[end+1:]))
		if len(rest) < 20 {
			continue
		}
		p := proc{comm: string(b[open+1 : end]), start: rest[19], zombie: rest[0] == "Z"}
		p.pid, _ = strconv.Atoi(filepath.Base(filepath.Dir(path)))
		p.parent, _ = strconv.Atoi(rest[1])
		all[p.pid] = p
	}
	var out []proc
	for _, p := range all {
		for up, hops := p, 0; hops < 64; hops++ {
			if up.parent == os.Getpid() {
				out = append(out, p)
				break
			}
			next, ok := all[up.parent]
			if !ok {
				break
			}
			up = next
		}
	}
	return out
}

// becomeReaper makes this process inherit every orphan below it, or stops that.
func becomeReaper(on uintptr) {
	const setChildSubreaper = 36
	syscall.RawSyscall(syscall.SYS_PRCTL, setChildSubreaper, on, 0)
}

// reapOrphans collects dead orphans that nobody else waits for. It is called
// when a session is closed, so every child that was not there before is one.
func reapOrphans(before view) {
	for _, p := range descendants() {
		line := fmt.Sprintf("%d %s started %s", p.pid, p.comm, p.start)
		if _, known := slices.BinarySearch(before["process"], line); p.zombie && p.parent == os.Getpid() && !known {
			syscall.Wait4(p.pid, nil, syscall.WNOHANG, nil)
		}
	}
}

// room is what the host has left.
type room struct{ memory, disk int64 }

func hostRoom(dir string) (r room) {
	for line := range strings.Lines(readText("/proc/meminfo")) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "MemAvailable:" {
			n, _ := strconv.ParseInt(f[1], 10, 64)
			r.memory = n << 10
		}
	}
	var st syscall.Statfs_t
	if syscall.Statfs(dir, &st) == nil {
		r.disk = int64(st.Bavail) * st.Bsize
	}
	return r
}
