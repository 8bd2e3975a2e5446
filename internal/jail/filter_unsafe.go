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
//	launchDenied -> EPERM
//	    Nothing that is launched has a use for them, and what has taken it over
//	    would.
//
// Everything else is allowed here: the child lays its own, far narrower filter
// on itself before guest code runs, and filters add up.
func launchFilter() []unix.SockFilter {
	const regPriv = 1 << 4 // MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED
	return append(refusing(launchDenied),
		equal(unix.SYS_MEMBARRIER, 0, 3),
		load(offArg0),
		equal(regPriv, 0, 1),
		answer(unix.SECCOMP_RET_ERRNO|uint32(unix.EINVAL)),
		answer(unix.SECCOMP_RET_ALLOW),
	)
}

// launchDenied are parts of the kernel with a long record of holes that are open
// to every user, and calls that change namespaces, mounts and the host. The
// thread that launches makes none of them either: it has done so before.
var launchDenied = []uint32{
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD,
	unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
	unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_KEYCTL, unix.SYS_FANOTIFY_INIT, unix.SYS_FANOTIFY_MARK,
	unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT,
	unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT, unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR,
	unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_NAME_TO_HANDLE_AT, unix.SYS_PIDFD_GETFD, unix.SYS_KCMP,
	unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD,
	unix.SYS_REBOOT, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_ACCT, unix.SYS_QUOTACTL, unix.SYS_SYSLOG,
	unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_LOOKUP_DCOOKIE,
}

// Where things are in struct seccomp_data.
const (
	offNr   = 0
	offArch = 4
	offArg0 = 16
	offArg2 = 32
)

func load(off uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: off}
}

func equal(k uint32, jt, jf uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: jt, Jf: jf, K: k}
}

func answer(k uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: k}
}

// refuse is the program that answers EPERM to calls, to a clone into a new
// namespace (where a process has rights that it lost here), and to sockets that
// are neither unix nor internet ones; clone3, whose flags a filter cannot read,
// does not exist for it. A call of another ABI kills.
func refuse(calls []uint32) []unix.SockFilter {
	const namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
		unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET
	allow := answer(unix.SECCOMP_RET_ALLOW)
	return append(refusing(calls),
		equal(unix.SYS_CLONE3, 0, 1),
		answer(unix.SECCOMP_RET_ERRNO|uint32(unix.ENOSYS)),
		equal(unix.SYS_CLONE, 0, 4),
		load(offArg0),
		unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, Jt: 0, Jf: 1, K: namespaces},
		answer(eperm),
		allow,
		equal(unix.SYS_SOCKET, 1, 0),
		allow,
		load(offArg0),
		equal(unix.AF_UNIX, 2, 0),
		equal(unix.AF_INET, 1, 0),
		equal(unix.AF_INET6, 0, 1),
		allow,
		answer(eperm),
	)
}

func refusing(calls []uint32) []unix.SockFilter {
	const (
		x86_64 = 0xc000003e // AUDIT_ARCH_X86_64
		x32    = 0x40000000
	)
	prog := []unix.SockFilter{
		load(offArch),
		equal(x86_64, 1, 0),
		answer(unix.SECCOMP_RET_KILL_PROCESS),
		load(offNr),
		{Code: unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, Jt: 0, Jf: 1, K: x32},
		answer(unix.SECCOMP_RET_KILL_PROCESS),
	}
	for _, nr := range calls {
		prog = append(prog, equal(nr, 0, 1), answer(eperm))
	}
	return prog
}

const eperm = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)

// deny refuses calls, and clones that are not threads; clone3, whose flags a
// filter cannot read, does not exist for it. more comes before the last two.
func deny(calls []uint32, more ...unix.SockFilter) []unix.SockFilter {
	const cloneThread = 0x10000
	allow := answer(unix.SECCOMP_RET_ALLOW)
	return append(append(refusing(calls), more...),
		equal(unix.SYS_CLONE3, 0, 1),
		answer(unix.SECCOMP_RET_ERRNO|uint32(unix.ENOSYS)),
		equal(unix.SYS_CLONE, 1, 0),
		allow,
		load(offArg0),
		unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, Jt: 0, Jf: 1, K: cloneThread},
		allow,
		answer(eperm),
	)
}

// inetOnly answers EPERM to sockets that are neither TCP nor UDP over IP.
func inetOnly() []unix.SockFilter {
	return []unix.SockFilter{
		equal(unix.SYS_SOCKET, 0, 9),
		load(offArg0),
		equal(unix.AF_INET, 1, 0),
		equal(unix.AF_INET6, 0, 5),
		load(offArg2),
		equal(0, 2, 0), // the family's own for the kind
		equal(unix.IPPROTO_TCP, 1, 0),
		equal(unix.IPPROTO_UDP, 0, 1),
		answer(unix.SECCOMP_RET_ALLOW),
		answer(eperm),
	}
}

// denyCalls lays deny on all threads of this process.
func denyCalls(calls []uint32, more ...unix.SockFilter) error {
	return filter(deny(calls, more...), unix.SECCOMP_FILTER_FLAG_TSYNC)
}

// filterThread lays the launch filter on the calling thread.
func filterThread() error {
	if !privileges {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("no-new-privileges: %w", err)
		}
	}
	if prog := inherited(launchFilter()); prog != nil {
		return filter(prog, 0)
	}
	return nil
}

func filter(prog []unix.SockFilter, flags uintptr) error {
	fprog := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	_, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&fprog)))
	runtime.KeepAlive(prog)
	if e != 0 {
		return fmt.Errorf("seccomp: %w", e)
	}
	return nil
}
