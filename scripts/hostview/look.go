package main

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// A view is what the host holds at one moment, by kind.
type view map[string][]string

// kinds are what a view holds, in the order of the report.
var kinds = []string{"processes", "mounts", "cgroups", "network devices", "unix sockets", "state directory"}

// look takes a view. Processes are the descendants of this one, which is their
// reaper; all else is what everybody on the host sees.
func look(state string) (view, error) {
	reap()
	v := view{}
	var err error
	if v["processes"], err = descendants(os.Getpid()); err != nil {
		return nil, err
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	v["mounts"] = strings.Split(strings.TrimSpace(string(mounts)), "\n")
	v["cgroups"] = dirs("/sys/fs/cgroup")
	if links, err := os.ReadDir("/sys/class/net"); err == nil {
		for _, l := range links {
			v["network devices"] = append(v["network devices"], l.Name())
		}
	}
	v["unix sockets"] = boundSockets()
	if state != "" {
		v["state directory"] = entries(state)
	}
	for _, list := range v {
		slices.Sort(list)
	}
	return v, nil
}

// settle looks until nothing differs from before, or until the time is up.
func settle(state string, before view, patience time.Duration) (diff []string, after view, err error) {
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if after, err = look(state); err != nil {
			return nil, nil, err
		}
		if diff = compare(before, after); len(diff) == 0 || time.Now().After(end) {
			return diff, after, nil
		}
	}
}

// compare lists what is in one view and not in the other.
func compare(before, after view) []string {
	var out []string
	for _, kind := range kinds {
		for _, s := range after[kind] {
			if _, found := slices.BinarySearch(before[kind], s); !found {
				out = append(out, fmt.Sprintf("%s: new: %s", kind, s))
			}
		}
		for _, s := range before[kind] {
			if _, found := slices.BinarySearch(after[kind], s); !found {
				out = append(out, fmt.Sprintf("%s: gone: %s", kind, s))
			}
		}
	}
	return out
}

// report prints one line per kind and then each difference.
func report(w io.Writer, before, after view, diff []string) {
	fmt.Fprintf(w, "%-16s  %6s  %6s\n", "the host's view", "before", "after")
	for _, kind := range kinds {
		verdict := "equal"
		if slices.ContainsFunc(diff, func(s string) bool { return strings.HasPrefix(s, kind+":") }) {
			verdict = "DIFFERS"
		}
		fmt.Fprintf(w, "%-16s  %6d  %6d  %s\n", kind, len(before[kind]), len(after[kind]), verdict)
	}
	for _, d := range diff {
		fmt.Fprintln(w, "  ", d)
	}
	if len(diff) > 0 {
		fmt.Fprintln(w, "   (a difference can also come from another berm at work on this host)")
	}
}

// dirs lists every directory below root; what vanishes meanwhile is left out.
// Groups that an init system makes for its own units come and go by themselves.
func dirs(root string) []string {
	var out []string
	_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil
		}
		switch filepath.Ext(path) {
		case ".service", ".scope", ".mount", ".socket":
			return filepath.SkipDir
		}
		out = append(out, path)
		return nil
	})
	return out
}

// entries lists the files below dir. The caches of templates and runtimes are
// compared like all else, so they must exist before the first look.
func entries(dir string) []string {
	var out []string
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		rel, _ := filepath.Rel(dir, path)
		line := rel
		if info, err := d.Info(); err == nil && info.Mode().IsRegular() {
			line += fmt.Sprintf(" %v %d bytes", info.Mode(), info.Size())
		}
		out = append(out, line)
		return nil
	})
	return out
}

// boundSockets lists unix sockets that have a name which speaks of Berm; those
// of the rest of the host come and go.
func boundSockets() []string {
	data, _ := os.ReadFile("/proc/net/unix")
	var out []string
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) == 8 && strings.Contains(f[7], "berm") {
			out = append(out, f[7])
		}
	}
	return out
}

// becomeReaper makes this process inherit every orphan among its descendants.
func becomeReaper() error {
	const prSetChildSubreaper = 36
	if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, prSetChildSubreaper, 1, 0); errno != 0 {
		return fmt.Errorf("become the reaper of descendants: %w", errno)
	}
	return nil
}
