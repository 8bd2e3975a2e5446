package attack

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A cage is a cgroup around somebody else's sandbox while hostile programs run
// in it. It is no wall of that sandbox: it is wider than any cap of a case, and
// keeps the host where the sandbox has none. What is in it can always be ended.
type cage struct {
	dirs    []string // one on version 2, one for each controller on version 1
	guard   *exec.Cmd
	release io.Closer
}

// What a cage lets through.
const (
	cageTasks  = 3000
	cageMemory = 3 << 30
)

// warden takes a cage away when its input ends, also after a kill of who made it.
const warden = `trap "" INT TERM HUP QUIT
cat >/dev/null
n=0
while [ $n -lt 50 ]; do
	left=
	for d; do
		for p in $(cat "$d/cgroup.procs" 2>/dev/null); do kill -9 "$p" 2>/dev/null; left=y; done
		rmdir -- "$d" 2>/dev/null || left=y
		[ -d "$d" ] || continue
	done
	[ -n "$left" ] || exit 0
	n=$((n + 1)); sleep 0.1
done`

// newCage makes one, or says why this host has none: then nothing hostile may run.
func newCage() (_ *cage, err error) {
	name := "berm-attack-" + newCanary()[len(canaryWord):][:12]
	c := &cage{}
	defer func() {
		if err != nil {
			c.open()
		}
	}()
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		if err := os.WriteFile("/sys/fs/cgroup/cgroup.subtree_control", []byte("+pids +memory"), 0); err != nil {
			return nil, uncaged(err)
		}
		err = c.add(filepath.Join("/sys/fs/cgroup", name), map[string]string{
			"pids.max": strconv.Itoa(cageTasks), "memory.max": strconv.Itoa(cageMemory)})
		if err != nil {
			return nil, uncaged(err)
		}
	} else {
		for ctrl, set := range map[string]map[string]string{
			"pids":   {"pids.max": strconv.Itoa(cageTasks)},
			"memory": {"memory.limit_in_bytes": strconv.Itoa(cageMemory)},
		} {
			if err := c.add(filepath.Join("/sys/fs/cgroup", ctrl, ownGroup(ctrl), name), set); err != nil {
				return nil, uncaged(err)
			}
		}
	}
	return c, c.watch()
}

func uncaged(err error) error {
	return fmt.Errorf("no cgroup that could hold hostile programs: %w", err)
}

// ownGroup is where this process is in a controller of version 1, as far as that
// can be seen from here.
func ownGroup(ctrl string) string {
	for line := range strings.Lines(readText("/proc/self/cgroup")) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) == 3 && f[1] == ctrl {
			if _, err := os.Stat(filepath.Join("/sys/fs/cgroup", ctrl, f[2])); err == nil {
				return f[2]
			}
		}
	}
	return "/"
}

func (c *cage) add(dir string, set map[string]string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	c.dirs = append(c.dirs, dir)
	for name, value := range set {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(value), 0); err != nil {
			return err
		}
	}
	return nil
}

func (c *cage) watch() error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	c.guard = exec.Command("sh", append([]string{"-c", warden, "berm-attack"}, c.dirs...)...)
	c.guard.Env, c.guard.Stdin = []string{"PATH=/usr/bin:/bin"}, r
	c.guard.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := c.guard.Start(); err != nil {
		w.Close()
		c.guard = nil
		return err
	}
	c.release = w
	return nil
}

// inside is a command that enters the cage and becomes the one of words.
func (c *cage) inside(words []string) []string {
	return append(append([]string{"sh", "-c", `n=$1; shift
while [ "$n" -gt 0 ]; do echo 0 >"$1/cgroup.procs" || exit 125; n=$((n - 1)); shift; done
exec "$@"`, "berm-attack", strconv.Itoa(len(c.dirs))}, c.dirs...), words...)
}

// procs are who is in it.
func (c *cage) procs() (out []int) {
	for _, f := range strings.Fields(readText(filepath.Join(c.dirs[0], "cgroup.procs"))) {
		if pid, err := strconv.Atoi(f); err == nil && pid > 0 {
			out = append(out, pid)
		}
	}
	return out
}

// empty ends all that is in it.
func (c *cage) empty() error {
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		left := c.procs()
		if len(left) == 0 {
			return nil
		}
		for _, p := range left {
			syscall.Kill(p, syscall.SIGKILL)
		}
		if time.Now().After(end) {
			return errors.New("processes of the attacked sandbox do not end")
		}
	}
}

// peak is the most memory that was used in it, and starts to count anew.
func (c *cage) peak() int64 {
	for _, d := range c.dirs {
		if n := groupMemory(d); n > 0 {
			os.WriteFile(filepath.Join(d, "memory.max_usage_in_bytes"), []byte("0"), 0)
			return n
		}
	}
	return 0
}

// open takes the cage away, and whoever is in it.
func (c *cage) open() {
	if c.guard != nil {
		c.release.Close()
		c.guard.Wait()
		return
	}
	for _, d := range c.dirs {
		os.Remove(d)
	}
}
