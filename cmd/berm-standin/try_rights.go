package main

import (
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// becomeRoot asks for root's ids and for its capabilities, on every thread.
func becomeRoot(t *try) {
	t.note("groups", syscall.Setgroups([]int{0}))
	t.note("gid", syscall.Setresgid(0, 0, 0))
	t.note("uid", syscall.Setresuid(0, 0, 0))
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	all := [2]unix.CapUserData{{Effective: 1<<32 - 1, Permitted: 1<<32 - 1}, {Effective: 1<<9 - 1, Permitted: 1<<9 - 1}}
	t.note("capabilities", unix.Capset(&hdr, &all[0]))
	t.note("new privileges", unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0))
	t.note("securebits", unix.Prctl(unix.PR_SET_SECUREBITS, 0, 0, 0, 0))
	t.say("uid %d, gid %d", os.Getuid(), os.Getgid())
}

// newNamespaces makes a child with a user namespace of its own, in which it would
// have every capability, and so reach parts of the kernel that are closed to users.
func newNamespaces(t *try) {
	for _, flags := range []uintptr{unix.CLONE_NEWUSER, unix.CLONE_NEWUSER | unix.CLONE_NEWNET | unix.CLONE_NEWNS, unix.CLONE_NEWNET, unix.CLONE_NEWNS, unix.CLONE_NEWPID} {
		pid, err := waiting(flags)
		t.note(fmt.Sprintf("a child with namespaces %#x", flags), err)
		t.say("child %d", pid)
	}
	_, _, e := unix.RawSyscall(unix.SYS_UNSHARE, unix.CLONE_NEWUSER, 0, 0)
	t.say("unshare: %v", e)
}

func mountThings(t *try) {
	name := "berm-" + t.nonce // by which it is seen from outside
	t.note("a file system of memory", unix.Mount(name, "/proc", "tmpfs", 0, "size=64k"))
	t.note("proc", unix.Mount(name, "/proc", "proc", 0, ""))
	t.note("bind", unix.Mount("/proc", "/", name, unix.MS_BIND, ""))
	t.note("uncover /proc", unix.Unmount("/proc", unix.MNT_DETACH))
	t.note("writable root", unix.Mount(name, "/", "", unix.MS_REMOUNT|unix.MS_BIND, ""))
	fd, err := unix.Fsopen("tmpfs", 0)
	t.note("fsopen", err)
	if err == nil {
		unix.Close(fd)
	}
	t.note("chroot", unix.Chroot("/proc"))
}

// raiseLimits asks for more than the hard limits.
func raiseLimits(t *try) {
	for _, what := range []int{unix.RLIMIT_NOFILE, unix.RLIMIT_NPROC, unix.RLIMIT_MEMLOCK, unix.RLIMIT_MSGQUEUE, unix.RLIMIT_FSIZE} {
		var l unix.Rlimit
		if unix.Getrlimit(what, &l) != nil {
			continue
		}
		if l.Max == unix.RLIM_INFINITY {
			t.say("limit %d is none", what)
			continue
		}
		more := unix.Rlimit{Cur: l.Max + 4096, Max: l.Max + 4096}
		t.note(fmt.Sprintf("limit %d from %d", what, l.Max), unix.Prlimit(0, what, &more, nil))
	}
}

// goFirst asks to run before all others.
func goFirst(t *try) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for pid := range 2 { // this thread, the first one
		t.note("nice", unix.Setpriority(unix.PRIO_PROCESS, pid, -15))
	}
	attr := &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: 1, Priority: 1} // SCHED_FIFO
	t.note("real time", unix.SchedSetAttr(0, attr, 0))
	// What got it gives it back before it could hold up anybody.
	unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr}, 0)
}

// others are numbers of processes that may be the host's.
func (t *try) others() []int {
	return []int{t.at.HolderPID, os.Getppid(), 1, 2}
}

// enterOthers goes into the namespaces of other processes.
func enterOthers(t *try) {
	runtime.LockOSThread()
	for _, pid := range t.others() {
		fd, err := unix.PidfdOpen(pid, 0)
		t.note(fmt.Sprintf("process %d", pid), err)
		if err != nil || pid == os.Getpid() {
			continue
		}
		for _, ns := range []int{unix.CLONE_NEWUSER, unix.CLONE_NEWNS, unix.CLONE_NEWNET, unix.CLONE_NEWPID} {
			t.note(fmt.Sprintf("namespace %#x of %d", ns, pid), unix.Setns(fd, ns))
		}
		for n := range 8 {
			got, err := unix.PidfdGetfd(fd, n, 0)
			if err == nil {
				t.dump(got)
			}
		}
		unix.Close(fd)
	}
	t.places()
	for _, p := range t.places() {
		t.read(p)
	}
}

// signalHolder ends a process of the suite's that waits on the host for that.
func signalHolder(t *try) {
	for _, pid := range []int{t.at.HolderPID} {
		t.note(fmt.Sprintf("hang up %d", pid), unix.Kill(pid, unix.SIGHUP))
		fd, err := unix.PidfdOpen(pid, 0)
		t.note("a descriptor of it", err)
		if err == nil {
			t.note("hang up by descriptor", unix.PidfdSendSignal(fd, unix.SIGHUP, nil, 0))
			unix.Close(fd)
		}
	}
}

// traceOthers looks into other processes, of which one holds a canary.
func traceOthers(t *try) {
	runtime.LockOSThread()
	b := make([]byte, 4096)
	for _, pid := range t.others() {
		if pid == os.Getpid() {
			continue
		}
		local := []unix.Iovec{{Base: &b[0]}}
		local[0].SetLen(len(b))
		n, err := unix.ProcessVMReadv(pid, local, []unix.RemoteIovec{{Base: 0x400000, Len: len(b)}}, 0)
		t.note(fmt.Sprintf("memory of %d: %d bytes", pid, n), err)
		err = unix.PtraceAttach(pid)
		t.note(fmt.Sprintf("trace %d", pid), err)
		if err == nil {
			var st unix.WaitStatus
			unix.Wait4(pid, &st, 0, nil)
			unix.PtraceDetach(pid)
		}
	}
}
