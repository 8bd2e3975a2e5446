package main

import (
	"debug/elf"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
)

// A situation is a kind of host that Berm meets. The test makes it for one
// command in mount namespaces and with limits of its own, or, where it takes a
// setting of the whole kernel, only in the machine of `make test-v2`.
type situation struct {
	name   string
	make   string // shell, run as root in a mount namespace of its own; $STATE is where the state directory will be
	as     string // what comes before berm: "" for root
	flags  string // of berm run
	holds  bool   // a sandbox runs
	doctor string // a part of the reason that doctor gives; "" if nothing is wrong
	fix    string // a part of the one command
	undo   string // shell, afterwards
	needs  string // a file without which this kernel has no such situation
	rig    bool   // changes a setting of the kernel
	init   string // "systemd": only where that is the first process; the same for "plain"
	uid    int    // whose the state directory is; 0: by what is in as
}

const (
	asUser   = "setpriv --reuid 64999 --regid 64999 --clear-groups env HOME=/nonexistent"
	uncapped = "--memory=unlimited --pids=unlimited --cpus=unlimited"

	asMember = "runuser -u user -- env XDG_RUNTIME_DIR=/run/user/1000 " // of the rig's machine, with a manager of its own
	handOn   = `echo "+cpu +memory +pids" >/sys/fs/cgroup/cgroup.subtree_control; `
	manager  = "systemctl start user@1000.service"
)

var situations = []situation{
	{name: "root", holds: true},
	{name: "a state directory in memory", make: `mount -t tmpfs -o nosuid,nodev,mode=700 state "$STATE"`, holds: true, doctor: "it is in memory"},
	{name: "a state directory without programs", make: `mount -t tmpfs -o noexec,mode=700 state "$STATE"`, doctor: "(noexec)", fix: "sudo mount -o remount,exec /"},
	{name: "a state directory on an overlay",
		make:  `mount -t tmpfs x /mnt && mkdir /mnt/low /mnt/up /mnt/work && mount -t overlay -o lowerdir=/mnt/low,upperdir=/mnt/up,workdir=/mnt/work overlay "$STATE" && chmod 700 "$STATE"`,
		holds: true},
	{name: "no /dev/kvm", make: `[ ! -e /dev/kvm ] || mount --bind /dev/null /dev/kvm`, holds: true},
	{name: "cgroups that are read-only",
		make:   `findmnt -rno TARGET -t cgroup,cgroup2 | while read -r m; do mount -o remount,bind,ro "$m" || exit 1; done`,
		doctor: "read-only", fix: "sudo mount -o remount,rw"},
	{name: "no cgroups mounted", make: `umount -R -l /sys/fs/cgroup`, doctor: "mounted", fix: "mount -t cgroup2"},
	{name: "no cgroups mounted, accepted", make: `umount -R -l /sys/fs/cgroup`, flags: uncapped, holds: true, doctor: "mounted", fix: "mount -t cgroup2"},
	{name: "no /proc", make: `umount -l /proc`, doctor: "/proc is not mounted", fix: "sudo mount -t proc proc /proc"},
	{name: "a container without rights", make: `mount -t tmpfs run /run && touch /run/.containerenv`,
		as: "setpriv --bounding-set=-sys_admin --inh-caps=-sys_admin", doctor: "root without its rights", fix: "podman run --privileged"},
	{name: "user namespaces switched off", as: `unshare -Ur sh -c 'echo 0 >/proc/sys/user/max_user_namespaces; exec "$@"' sh`,
		doctor: "user.max_user_namespaces", fix: "sudo sysctl -w user.max_user_namespaces=28633"},
	{name: "root of a small user namespace", as: "unshare -Ur", flags: uncapped, holds: true, doctor: "not started as root"},
	{name: "an ordinary user", as: asUser, doctor: "not started as root", fix: "berm ..."},
	{name: "an ordinary user, accepted", as: asUser, flags: uncapped, holds: true, doctor: "not started as root"},
	{name: "an ordinary user, state in memory", make: `mount -t tmpfs -o nosuid,nodev,mode=700,uid=64999,gid=64999 state "$STATE"`,
		as: asUser, flags: uncapped, holds: true, doctor: "it is in memory"},
	{name: "an ordinary user, other processes hidden", make: `mount -t proc -o hidepid=2 proc /proc`, as: asUser, flags: uncapped, holds: true, doctor: "not started as root"},
	{name: "an ordinary user with few files", as: "prlimit --nofile=64:64 " + asUser, flags: uncapped, doctor: "too few open files", fix: "sudo prlimit --pid $$ --nofile=16384"},
	{name: "root with few files", rig: true, as: "prlimit --nofile=64:64", holds: true},

	{name: "root, in a cgroup that systemd has delegated", rig: true, init: "systemd", as: "systemd-run --scope -q -p Delegate=yes", holds: true},
	{name: "root, in a service that was not delegated", rig: true, init: "systemd", as: "systemd-run -q --wait --pipe --setenv=BERM=$BERM", holds: true},
	{name: "a user with a delegated scope", rig: true, init: "systemd", uid: 1000, make: manager,
		as: asMember + "systemd-run --user --scope -q -p Delegate=yes", holds: true, doctor: "not started as root"},
	{name: "a user in a unit of the user's manager", rig: true, init: "systemd", uid: 1000, make: manager,
		as: asMember + "systemd-run --user -q --wait --pipe", holds: true, doctor: "not started as root"},
	{name: "a user with a manager, outside of it", rig: true, init: "systemd", uid: 1000, make: manager,
		as: asMember, doctor: "/sys/fs/cgroup", fix: "systemd-run --user --scope -p Delegate=yes berm"},
	{name: "a user with a group that was given by hand", rig: true, init: "plain", uid: 64999,
		make: handOn + `mkdir -p /sys/fs/cgroup/given/own-$$ && echo "+cpu +memory +pids" >/sys/fs/cgroup/given/cgroup.subtree_control && chown -R 64999 /sys/fs/cgroup/given && echo $$ >/sys/fs/cgroup/given/own-$$/cgroup.procs`,
		as:   asUser, holds: true, doctor: "not started as root"},
	{name: "the root of a cgroup namespace, as in a container", rig: true,
		make: handOn + `mkdir -p /sys/fs/cgroup/held-$$ && echo $$ >/sys/fs/cgroup/held-$$/cgroup.procs`,
		as:   `unshare -Cm sh -c 'umount -l /sys/fs/cgroup && mount -t cgroup2 c /sys/fs/cgroup && "$@"' sh`, holds: true},
	{name: "Debian's switch", rig: true, needs: "/proc/sys/kernel/unprivileged_userns_clone", make: "sysctl -qw kernel.unprivileged_userns_clone=0", undo: "sysctl -qw kernel.unprivileged_userns_clone=1",
		as: asUser, flags: uncapped, doctor: "for root only", fix: "sudo sysctl -w kernel.unprivileged_userns_clone=1"},
	{name: "AppArmor's restriction", rig: true, needs: "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
		make: "sysctl -qw kernel.apparmor_restrict_unprivileged_userns=1", undo: "sysctl -qw kernel.apparmor_restrict_unprivileged_userns=0",
		as: asUser, flags: uncapped, doctor: "AppArmor", fix: "apparmor_parser -r /etc/apparmor.d/berm"},
	{name: "AppArmor's restriction, for root", rig: true, needs: "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
		make: "sysctl -qw kernel.apparmor_restrict_unprivileged_userns=1", undo: "sysctl -qw kernel.apparmor_restrict_unprivileged_userns=0", holds: true},
	{name: "ptrace for root only", rig: true, needs: "/proc/sys/kernel/yama/ptrace_scope", make: "sysctl -qw kernel.yama.ptrace_scope=2", undo: "sysctl -qw kernel.yama.ptrace_scope=1",
		doctor: "ptrace_scope is 2", fix: "sudo sysctl -w kernel.yama.ptrace_scope=1"},
}

// TestHosts: on every kind of host a sandbox runs as promised or is refused, and
// doctor says what is wrong and names the command that mends it.
func TestHosts(t *testing.T) {
	bin, _ := binary(t)
	for _, tool := range []string{"unshare", "setpriv", "prlimit", "findmnt", "mount"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("needs ", tool, " of util-linux")
		}
	}
	for _, s := range situations {
		t.Run(s.name, func(t *testing.T) {
			if s.rig && os.Getenv("BERM_RIG") == "" {
				t.Skip("it takes a setting of the whole kernel: make test-v2")
			}
			if s.init != "" && os.Getenv("BERM_RIG") != s.init {
				t.Skip("it takes another machine of the rig, with init " + s.init)
			}
			if _, err := os.Stat(s.needs); s.needs != "" && err != nil {
				t.Skip("this kernel has no " + s.needs)
			}
			s.check(t, bin)
		})
	}
}

func (s situation) check(t *testing.T, bin string) {
	dir := t.TempDir()
	for p := dir; p != os.TempDir() && len(p) > 1; p = filepath.Dir(p) {
		os.Chmod(p, 0o755) // the test's folders are closed to others
	}
	root, state := filepath.Join(dir, "root"), filepath.Join(dir, "state")
	for _, d := range []string{root, state} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	hello := programs(t, bin, root)
	if strings.Contains(s.as, "setpriv --reuid") {
		s.uid = 64999
	}
	if s.uid != 0 {
		for _, p := range []string{root, state} {
			if err := os.Chown(p, s.uid, s.uid); err != nil {
				t.Fatal(err)
			}
		}
	}
	berm := func(args string) (stdout, stderr string, code int) {
		script := "set -e\n" + s.make + "\ncd /\nexec " + s.as + ` "$BERM" --state "$STATE" ` + args
		cmd := exec.Command("unshare", "-m", "--propagation", "private", "sh", "-c", script)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "BERM=" + bin, "STATE=" + state, "ROOT=" + root}
		var out, errs strings.Builder
		began := time.Now()
		defer func() { t.Logf("berm %.40s: exit code %d after %.1f s", args, code, time.Since(began).Seconds()) }()
		cmd.Stdout, cmd.Stderr = &out, &errs
		cmd.Run()
		if s.undo != "" {
			exec.Command("sh", "-c", s.undo).Run()
		}
		code = cmd.ProcessState.ExitCode()
		return out.String(), errs.String(), code
	}
	out, errs, code := berm(`run ` + s.flags + ` --timeout 120s --template "$ROOT" -- ` + hello)
	if s.holds && (code != 0 || !strings.Contains(out, "berm")) {
		t.Errorf("run: exit code %d, %q, %q", code, out, errs)
	}
	if s.holds && s.rig && s.flags == "" {
		stop := make(chan struct{})
		seen := make(chan string, 1)
		go func() { seen <- capsSeen(stop) }()
		// The caps are hit, one by one, in a group of this kind of host.
		if _, errs, code := berm(`run --memory 64m --pids 50 --cpus 1 --timeout 300s --template "$ROOT" -- /busybox sh -c '/busybox dd if=/dev/zero of=/dev/null bs=200M count=1'`); code != 137 || !strings.Contains(errs, "memory: reached its cap") {
			t.Errorf("memory: exit code %d, %q", code, errs)
		}
		close(stop)
		// The sandbox's tasks on the host are four for one of its own, and its gVisor's.
		if got := <-seen; got != "memory.max 67108864, pids.max 328, cpu.max 100000 100000, with processes" {
			t.Errorf("caps seen in the cgroup of the sandbox: %q", got)
		}
	}
	if s.holds && s.rig && s.flags == "" && s.uid != 0 {
		if _, errs, code := berm(`run --pids 16 --timeout 300s --template "$ROOT" -- /busybox sh -c 'for i in $(/busybox seq 40); do /busybox sleep 100 & done; wait'`); code == 0 || !strings.Contains(errs, "processes: the cap of 16 was reached") {
			t.Errorf("processes: exit code %d, %q", code, errs)
		}
	}
	if !s.holds && (code != 125 || !strings.Contains(errs, "try: ") || !strings.Contains(errs, s.fix)) {
		t.Errorf("run: exit code %d, %q, %q; want a refusal with %q", code, out, errs, s.fix)
	}
	out, errs, code = berm("doctor --json")
	var d api.Doctor
	if err := json.Unmarshal([]byte(out), &d); err != nil {
		t.Fatalf("doctor: %v: %q, %q, exit code %d", err, out, errs, code)
	}
	found := false
	for _, r := range d.Rungs {
		found = found || !r.Available && strings.Contains(r.Reason, s.doctor) && strings.Contains(r.Fix, s.fix)
		if !r.Available && s.doctor == "" {
			t.Errorf("doctor: %+v", r)
		}
	}
	for _, w := range d.Walls {
		found = found || strings.Contains(w.Reason, s.doctor) && strings.Contains(w.Fix, s.fix)
		if !w.Holds && (s.doctor == "" || w.Fix == "" || strings.Contains(w.Fix, "\n")) {
			t.Errorf("doctor: %+v", w)
		}
	}
	if s.doctor != "" && !found {
		t.Errorf("doctor does not say %q with %q: %s", s.doctor, s.fix, out)
	}
}

// capsSeen looks for the cgroup v2 of a sandbox until stop, and says what is set
// in it while it holds processes.
func capsSeen(stop chan struct{}) (last string) {
	for {
		select {
		case <-stop:
			return last
		case <-time.After(20 * time.Millisecond):
		}
		filepath.WalkDir("/sys/fs/cgroup", func(dir string, d fs.DirEntry, err error) error {
			if err != nil || !d.IsDir() || !strings.HasPrefix(d.Name(), "berm-s") {
				return nil
			}
			read := func(name string) string {
				b, _ := os.ReadFile(filepath.Join(dir, name))
				return strings.TrimSpace(string(b))
			}
			if read("cgroup.procs") != "" {
				last = fmt.Sprintf("memory.max %s, pids.max %s, cpu.max %s, with processes", read("memory.max"), read("pids.max"), read("cpu.max"))
			}
			return nil
		})
	}
}

// programs puts what a sandbox runs below root: one command that says "berm". A
// busybox is much quicker to start than berm, which matters where all is emulated.
func programs(t *testing.T, bin, root string) (hello string) {
	t.Helper()
	const busybox = "/bin/busybox"
	if f, err := elf.Open(busybox); err == nil {
		defer f.Close()
		if !slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
			copyProgram(t, busybox, filepath.Join(root, "busybox"))
			return "/busybox echo berm"
		}
	}
	copyProgram(t, bin, filepath.Join(root, "berm"))
	return "/berm version"
}

func copyProgram(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
}
