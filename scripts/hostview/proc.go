package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// A proc is one process as /proc shows it.
type proc struct {
	pid, parent int
	state       string
	comm        string
	cmdline     string
}

// processes lists all processes of the host.
func processes() (map[int]proc, error) {
	paths, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	out := make(map[int]proc, len(paths))
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // gone meanwhile
		}
		// pid (comm) state ppid ...; comm may hold anything, parentheses too.
		s := string(data)
		open, end := strings.IndexByte(s, '('), strings.LastIndexByte(s, ')')
		if open < 0 || end < open {
			continue
		}
		rest := strings.Fields(s[end+1:])
		if len(rest) < 2 {
			continue
		}
		p := proc{comm: s[open+1 : end], state: rest[0]}
		p.pid, _ = strconv.Atoi(strings.TrimSpace(s[:open]))
		p.parent, _ = strconv.Atoi(rest[1])
		line, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
		p.cmdline = strings.TrimSpace(strings.ReplaceAll(string(line), "\x00", " "))
		out[p.pid] = p
	}
	return out, nil
}

// How a process stands to another.
type relation int

const (
	unknown  relation = iota // it ended while we looked
	descends                 // it is the other, or a descendant
	stranger                 // its line goes up to the first process without it
)

// descent follows the parents of a process, given as cgroup.procs gives it: a
// process of another pid namespace is 0 there, and no descendant of ours.
func descent(all map[int]proc, pid string, root int) relation {
	n, err := strconv.Atoi(pid)
	if err != nil {
		return unknown
	}
	for hops := 0; hops <= len(all); hops++ {
		if n == root {
			return descends
		}
		if n == 0 {
			return stranger
		}
		p, ok := all[n]
		if !ok {
			return unknown
		}
		n = p.parent
	}
	return unknown
}

// descendantsOf lists the processes below root, the dead ones too.
func descendantsOf(root int) ([]proc, error) {
	all, err := processes()
	if err != nil {
		return nil, err
	}
	var out []proc
	for pid, p := range all {
		if pid != root && descent(all, strconv.Itoa(pid), root) == descends {
			out = append(out, p)
		}
	}
	return out, nil
}

// socketsOf lists the inodes of the sockets that root and its descendants hold,
// or nil if one of them cannot be seen. A socket needs a holder, so one that
// none of ours holds is somebody else's.
func socketsOf(all map[int]proc, root int) map[string]bool {
	out := map[string]bool{}
	for pid, p := range all {
		if p.state == "Z" || descent(all, strconv.Itoa(pid), root) != descends {
			continue
		}
		dir := fmt.Sprintf("/proc/%d/fd", pid)
		ents, err := os.ReadDir(dir)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // gone meanwhile, and its sockets with it
		} else if err != nil {
			return nil
		}
		for _, e := range ents {
			target, _ := os.Readlink(filepath.Join(dir, e.Name()))
			if inode, ok := strings.CutPrefix(target, "socket:["); ok {
				out[strings.TrimSuffix(inode, "]")] = true
			}
		}
	}
	return out
}

// descendants says the same in words.
func descendants(root int) ([]string, error) {
	procs, err := descendantsOf(root)
	var out []string
	for _, p := range procs {
		out = append(out, fmt.Sprintf("%d (%s) %s %.120s", p.pid, p.comm, p.state, p.cmdline))
	}
	return out, err
}

// reap collects dead orphans. The caller waits for no child meanwhile.
func reap() {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if pid <= 0 || err != nil {
			return
		}
	}
}
