package main

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// lifetime bounds every child, in seconds: one that nobody ends ends by itself.
const lifetime = 20

// waiting forks a child that waits and does nothing else. flags say of what the
// child gets its own.
//
//go:norace
func waiting(flags uintptr) (int, error) {
	nap := unix.Timespec{Sec: lifetime}
	pid, e := spawn(flags|uintptr(unix.SIGCHLD), &nap)
	if e != 0 {
		return 0, e
	}
	return int(pid), nil
}

// spawn is a fork without the runtime: between the clone and its end the child
// makes system calls and nothing else.
//
//go:norace
//go:nosplit
func spawn(flags uintptr, nap *unix.Timespec) (uintptr, unix.Errno) {
	pid, _, e := unix.RawSyscall6(unix.SYS_CLONE, flags, 0, 0, 0, 0, 0)
	if e != 0 || pid != 0 {
		return pid, e
	}
	unix.RawSyscall(unix.SYS_SETSID, 0, 0, 0)
	for {
		_, _, e := unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(nap)), uintptr(unsafe.Pointer(nap)), 0)
		if e != unix.EINTR {
			unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
		}
	}
}
