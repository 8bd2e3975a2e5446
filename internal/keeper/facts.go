package keeper

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bermhq/berm/internal/jail"
)

// facts says what this host can do. probe tries it out and looks for leaks.
func (k *Keeper) facts(probe bool) *Facts {
	f := &Facts{Rootless: k.cfg.Rootless, CgroupV2: k.groups != nil && k.groups.V2, Missing: map[string]string{}}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(k.state.Fd()), &fs); err == nil {
		f.StateFree = int64(fs.Bavail) * fs.Bsize
	}
	f.Notes = notes(fs.Type)
	f.Obstacle = k.obstacle()
	for c, err := range k.missing {
		f.Missing[c] = err.Error()
	}
	for _, v := range []string{"mds", "l1tf", "meltdown"} {
		b, err := os.ReadFile("/sys/devices/system/cpu/vulnerabilities/" + v)
		if err == nil && strings.HasPrefix(string(b), "Vulnerable") {
			f.CPU = append(f.CPU, v+": "+strings.TrimSpace(string(b)))
		}
	}
	if !probe {
		return f
	}
	k.probing.Lock() // what one tries out must not look like a failure or a leak to another
	defer k.probing.Unlock()
	if len(f.Missing) < 3 && k.groups != nil {
		if err := k.groups.Probe("berm-probe-"+strconv.Itoa(os.Getpid())+"-"+strconv.FormatInt(time.Now().UnixNano(), 36), k.missing); err != nil {
			f.Groups = err.Error()
		}
	}
	switch lease, err := jail.LeaseUID(); {
	case k.cfg.Rootless:
		f.OwnUIDs = "not started as root: every sandbox runs as the user who called berm"
	case err != nil:
		f.OwnUIDs = err.Error()
	default:
		lease.Release()
	}
	if scratch, err := jail.Scratch(k.cfg.StateDir); err != nil {
		f.State = err.Error()
	} else {
		scratch.Close()
	}
	f.WayOut = k.wayOut(k.root())
	f.Leaks = Leaks(k.cfg.StateDir, k.groups)
	return f
}

// obstacle is why no sandbox can start here; nil if there is no such reason.
func (k *Keeper) obstacle() *Obstacle {
	for _, o := range jail.Obstacles() {
		if o.Sure {
			return &Obstacle{Why: o.Why, Fix: o.Fix}
		}
	}
	// The sandbox's pages are mapped from there, its programs' as well.
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(k.state.Fd()), &fs); err == nil && fs.Flags&unix.ST_NOEXEC != 0 {
		return &Obstacle{Why: k.cfg.StateDir + " is on a file system from which no program can be run (noexec)",
			Fix: "sudo mount -o remount,exec " + mountOf(k.cfg.StateDir)}
	}
	return nil
}

// mountOf is where the file system of a directory is mounted, as far up as the
// device stays the same.
func mountOf(dir string) string {
	device := func(dir string) (uint64, bool) {
		var st unix.Stat_t
		err := unix.Stat(dir, &st)
		return st.Dev, err == nil
	}
	own, ok := device(dir)
	for ok && dir != "/" {
		up, known := device(filepath.Dir(dir))
		if !known || up != own {
			break
		}
		dir = filepath.Dir(dir)
	}
	return dir
}

// notes are what a state directory on such a file system changes.
func notes(fs int64) (out []string) {
	switch fs {
	case unix.TMPFS_MAGIC, unix.RAMFS_MAGIC:
		out = append(out, "state directory: it is in memory: what a sandbox writes to its disk counts against its memory cap too")
	case unix.NFS_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.V9FS_MAGIC:
		out = append(out, "state directory: it is on a network: what is not written back when a sandbox ends is, and another host must not use it")
	}
	return out
}

// A wanted is a cap that was asked for, the controller it stands on and its flag.
type wanted struct{ ctrl, flag string }

func (k *Keeper) asked(l jail.Limits) (out []wanted) {
	if l.MemoryBytes > 0 {
		out = append(out, wanted{"memory", "memory"})
	}
	if l.Tasks > 0 {
		out = append(out, wanted{"pids", "pids"})
	}
	if l.CPUs > 0 {
		out = append(out, wanted{"cpu", "cpus"})
	}
	return out
}

// unenforceable refuses a limit that this host cannot keep.
func (k *Keeper) unenforceable(l jail.Limits) error {
	for _, c := range k.asked(l) {
		if err := k.missing[c.ctrl]; err != nil {
			return &Refusal{
				Code:    "limit.unenforceable",
				Message: fmt.Sprintf("%s: this host cannot enforce the cap: %v", c.flag, err),
				Hint:    k.wayOut(k.root()) + "; to accept that nothing enforces it: " + k.giveUp(l),
			}
		}
	}
	return nil
}

// wayOut is the one command by which a user gets cgroups on this host.
func (k *Keeper) wayOut(root bool) string {
	var why error
	for _, err := range k.missing {
		if why == nil || err.Error() < why.Error() {
			why = err
		}
	}
	v2 := k.groups != nil && k.groups.V2
	switch {
	case root && errors.Is(why, jail.ErrNotMounted) && jail.OtherNetwork(): // "ip netns exec" mounts a /sys of its own
		return "nsenter --net=/run/netns/NAME berm ..., because \"ip netns exec\" hides /sys/fs/cgroup"
	case root && errors.Is(why, jail.ErrNotMounted):
		return "sudo mount -t cgroup2 cgroup2 /sys/fs/cgroup"
	case root && errors.Is(why, unix.EROFS):
		return "sudo mount -o remount,rw /sys/fs/cgroup"
	case root:
		return "sudo systemd-run --scope -p Delegate=yes berm ..."
	case v2 && jail.UserManager(jail.CallerUID()) && !errors.Is(why, jail.ErrNotDelegated):
		return "systemd-run --user --scope -p Delegate=yes berm ..."
	}
	return "sudo berm ..." // v1 controllers are not handed to users, nor v2 ones without systemd
}

// giveUp names the flags of all the caps in l that this host cannot keep.
func (k *Keeper) giveUp(l jail.Limits) string {
	var out []string
	for _, c := range k.asked(l) {
		if k.missing[c.ctrl] != nil {
			out = append(out, "--"+c.flag+"=unlimited")
		}
	}
	return strings.Join(out, " ")
}

// root says that this is root of the host, and not of a namespace of our own.
func (k *Keeper) root() bool { return os.Geteuid() == 0 && !k.cfg.Rootless }
