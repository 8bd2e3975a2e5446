package main

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// filterAll is a filter on system calls that stops none: that wall is another.
func filterAll() error {
	allow := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}
	prog := unix.SockFprog{Len: 1, Filter: &allow}
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog)), 0, 0)
}
