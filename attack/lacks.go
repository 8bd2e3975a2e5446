package attack

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// A lack is a wall that a process of a sandbox was seen to be without, from
// outside. It is a breach in the cases that are about that wall.
type lack struct{ wall, what string }

// lackable are the walls whose lack is seen from outside, and what is said of a
// process that does not lack one.
var lackable = map[string]string{"namespaces": "apart from the host", "rights": "without rights", "filter": "filtered",
	"cgroup": "in a group of its own", "descriptors": "with no descriptor of others", "agent-link": "whose descriptors nobody took"}

// stood says of which walls no process of the sandbox was without.
func stood(c Case) string {
	var out []string
	for _, w := range c.lacks() {
		if lackable[w] != "" {
			out = append(out, lackable[w])
		}
	}
	if len(out) == 0 {
		return ""
	}
	return ", each " + strings.Join(out, ", ")
}

// confinement notes every wall that a sandbox's process lacks.
func (w *watcher) confinement() {
	serving := w.sockets()
	for _, p := range w.born() {
		dir := "/proc/" + strconv.Itoa(p.pid)
		st := status(dir)
		if _, err := os.Readlink(dir + "/ns/net"); err != nil || st["Seccomp"] == "" {
			continue // gone meanwhile, or not ours to see
		}
		var found []lack
		miss := func(wall, format string, args ...any) {
			found = append(found, lack{wall, fmt.Sprintf("process %d (%s) ", p.pid, p.comm) + fmt.Sprintf(format, args...)})
		}
		w.lackSpaces(dir, miss)
		w.lackRights(dir, st, miss)
		if st["Seccomp"] != "2" {
			miss("filter", "has no system call filter")
		}
		if n := keysOf(st["Uid"]); n != "" {
			miss("filter", "has keys on the kernel's keyrings: %s", n)
		}
		if g := memoryGroup(strconv.Itoa(p.pid)); g != "" && g == w.group || g == "" && inRoot(strconv.Itoa(p.pid)) {
			miss("cgroup", "is in no cgroup of its own")
		}
		lackDescriptors(dir, serving, miss)
		if exiting(dir) { // its walls go as it does, in any order
			continue
		}
		if !w.seen[p.pid] {
			w.seen[p.pid], w.looked = true, w.looked+1
		}
		for _, l := range found {
			w.lacking[l] = true
		}
	}
	for _, p := range descendants() {
		for _, path := range w.paths {
			if !w.known[p.pid] && holds(p.pid, path) {
				w.lacking[lack{"descriptors", fmt.Sprintf("process %d (%s) of the session holds %s open", p.pid, p.comm, path)}] = true
			}
		}
		if w.word != "" && w.before[p.pid] && holds(p.pid, "/memfd:"+w.word+" (deleted)") {
			w.lacking[lack{"agent-link", fmt.Sprintf("process %d (%s) took a descriptor that the sandbox sent", p.pid, p.comm)}] = true
		}
	}
}

// exiting says whether a process is ending, or has ended.
func exiting(dir string) bool {
	const pfExiting = 4
	f := strings.Fields(after(readText(dir+"/stat"), ") "))
	if len(f) < 7 || f[0] == "Z" || f[0] == "X" {
		return true
	}
	flags, err := strconv.ParseUint(f[6], 10, 64)
	return err != nil || flags&pfExiting != 0
}

// missing are the lacks of some walls.
func (w *watcher) missing(walls []string) (out []string) {
	for l := range w.lacking {
		if slices.Contains(walls, l.wall) {
			out = append(out, l.what)
		}
	}
	slices.Sort(out)
	return out
}

type missed func(wall, format string, args ...any)

// lackSpaces looks at the namespaces of a process, and at its root.
func (w *watcher) lackSpaces(dir string, miss missed) {
	for _, ns := range []struct{ name, what string }{{"net", "is in the host's network"}, {"pid", "is among the host's processes"},
		{"mnt", "is among the host's mounts"}, {"ipc", "shares the host's segments and queues"}, {"uts", "shares the host's name"}} {
		own, err := os.Readlink("/proc/self/ns/" + ns.name)
		its, ierr := os.Readlink(dir + "/ns/" + ns.name)
		if err == nil && ierr == nil && own == its {
			miss("namespaces", "%s", ns.what)
		}
	}
	if dev := cards(dir); len(dev) > 0 {
		miss("namespaces", "has network devices beside loopback: %v", dev)
	}
	for _, name := range names(dir + "/root") {
		if name != "proc" {
			miss("namespaces", "has %q in its root", name)
			break
		}
	}
}

// lackRights looks at what a process may do.
func (w *watcher) lackRights(dir string, st map[string]string, miss missed) {
	if st["NoNewPrivs"] != "1" {
		miss("rights", "may gain privileges")
	}
	if strings.Trim(st["CapEff"], "0") != "" {
		miss("rights", "has capabilities %s", st["CapEff"])
	}
	if uid, _, _ := strings.Cut(st["Uid"], "\t"); os.Geteuid() == 0 && uid == "0" {
		miss("rights", "is root on the host")
	}
	if w.word != "" && strings.Contains(readText(dir+"/mountinfo"), w.word) {
		miss("rights", "has made a mount")
	}
	if n, own := maxFiles(dir), maxFiles("/proc/self"); n > own && own > 0 {
		miss("rights", "has raised its limit of files to %d", n)
	}
	if f := strings.Fields(after(readText(dir+"/stat"), ") ")); len(f) > 38 {
		if n, _ := strconv.Atoi(f[16]); n < 0 {
			miss("rights", "runs before others, at nice %d", n)
		}
		if f[38] == "1" || f[38] == "2" {
			miss("rights", "runs before all others, by policy %s", f[38])
		}
	}
}

// doors are what the kernel calls descriptors of parts of it that no process of a
// sandbox has a use for.
var doors = []string{"io_uring", "userfaultfd", "perf_event", "bpf-map", "bpf-prog", "fanotify"}

// lackDescriptors looks at what a process has open. serving are the sockets of the
// processes that serve it.
func lackDescriptors(dir string, serving map[string]string, miss missed) {
	for _, fd := range names(dir + "/fd") {
		to, _ := os.Readlink(filepath.Join(dir, "fd", fd))
		for _, d := range doors {
			if strings.HasPrefix(to, "anon_inode:") && strings.Contains(to, d) {
				miss("filter", "has descriptor %s of %s", fd, to)
			}
		}
		if who := serving[to]; who != "" {
			miss("descriptors", "has descriptor %s, which is a socket of %s", fd, who)
		}
		var st syscall.Stat_t
		if syscall.Stat(filepath.Join(dir, "fd", fd), &st) == nil && st.Mode&syscall.S_IFMT == syscall.S_IFDIR {
			miss("descriptors", "has the directory %s open", to)
		}
	}
}

// sockets are those of all processes of the session that serve sandboxes,
// by the link of a descriptor, and whose they are.
func (w *watcher) sockets() map[string]string {
	out := map[string]string{}
	for _, p := range descendants() {
		if !w.before[p.pid] || w.known[p.pid] || inSandbox(p) {
			continue
		}
		dir := "/proc/" + strconv.Itoa(p.pid) + "/fd/"
		for _, fd := range names(dir) {
			if to, _ := os.Readlink(dir + fd); strings.HasPrefix(to, "socket:") {
				out[to] = fmt.Sprintf("process %d (%s)", p.pid, p.comm)
			}
		}
	}
	return out
}

// inSandbox says whether a process is one of a sandbox or of its gateway, which
// shares its link with the keeper.
func inSandbox(p proc) bool {
	own, err := os.Readlink("/proc/self/ns/net")
	its, ierr := os.Readlink("/proc/" + strconv.Itoa(p.pid) + "/ns/net")
	return err != nil || ierr != nil || own != its
}

// keysOf is the kernel's account of a user's keys, "" if there is none.
func keysOf(uids string) string {
	uid, _, _ := strings.Cut(uids, "\t")
	for line := range strings.Lines(readText("/proc/key-users")) {
		if who, rest, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && uid != "0" && uid != strconv.Itoa(os.Geteuid()) && who == uid {
			return strings.Join(strings.Fields(rest), " ")
		}
	}
	return ""
}

// maxFiles is the hard limit of descriptors of a process, 0 if unknown.
func maxFiles(dir string) int {
	f := strings.Fields(after(readText(dir+"/limits"), "Max open files"))
	if len(f) < 2 {
		return 0
	}
	n, _ := strconv.Atoi(f[1])
	return n
}

// after is what follows the last of a mark.
func after(text, mark string) string {
	if i := strings.LastIndex(text, mark); i >= 0 {
		return text[i+len(mark):]
	}
	return ""
}
