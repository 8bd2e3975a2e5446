package jail

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// An Obstacle is a property of this host, or of the place in it where this
// process runs, that keeps sandboxes from starting.
type Obstacle struct {
	Why string // what is so
	Fix string // the one command that mends it

	// Sure says that no sandbox can start for it. The others are reasons that a
	// failure may have.
	Sure bool
}

// Obstacles are those that can be seen from here, the likeliest cause first. It
// starts nothing; ask it when something did not start, or to tell beforehand.
func Obstacles() []Obstacle {
	var nofile, nproc unix.Rlimit
	unix.Getrlimit(unix.RLIMIT_NOFILE, &nofile)
	unix.Getrlimit(unix.RLIMIT_NPROC, &nproc)
	exe, _ := os.Readlink("/proc/self/exe")
	return host{root: "/", uid: os.Geteuid(), exe: exe, files: nofile.Max, tasks: nproc.Cur}.obstacles()
}

// A host is what is asked for obstacles.
type host struct {
	root         string // where its /proc and /sys are
	uid          int
	exe          string
	files, tasks uint64 // the limits of this process
}

// Least that a keeper and one sandbox take, with room.
const (
	leastFiles = 512
	leastTasks = 64
)

func (h host) obstacles() (out []Obstacle) {
	add := func(fix, format string, args ...any) {
		out = append(out, Obstacle{Why: fmt.Sprintf(format, args...), Fix: fix})
	}
	status, err := os.ReadFile(h.path("proc/self/status"))
	if err != nil {
		add("sudo mount -t proc proc /proc", "/proc is not mounted")
		return out
	}
	sure := func() { out[len(out)-1].Sure = true }
	if n, ok := h.sysctl("user/max_user_namespaces"); ok && n == 0 {
		add("sudo sysctl -w user.max_user_namespaces=28633", "user namespaces are switched off: user.max_user_namespaces is 0")
		sure()
	}
	if h.uid != 0 {
		if n, ok := h.sysctl("kernel/unprivileged_userns_clone"); ok && n == 0 {
			add("sudo sysctl -w kernel.unprivileged_userns_clone=1", "user namespaces are for root only: kernel.unprivileged_userns_clone is 0")
		}
		if n, ok := h.sysctl("kernel/apparmor_restrict_unprivileged_userns"); ok && n != 0 && h.unconfined() {
			add(AppArmorFix(h.exe), "AppArmor takes the rights in user namespaces from programs without a profile: kernel.apparmor_restrict_unprivileged_userns is %d", n)
		}
	}
	contained := h.contained()
	if caps, err := strconv.ParseUint(field(string(status), "CapEff:"), 16, 64); err == nil && h.uid == 0 && caps>>unix.CAP_SYS_ADMIN&1 == 0 {
		fix := "sudo berm ..."
		if contained != "" {
			fix = contained + " run --privileged ..."
		}
		add(fix, "this is root without its rights (no CAP_SYS_ADMIN), as in a container")
	}
	if contained != "" && h.uid != 0 && field(string(status), "Seccomp:") == "2" {
		add(contained+" run --security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined ...",
			"a container's seccomp filter is on, and the usual ones refuse unshare, clone with namespaces, mount and pivot_root")
	}
	if n, ok := h.sysctl("kernel/yama/ptrace_scope"); ok && n >= 2 {
		fix := "sudo sysctl -w kernel.yama.ptrace_scope=1"
		if n >= 3 { // it cannot be taken back
			fix = "echo kernel.yama.ptrace_scope=1 | sudo tee /etc/sysctl.d/99-ptrace.conf && sudo reboot"
		}
		add(fix, "kernel.yama.ptrace_scope is %d: gVisor starts its processes under ptrace, and has no rights to do so then", n)
		sure()
	}
	if h.files < leastFiles {
		add(fmt.Sprintf("sudo prlimit --pid $$ --nofile=%d", 16384), "too few open files: the hard limit (ulimit -Hn) is %d, and %d is the least", h.files, leastFiles)
	}
	if h.tasks < leastTasks && h.uid != 0 {
		add(fmt.Sprintf("sudo prlimit --pid $$ --nproc=%d", 16384), "too few processes: the limit (ulimit -u) is %d, of all that this user runs", h.tasks)
	}
	if b, err := os.ReadFile(h.path("sys/fs/selinux/enforce")); err == nil && strings.TrimSpace(string(b)) == "1" {
		add("sudo ausearch -m avc -ts recent", "SELinux enforces a policy, and may be what refuses")
	}
	return out
}

// AppArmorFix is the command that lets the program at path have user namespaces
// where AppArmor keeps them from all others.
func AppArmorFix(path string) string {
	return fmt.Sprintf(`printf 'abi <abi/4.0>,\nprofile berm "%s" flags=(unconfined) {\n  userns,\n}\n' | sudo tee /etc/apparmor.d/berm && sudo apparmor_parser -r /etc/apparmor.d/berm`, path)
}

// Blamed is err with the likeliest obstacle as its reason, and the command that
// mends it; "" if none is to be seen.
func Blamed(err error) (why, fix string) {
	all := Obstacles()
	if len(all) == 0 {
		return "", ""
	}
	o := all[0]
	// What an error says of itself goes before the order of the list.
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EMFILE) || errors.Is(err, unix.EINVAL) {
		for _, x := range all {
			if strings.Contains(x.Why, "too few") {
				o = x
			}
		}
	}
	return o.Why, o.Fix
}

func (h host) path(name string) string { return filepath.Join(h.root, name) }

// sysctl reads one that is a number.
func (h host) sysctl(name string) (int64, bool) {
	b, err := os.ReadFile(h.path("proc/sys/" + name))
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	return n, err == nil
}

// unconfined says that no AppArmor profile is on this process.
func (h host) unconfined() bool {
	b, err := os.ReadFile(h.path("proc/self/attr/apparmor/current"))
	if err != nil {
		b, err = os.ReadFile(h.path("proc/self/attr/current"))
	}
	return err != nil || strings.HasPrefix(string(b), "unconfined")
}

// contained is the tool whose container this is, as far as it leaves a mark.
func (h host) contained() string {
	if _, err := os.Stat(h.path("run/.containerenv")); err == nil {
		return "podman"
	}
	if _, err := os.Stat(h.path(".dockerenv")); err == nil {
		return "docker"
	}
	return ""
}

// UserManager says whether systemd runs a manager for this user, which hands
// out cgroups.
func UserManager(uid int) bool {
	_, err := os.Stat(fmt.Sprintf("/run/user/%d/systemd/private", uid))
	return err == nil || errors.Is(err, os.ErrPermission)
}

// OtherNetwork says that this is not the network namespace of the first process.
func OtherNetwork() bool {
	own, err := os.Readlink("/proc/self/ns/net")
	first, ferr := os.Readlink("/proc/1/ns/net")
	return err == nil && ferr == nil && own != first
}

// CallerUID is the host's uid of this process, also where it is root in a user
// namespace of its own.
func CallerUID() int {
	b, _ := os.ReadFile("/proc/self/uid_map")
	for line := range strings.Lines(string(b)) {
		var in, out, n int
		if _, err := fmt.Sscan(line, &in, &out, &n); err == nil && in <= os.Geteuid() && os.Geteuid() < in+n {
			return out + os.Geteuid() - in
		}
	}
	return os.Geteuid()
}

// field is what follows a name at the start of a line.
func field(text, name string) string {
	for line := range strings.Lines(text) {
		if v, ok := strings.CutPrefix(line, name); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}
