package jail

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrNotMounted is why a controller is missing that this process cannot see.
var ErrNotMounted = errors.New("no cgroup controller of this name is mounted")

// FindHierarchy looks where this process may make cgroups. missing names the
// needed controllers that it cannot use, each with the reason; a limit on one
// of those cannot be kept.
func FindHierarchy() (h *Hierarchy, missing map[string]error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, allMissing(fmt.Errorf("no /proc: %w", err))
	}
	self, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, allMissing(err)
	}
	return findHierarchy(string(mounts), string(self))
}

func allMissing(err error) map[string]error {
	m := map[string]error{}
	for _, c := range needed {
		m[c] = err
	}
	return m
}

// A cgMount is one mounted cgroup file system.
type cgMount struct {
	root, point string
	v2          bool
	controllers []string // v1
}

func findHierarchy(mountinfo, self string) (*Hierarchy, map[string]error) {
	mounts := parseMounts(mountinfo)
	own := parseSelf(self)
	h := &Hierarchy{parents: map[string]string{}}
	missing := map[string]error{}
	v1 := false // some needed controller is mounted the old way
	for _, ctrl := range slices.Concat(needed, optional) {
		i := slices.IndexFunc(mounts, func(m cgMount) bool { return slices.Contains(m.controllers, ctrl) })
		if i < 0 {
			missing[ctrl] = ErrNotMounted
			continue
		}
		v1 = v1 || slices.Contains(needed, ctrl)
		dir := mounts[i].below(own[ctrl])
		if err := writable(dir); err != nil {
			missing[ctrl] = err
			continue
		}
		h.parents[ctrl] = dir
	}
	if !v1 {
		if i := slices.IndexFunc(mounts, func(m cgMount) bool { return m.v2 }); i >= 0 {
			return findV2(mounts[i], own[""])
		}
	}
	for _, c := range optional {
		delete(missing, c)
	}
	return h, missing
}

// below is where a cgroup path of /proc/self/cgroup is seen through the mount.
func (m cgMount) below(path string) string {
	rel, err := filepath.Rel(m.root, path)
	if err != nil || strings.HasPrefix(rel, "..") {
		rel = "." // another cgroup namespace: the mount's own root is what we may use
	}
	dir := filepath.Join(m.point, rel)
	if _, err := os.Stat(dir); err != nil {
		return m.point
	}
	return dir
}

// Parent is the parent of a process, 0 if there is none to be found.
func Parent(pid int) int {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	i := strings.LastIndexByte(string(b), ')')
	f := strings.Fields(string(b[i+1:]))
	if i < 0 || len(f) < 2 {
		return 0
	}
	ppid, _ := strconv.Atoi(f[1])
	return ppid
}

func parseMounts(mountinfo string) []cgMount {
	var out []cgMount
	for line := range strings.Lines(mountinfo) {
		pre, post, ok := strings.Cut(strings.TrimSpace(line), " - ")
		if !ok {
			continue
		}
		f, g := strings.Fields(pre), strings.Fields(post)
		if len(f) < 5 || len(g) < 3 {
			continue
		}
		m := cgMount{root: unescape(f[3]), point: unescape(f[4])}
		switch g[0] {
		case "cgroup":
			m.controllers = strings.Split(g[2], ",")
		case "cgroup2":
			m.v2 = true
		default:
			continue
		}
		out = append(out, m)
	}
	return out
}

func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// parseSelf maps controllers to paths; "" is the v2 path.
func parseSelf(self string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(self) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 {
			continue
		}
		for _, c := range strings.Split(f[1], ",") {
			out[c] = f[2]
		}
	}
	return out
}

// writable says whether directories can be made in dir.
func writable(dir string) error {
	if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
		return &os.PathError{Op: "make cgroups in", Path: dir, Err: err}
	}
	return nil
}
