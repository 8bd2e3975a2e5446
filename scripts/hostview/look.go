package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// A view is what the host holds at one moment, by kind.
type view map[string][]string

// kinds are what a view holds, in the order of the report.
var kinds = []string{"processes", "mounts", "cgroups", "network devices", "unix sockets", "state directory"}

// A host is what is looked at: all of it, and whose things in it are ours.
type host struct {
	state   string // Berm's state directory, "" for none
	cgroups string // where cgroups are mounted
	root    int    // the process whose descendants are ours
}

// thisHost is the host as this process sees it.
func thisHost(state string) host {
	if state != "" {
		if abs, err := filepath.Abs(state); err == nil {
			state = abs
		}
	}
	return host{state: state, cgroups: "/sys/fs/cgroup", root: os.Getpid()}
}

// look takes a view. Processes are the descendants of this one, which is their
// reaper; all else is what everybody on the host sees.
func (h host) look() (view, error) {
	reap()
	v := view{}
	var err error
	if v["processes"], err = descendants(h.root); err != nil {
		return nil, err
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	v["mounts"] = strings.Split(strings.TrimSpace(string(mounts)), "\n")
	v["cgroups"] = dirs(h.cgroups)
	if links, err := os.ReadDir("/sys/class/net"); err == nil {
		for _, l := range links {
			v["network devices"] = append(v["network devices"], l.Name())
		}
	}
	v["unix sockets"] = boundSockets()
	if h.state != "" {
		v["state directory"] = entries(h.state)
	}
	for _, list := range v {
		slices.Sort(list)
	}
	return v, nil
}

// A change is one thing that is in one view and not in the other.
type change struct {
	kind, what string
	gone       bool // it was there before
}

func (c change) String() string {
	if c.gone {
		return fmt.Sprintf("%s: gone: %s", c.kind, c.what)
	}
	return fmt.Sprintf("%s: new: %s", c.kind, c.what)
}

// compare lists what is in one view and not in the other.
func compare(before, after view) []change {
	var out []change
	for _, kind := range kinds {
		for _, s := range after[kind] {
			if _, found := slices.BinarySearch(before[kind], s); !found {
				out = append(out, change{kind, s, false})
			}
		}
		for _, s := range before[kind] {
			if _, found := slices.BinarySearch(after[kind], s); !found {
				out = append(out, change{kind, s, true})
			}
		}
	}
	return out
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

// boundSockets lists unix sockets that have a name which speaks of Berm, each
// with its inode; those of the rest of the host come and go.
func boundSockets() []string {
	data, _ := os.ReadFile("/proc/net/unix")
	var out []string
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) == 8 && strings.Contains(f[7], "berm") {
			out = append(out, f[7]+" inode "+f[6])
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
