package jail

import (
	"fmt"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"
)

// ConfineGateway takes from this process, all its threads, every call but those
// that a Go program needs to live and to move bytes between the descriptors that
// it has and is given. It can make no socket, connect none, open no file, run
// nothing and signal nobody but itself. It must be called before the first byte
// of a guest's is read.
func ConfineGateway() error {
	for _, l := range []struct {
		what int
		max  uint64
	}{
		{unix.RLIMIT_CORE, 0},
		{unix.RLIMIT_FSIZE, 0},
		{unix.RLIMIT_NOFILE, 1024},
	} {
		if err := lower(l.what, l.max); err != nil {
			return fmt.Errorf("confine: limits: %w", err)
		}
	}
	// The filter takes this along to all threads.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("confine: no-new-privileges: %w", err)
	}
	return filter(gatewayFilter(unix.Getpid()), unix.SECCOMP_FILTER_FLAG_TSYNC)
}

// gatewayAllowed are the calls without conditions.
var gatewayAllowed = []uint32{
	// Bytes of descriptors that are there.
	unix.SYS_READ, unix.SYS_WRITE, unix.SYS_READV, unix.SYS_WRITEV, unix.SYS_RECVMSG, unix.SYS_RECVFROM,
	unix.SYS_SHUTDOWN, unix.SYS_CLOSE, unix.SYS_GETSOCKNAME, unix.SYS_GETPEERNAME, unix.SYS_GETSOCKOPT,
	// Waiting.
	unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_PWAIT, unix.SYS_EPOLL_PWAIT2, unix.SYS_EPOLL_WAIT, unix.SYS_EPOLL_CREATE1, unix.SYS_EVENTFD2,
	unix.SYS_FUTEX, unix.SYS_NANOSLEEP, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_RESTART_SYSCALL, unix.SYS_SCHED_YIELD,
	// Memory; what makes it executable is refused below.
	unix.SYS_MUNMAP, unix.SYS_MADVISE,
	// The runtime's own affairs.
	unix.SYS_CLOCK_GETTIME, unix.SYS_CLOCK_GETRES, unix.SYS_GETTIMEOFDAY, unix.SYS_TIME, unix.SYS_GETRANDOM, unix.SYS_GETPID, unix.SYS_GETTID,
	unix.SYS_SCHED_GETAFFINITY, unix.SYS_SIGALTSTACK, unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN,
	unix.SYS_SET_ROBUST_LIST, unix.SYS_RSEQ, unix.SYS_MEMBARRIER, unix.SYS_EXIT, unix.SYS_EXIT_GROUP,
}

// gatewayRefused are calls that answer EPERM: those that somebody may try who
// has a use for them, and those that a library may and can do without. All
// others kill, as nothing makes them that was written for this process.
func gatewayRefused() []uint32 {
	return append(slices.Clone(workerDenied),
		unix.SYS_ACCEPT, unix.SYS_ACCEPT4, unix.SYS_SENDTO, unix.SYS_SENDMSG, unix.SYS_SENDMMSG, unix.SYS_SETSOCKOPT,
		unix.SYS_OPEN, unix.SYS_OPENAT, unix.SYS_OPENAT2, unix.SYS_CREAT, unix.SYS_STAT, unix.SYS_LSTAT, unix.SYS_NEWFSTATAT,
		unix.SYS_STATX, unix.SYS_FSTAT, unix.SYS_ACCESS, unix.SYS_FACCESSAT, unix.SYS_FACCESSAT2, unix.SYS_READLINK, unix.SYS_READLINKAT,
		unix.SYS_GETDENTS64, unix.SYS_GETCWD, unix.SYS_PREAD64, unix.SYS_PWRITE64, unix.SYS_LSEEK, unix.SYS_IOCTL, unix.SYS_UNAME,
		unix.SYS_MINCORE, unix.SYS_BRK, unix.SYS_MREMAP, unix.SYS_PRLIMIT64, unix.SYS_SETRLIMIT, unix.SYS_GETRLIMIT, unix.SYS_SYSINFO,
		unix.SYS_GETUID, unix.SYS_GETEUID, unix.SYS_GETGID, unix.SYS_GETEGID, unix.SYS_GETPPID, unix.SYS_DUP, unix.SYS_DUP2, unix.SYS_DUP3,
		unix.SYS_PIPE, unix.SYS_PIPE2, unix.SYS_KILL, unix.SYS_TKILL, unix.SYS_SETITIMER, unix.SYS_TIMER_CREATE, unix.SYS_TIMER_SETTIME,
		unix.SYS_TIMER_DELETE, unix.SYS_MEMFD_CREATE, unix.SYS_CLOSE_RANGE, unix.SYS_WAIT4, unix.SYS_WAITID, unix.SYS_ARCH_PRCTL,
		unix.SYS_PIDFD_OPEN, unix.SYS_PIDFD_SEND_SIGNAL)
}

// gatewayFilter is the program; pid is the process that it is for.
func gatewayFilter(pid int) []unix.SockFilter {
	const (
		x86_64 = 0xc000003e // AUDIT_ARCH_X86_64
		x32    = 0x40000000

		offArg1, offArg2 = offArg0 + 8, offArg0 + 16
		setVMA           = 0x53564d41 // PR_SET_VMA: names for memory
		namespaces       = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
			unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET
	)
	allow, kill := answer(unix.SECCOMP_RET_ALLOW), answer(unix.SECCOMP_RET_KILL_PROCESS)
	prog := []unix.SockFilter{
		load(offArch),
		equal(x86_64, 1, 0),
		kill,
		load(offNr),
		{Code: unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, Jt: 0, Jf: 1, K: x32},
		kill,
	}
	for _, nr := range gatewayAllowed {
		prog = append(prog, equal(nr, 0, 1), allow)
	}
	// one allows a call if an argument is one of few values.
	one := func(nr uint32, off uint32, values ...uint32) {
		prog = append(prog, equal(nr, 0, uint8(2+2*len(values))), load(off))
		for _, v := range values {
			prog = append(prog, equal(v, 0, 1), allow)
		}
		prog = append(prog, answer(eperm))
	}
	// Threads, which share all that there is.
	prog = append(prog, equal(unix.SYS_CLONE, 0, 5), load(offArg0),
		unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, Jt: 2, Jf: 0, K: namespaces},
		unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, Jt: 0, Jf: 1, K: unix.CLONE_THREAD},
		allow, answer(eperm))
	one(unix.SYS_TGKILL, offArg0, uint32(pid)) // the runtime preempts its threads by signals
	one(unix.SYS_PRCTL, offArg0, setVMA)
	one(unix.SYS_FCNTL, offArg1, unix.F_GETFL, unix.F_SETFL, unix.F_GETFD, unix.F_SETFD)
	for _, nr := range []uint32{unix.SYS_MMAP, unix.SYS_MPROTECT} {
		prog = append(prog, equal(nr, 0, 4), load(offArg2),
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, Jt: 1, Jf: 0, K: unix.PROT_EXEC},
			allow, answer(eperm))
	}
	prog = append(prog, equal(unix.SYS_CLONE3, 0, 1), answer(unix.SECCOMP_RET_ERRNO|uint32(unix.ENOSYS)))
	for _, nr := range gatewayRefused() {
		prog = append(prog, equal(nr, 0, 1), answer(eperm))
	}
	return append(prog, kill)
}
