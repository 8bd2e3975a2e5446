package jail

import (
	"fmt"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// Drop takes from this process, all its threads and all it will run, the rights
// that a daemon has no use for: it becomes uid (and the gid of the same number),
// for good, loses every capability, and can no longer change namespaces or
// mounts, look into other processes or use the parts of the kernel with the
// longest record of holes. What it has open it keeps. With uid 0 it stays who
// it is and loses the rest.
func Drop(uid int) error {
	for c := uintptr(0); c <= lastCap; c++ {
		_, _, e := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c, 0, 0, 0, 0)
		if e != 0 && e != unix.EINVAL && e != unix.EPERM { // the kernel does not know it, or we may not
			return fmt.Errorf("drop: bounding set: %w", e)
		}
	}
	if uid > 0 {
		// The three calls are the standard library's own: they reach all threads.
		if err := syscall.Setgroups(nil); err != nil {
			return fmt.Errorf("drop: setgroups: %w", err)
		}
		if err := syscall.Setresgid(uid, uid, uid); err != nil {
			return fmt.Errorf("drop: setgid: %w", err)
		}
		if err := syscall.Setresuid(uid, uid, uid); err != nil {
			return fmt.Errorf("drop: setuid: %w", err)
		}
		if unix.Getuid() != uid || syscall.Setuid(0) == nil {
			return fmt.Errorf("drop: still root")
		}
	}
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("drop: limits: %w", err)
	}
	if _, _, e := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0); e != 0 {
		return fmt.Errorf("drop: no-new-privileges: %w", e)
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("drop: dumpable: %w", err)
	}
	return filter(refuse(daemonDenied()), unix.SECCOMP_FILTER_FLAG_TSYNC)
}

const lastCap = 63

// daemonDenied is workerDenied without what a daemon lives on: sockets, and the
// commands of its operator's alerts.
func daemonDenied() []uint32 {
	needs := []uint32{unix.SYS_SOCKET, unix.SYS_SOCKETPAIR, unix.SYS_BIND, unix.SYS_CONNECT, unix.SYS_LISTEN,
		unix.SYS_EXECVE, unix.SYS_EXECVEAT, unix.SYS_FORK, unix.SYS_VFORK}
	return slices.DeleteFunc(slices.Clone(workerDenied), func(nr uint32) bool { return slices.Contains(needs, nr) })
}
