package keeper

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bermhq/berm/internal/jail"
)

// A Leak is something of a sandbox that is on the host without a keeper.
type Leak struct {
	Kind       string  `json:"kind"` // record, cgroup, process, file
	ID         string  `json:"id"`
	Owner      string  `json:"owner"`
	AgeSeconds float64 `json:"age_seconds"`
}

const maxLeaks = 200 // in one answer

// Leaks looks for what keepers that are gone have left, and changes nothing.
func Leaks(stateDir string, groups *jail.Hierarchy) []Leak {
	runs := filepath.Join(stateDir, "runs")
	var out []Leak
	stale, _ := Sweep(runs, true)
	for _, s := range stale {
		owner := fmt.Sprintf("keeper %d (gone)", s.Keeper)
		for i, path := range s.Left {
			kind := "cgroup"
			if i == 0 {
				kind = "record"
			}
			out = append(out, Leak{kind, path, owner, s.Age.Seconds()})
		}
	}
	live := liveIDs(runs)
	for _, dir := range groups.Named(groupName("")) {
		id := strings.TrimPrefix(filepath.Base(dir), groupName(""))
		known := slices.ContainsFunc(out, func(l Leak) bool { return l.ID == dir })
		if idShape.MatchString(id) && !live[id] && !known && abandoned(dir) {
			out = append(out, Leak{"cgroup", dir, "unknown: no record in this state directory", age(dir)})
		}
	}
	scratch, _ := filepath.Glob(filepath.Join(stateDir, ".scratch-*"))
	for _, f := range scratch {
		out = append(out, Leak{"file", f, "unknown", age(f)})
	}
	for _, p := range orphans() {
		out = append(out, Leak{"process", strconv.Itoa(p), "init: its keeper is gone", age("/proc/" + strconv.Itoa(p))})
	}
	return out[:min(len(out), maxLeaks)]
}

// abandoned says whether a group without a record here is a leak. One with
// processes is not: they die with their keeper, so they have one, with another
// state directory. Nor is one that has only just been made.
func abandoned(dir string) bool {
	c := jail.Cgroup{Dirs: map[string]string{"": dir}}
	return c.Empty() && age(dir) > 5
}

// liveIDs are the sandboxes whose keeper holds the lock of their record.
func liveIDs(runs string) map[string]bool {
	live := map[string]bool{}
	ents, _ := os.ReadDir(runs)
	for _, e := range ents {
		f, err := openRecord(filepath.Join(runs, e.Name()))
		if err != nil {
			continue
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
			live[e.Name()] = true
		}
		f.Close()
	}
	return live
}

func age(path string) float64 {
	fi, err := os.Lstat(path)
	if err != nil {
		return 0
	}
	return time.Since(fi.ModTime()).Seconds()
}

// orphans are processes of sandboxes that init has inherited. Each is killed with
// its keeper, so there should never be one.
func orphans() []int {
	var out []int
	ents, _ := os.ReadDir("/proc")
	for _, e := range ents {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		cmd, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		sandbox := bytes.HasPrefix(cmd, []byte("runsc-sandbox\x00")) && bytes.Contains(cmd, []byte("--product-name=berm"))
		if !sandbox && string(cmd) != gatewayName+"\x00" {
			continue
		}
		if jail.Parent(pid) == 1 {
			out = append(out, pid)
		}
	}
	return out
}
