package jail

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The launch filter is laid on the launching thread and so on all that it
// forks. It takes nothing away that a sandbox uses; each line has its reason.
//
//	membarrier(REGISTER_PRIVATE_EXPEDITED) -> EINVAL
//	    In a program with more than one thread this call waits for an RCU grace
//	    period (10-20 ms measured). gVisor makes it in a package initialiser,
//	    on every start, and works as well with the global barrier, which it
//	    uses for the guest's own membarrier calls in any case.
//
// Everything else is allowed here: the child lays its own, far narrower filter
// on itself before guest code runs, and filters add up.
func launchFilter() []unix.SockFilter {
	const (
		offNr   = 0
		offArg0 = 16
		regPriv = 1 << 4 // MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED
	)
	ld := func(off uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: off}
	}
	eq := func(k uint32, jt, jf uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: jt, Jf: jf, K: k}
	}
	ret := func(k uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: k} }
	return []unix.SockFilter{
		ld(offNr),
		eq(unix.SYS_MEMBARRIER, 0, 3),
		ld(offArg0),
		eq(regPriv, 0, 1),
		ret(unix.SECCOMP_RET_ERRNO | uint32(unix.EINVAL)),
		ret(unix.SECCOMP_RET_ALLOW),
	}
}

// filterThread lays the launch filter on the calling thread.
func filterThread() error {
	prog := launchFilter()
	fprog := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no-new-privileges: %w", err)
	}
	_, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&fprog)))
	runtime.KeepAlive(prog)
	if e != 0 {
		return fmt.Errorf("seccomp: %w", e)
	}
	return nil
}
