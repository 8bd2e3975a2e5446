package attack

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A cage is a cgroup around somebody else's sandbox while hostile programs run
// in it. It is no wall of that sandbox: it is wider than any cap of a case, and
// keeps the host where the sandbox has none. What is in it can always be ended.
// It has mounts of its own, and lacks rights that no sandbox should hand on.
type cage struct {
	name    string
	dirs    []string // one on version 2, one for each controller on version 1
	more    []string // of other controllers, which somebody else may make
	scratch string   // a folder that goes with it
	idle    int64    // what a sandbox holds in it whose program does nothing
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
		[ -d "$d" ] || continue
		left=y
		for p in $(find "$d" -name cgroup.procs -exec cat {} + 2>/dev/null); do [ "$p" -gt 0 ] && kill -9 "$p" 2>/dev/null; done
		find "$d" -depth -type d -exec rmdir -- {} \; 2>/dev/null
	done
	[ -n "$left" ] || break
	n=$((n + 1)); sleep 0.1
done
case $BERM_DIR in /*/` + canaryWord + `*) rm -rf -- "$BERM_DIR" ;; esac`

// newCage makes one, or says why this host has none: then nothing hostile may run.
// One that is shared lies where a daemon finds it that is told its name.
func newCage(shared bool) (_ *cage, err error) {
	name := "berm-attack-" + newCanary()[len(canaryWord):][:12]
	c := &cage{name: "/" + name}
	if c.scratch, err = os.MkdirTemp("", canaryWord); err != nil {
		return nil, err
	}
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
		for _, ctrl := range []string{"pids", "memory"} {
			set := map[string]string{"pids.max": strconv.Itoa(cageTasks)}
			if ctrl == "memory" {
				set = map[string]string{"memory.limit_in_bytes": strconv.Itoa(cageMemory)}
			}
			own := ownGroup(ctrl)
			if shared {
				own = "/"
			}
			if err := c.add(filepath.Join("/sys/fs/cgroup", ctrl, own, name), set); err != nil {
				return nil, uncaged(err)
			}
		}
		if others, _ := filepath.Glob("/sys/fs/cgroup/*"); shared {
			for _, dir := range others {
				c.more = append(c.more, filepath.Join(dir, name))
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
	for _, g := range groupsOf("self") {
		if slices.Contains(g.controllers, ctrl) {
			if _, err := os.Stat(filepath.Join("/sys/fs/cgroup", ctrl, g.path)); err == nil {
				return g.path
			}
		}
	}
	return "/"
}

func (c *cage) add(dir string, set map[string]string) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(filepath.Dir(dir), &fs); err != nil {
		return err
	} else if fs.Type != unix.CGROUP_SUPER_MAGIC && fs.Type != unix.CGROUP2_SUPER_MAGIC {
		return fmt.Errorf("%s is no cgroup: no controller is mounted there", filepath.Dir(dir))
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	c.dirs = append(c.dirs, dir)
	for name, value := range set {
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = f.WriteString(value)
		if f.Close(); err != nil {
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
	c.guard = exec.Command("sh", slices.Concat([]string{"-c", warden, "berm-attack"}, c.dirs, c.more)...)
	c.guard.Env, c.guard.Stdin = []string{"PATH=/usr/bin:/bin", "BERM_DIR=" + c.scratch}, r
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

// procs are who is in it and in groups below it.
func (c *cage) procs() (out []int) {
	filepath.WalkDir(c.dirs[0], func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil
		}
		for _, f := range strings.Fields(readText(filepath.Join(path, "cgroup.procs"))) {
			if pid, err := strconv.Atoi(f); err == nil && pid > 0 {
				out = append(out, pid)
			}
		}
		return nil
	})
	return out
}

// count looks how many tasks are in it until stop is called, which says the most.
func (c *cage) count() (stop func() int64) {
	over, most := make(chan struct{}), make(chan int64)
	go func() {
		var n int64
		for tick := time.NewTicker(25 * time.Millisecond); ; {
			for _, d := range c.dirs {
				now, _ := strconv.ParseInt(strings.TrimSpace(readText(filepath.Join(d, "pids.current"))), 10, 64)
				n = max(n, now)
			}
			select {
			case <-tick.C:
			case <-over:
				tick.Stop()
				most <- n
				return
			}
		}
	}()
	return func() int64 { close(over); return <-most }
}

// empty ends all that is in it, and who has left it: those below this process
// that are not known. nil knows everybody.
func (c *cage) empty(known map[int]bool) error {
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		left := c.procs()
		for _, p := range descendants() {
			if known != nil && !known[p.pid] && !p.zombie {
				left = append(left, p.pid)
			}
		}
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

// dire are rights over the whole machine that no sandbox needs to be made, and
// that no namespace bounds: to load modules, to reach hardware, to reboot, to set
// the clock. Without them the worst sandbox is no danger to the host's kernel.
var dire = []uintptr{unix.CAP_SYS_MODULE, unix.CAP_SYS_RAWIO, unix.CAP_SYS_BOOT, unix.CAP_SYS_TIME, unix.CAP_SYS_PACCT}

// powerless does start where processes that it starts have none of these, also as
// root. It is done on a thread of its own, which ends with it.
func powerless(start func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked
		for _, right := range dire {
			if err := unix.Prctl(unix.PR_CAPBSET_DROP, right, 0, 0, 0); err != nil && os.Geteuid() == 0 {
				done <- fmt.Errorf("take rights away: %w", err)
				return
			}
		}
		done <- start()
	}()
	return <-done
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
	os.RemoveAll(c.scratch)
}
