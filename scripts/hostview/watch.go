package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// A watch is a first look at the host, and what was learned since about whose
// the things in it are: other programs, another Berm among them, go on
// meanwhile, and what they make or remove is not ours to answer for.
type watch struct {
	host
	before  view
	foreign map[string]bool // cgroups that held a process which is not ours

	mu   sync.Mutex
	runs map[string]bool // runs of our state directory that were seen
	stop chan struct{}
	done chan struct{}
}

// begin looks for the first time, and from then on notes the runs that pass
// through the state directory until close.
func begin(h host) (*watch, error) {
	before, err := h.look()
	if err != nil {
		return nil, err
	}
	w := &watch{host: h, before: before, foreign: map[string]bool{}, runs: map[string]bool{},
		stop: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(w.done)
		for tick := time.NewTicker(3 * time.Millisecond); ; {
			w.noteRuns()
			select {
			case <-tick.C:
			case <-w.stop:
				tick.Stop()
				return
			}
		}
	}()
	return w, nil
}

func (w *watch) close() {
	close(w.stop)
	<-w.done
}

// noteRuns remembers the owner records that are in the state directory now.
func (w *watch) noteRuns() {
	if w.state == "" {
		return
	}
	ents, _ := os.ReadDir(filepath.Join(w.state, "runs"))
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range ents {
		w.runs[strings.TrimPrefix(e.Name(), ".new-")] = true
	}
}

// settle looks until nothing of ours differs from before, or the time is up.
// It returns what is ours of the differences, and what is somebody else's.
func (w *watch) settle(patience time.Duration) (ours, others []change, after view, err error) {
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if after, err = w.look(); err != nil {
			return nil, nil, nil, err
		}
		if ours, others, err = w.judge(after); err != nil {
			return nil, nil, nil, err
		}
		if len(ours) == 0 || time.Now().After(end) {
			return ours, others, after, nil
		}
	}
}

// judge sorts the differences. In doubt one is ours.
func (w *watch) judge(after view) (ours, others []change, err error) {
	changes := compare(w.before, after)
	if len(changes) == 0 {
		return nil, nil, nil
	}
	w.noteRuns()
	all, err := processes()
	if err != nil {
		return nil, nil, err
	}
	var held map[string]bool // sockets of our processes; nil if not all could be seen
	if slices.ContainsFunc(changes, func(c change) bool { return c.kind == "unix sockets" }) {
		held = socketsOf(all, w.root)
	}
	for _, c := range changes {
		if w.isOurs(c, all, held) {
			ours = append(ours, c)
		} else {
			others = append(others, c)
		}
	}
	return ours, others, nil
}

func (w *watch) isOurs(c change, all map[int]proc, held map[string]bool) bool {
	switch c.kind {
	case "mounts":
		return w.named(c.what)
	case "network devices":
		return strings.Contains(c.what, "berm")
	case "cgroups":
		// What was here before us is not of this run.
		name := bermGroup(strings.TrimPrefix(c.what, w.cgroups))
		return name != "" && !c.gone && w.isOurGroup(c.what, name, all)
	case "unix sockets":
		if c.gone || w.state != "" && strings.HasPrefix(c.what, w.state+"/") {
			return !c.gone
		}
		_, inode, _ := strings.Cut(c.what, " inode ")
		return held == nil || held[inode]
	}
	return true // processes, all of them our descendants; the state directory
}

// named says whether a text speaks of Berm or of our state directory.
func (w *watch) named(s string) bool {
	return strings.Contains(s, "berm") || w.state != "" && strings.Contains(s, w.state)
}

// bermGroup is the part of a cgroup's path that names Berm, or "".
func bermGroup(path string) string {
	for part := range strings.SplitSeq(path, "/") {
		if strings.HasPrefix(part, "berm") {
			return part
		}
	}
	return ""
}

// isOurGroup says whose a cgroup berm-ID is. It is ours if our state directory
// knew the run, or if one of our descendants is in it. Else it is another's if
// a process that is no descendant of ours is, or was, in it. An empty one of
// which nothing is known counts as ours: it may be what a run left behind, and
// one that another Berm is making or removing will not stay so.
func (w *watch) isOurGroup(dir, name string, all map[int]proc) bool {
	w.mu.Lock()
	known := w.runs[strings.TrimPrefix(name, "berm-")]
	w.mu.Unlock()
	if known {
		return true
	}
	data, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	for pid := range strings.FieldsSeq(string(data)) {
		switch descent(all, pid, w.root) {
		case descends:
			return true
		case stranger:
			w.foreign[name] = true
		}
	}
	return !w.foreign[name]
}

// report prints one line per kind, then each difference that is ours. Of what
// others did it gives the number and an example.
func report(out io.Writer, before, after view, ours, others []change) {
	fmt.Fprintf(out, "%-16s  %6s  %6s\n", "the host's view", "before", "after")
	for _, kind := range kinds {
		of := func(c change) bool { return c.kind == kind }
		verdict := "equal"
		if slices.ContainsFunc(ours, of) {
			verdict = "DIFFERS"
		} else if slices.ContainsFunc(others, of) {
			verdict = "equal, but for what others did"
		}
		fmt.Fprintf(out, "%-16s  %6d  %6d  %s\n", kind, len(before[kind]), len(after[kind]), verdict)
	}
	for _, c := range ours {
		fmt.Fprintln(out, "  ", c)
	}
	if len(others) > 0 {
		fmt.Fprintf(out, "   not of this run: %d, the first: %.100s\n", len(others), others[0])
	}
}
