package main

import (
	"fmt"
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

// descendantsOf lists the processes below root, the dead ones too.
func descendantsOf(root int) ([]proc, error) {
	all, err := processes()
	if err != nil {
		return nil, err
	}
	var out []proc
	for _, p := range all {
		for up, hops := p, 0; hops < len(all); hops++ {
			if up.parent == root {
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
	return out, nil
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
