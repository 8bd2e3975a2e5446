package jail

import (
	"fmt"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// WorkerNamespaces are what a worker that will Confine itself is born into. It
// needs no network namespace of its own: it can make no socket of any kind, or
// it is the one that dials for a sandbox, from where its caller would; and taking
// one down would hold up whoever makes the next (RCU again).
const WorkerNamespaces = unix.CLONE_NEWNS

// Confine takes from this process, all its threads, what it does not need: the
// host's files and network, its rights, and the calls of workerDenied. What it
// has open it keeps. mountOn is any directory; uid is the uid and gid to be from
// here on. A process that is not root (in WorkerNamespaces) calls it with uid 0
// and only loses the calls.
//
// It must be called before the first byte of anybody else's is read.
func Confine(mountOn string, uid int) error { return confine(mountOn, uid, workerDenied) }

// ConfineToInet is Confine for a worker that dials: it can make TCP and UDP
// sockets over IP, connect them and bind them, and listen on none.
func ConfineToInet(mountOn string, uid int) error {
	return confine(mountOn, uid, dialerDenied(), inetOnly()...)
}

func confine(mountOn string, uid int, calls []uint32, more ...unix.SockFilter) error {
	return confineTo(mountOn, uid, []limit{
		{unix.RLIMIT_CORE, 0},
		{unix.RLIMIT_FSIZE, 64 << 20}, // it writes sockets, pipes and one small memory file
		{unix.RLIMIT_NOFILE, 4096},
	}, calls, more...)
}

// A limit is one of setrlimit(2).
type limit struct {
	what int
	max  uint64
}

func confineTo(mountOn string, uid int, limits []limit, calls []uint32, more ...unix.SockFilter) error {
	if uid > 0 {
		if err := nowhere(mountOn); err != nil {
			return err
		}
		// The three calls are the standard library's own: they reach all threads.
		if err := syscall.Setgroups(nil); err != nil {
			return fmt.Errorf("confine: setgroups: %w", err)
		}
		if err := syscall.Setgid(uid); err != nil {
			return fmt.Errorf("confine: setgid: %w", err)
		}
		if err := syscall.Setuid(uid); err != nil {
			return fmt.Errorf("confine: setuid: %w", err)
		}
	}
	for _, l := range limits {
		if err := lower(l.what, l.max); err != nil {
			return fmt.Errorf("confine: limits: %w", err)
		}
	}
	if _, _, e := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0); e != 0 {
		return fmt.Errorf("confine: no-new-privileges: %w", e)
	}
	return denyCalls(calls, more...)
}

// lower sets a limit of this process to max, or leaves one that is lower.
func lower(what int, max uint64) error {
	var now unix.Rlimit
	if err := unix.Getrlimit(what, &now); err != nil {
		return err
	}
	max = min(max, now.Max)
	return unix.Setrlimit(what, &unix.Rlimit{Cur: max, Max: max})
}

// nowhere makes an empty, read-only root the root of this process.
func nowhere(on string) error {
	for _, s := range []struct {
		what string
		do   func() error
	}{
		{"private mounts", func() error { return unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, "") }},
		{"tmpfs", func() error {
			return unix.Mount("berm", on, "tmpfs", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "size=4k,nr_inodes=2,mode=555")
		}},
		{"chdir", func() error { return unix.Chdir(on) }},
		{"pivot", func() error { return unix.PivotRoot(".", ".") }},
		{"detach", func() error { return unix.Unmount(".", unix.MNT_DETACH) }},
		{"chdir /", func() error { return unix.Chdir("/") }},
	} {
		if err := s.do(); err != nil {
			return fmt.Errorf("confine: %s: %w", s.what, err)
		}
	}
	return nil
}

// dialerDenied is workerDenied without what it takes to dial.
func dialerDenied() []uint32 {
	needs := []uint32{unix.SYS_SOCKET, unix.SYS_BIND, unix.SYS_CONNECT}
	return slices.DeleteFunc(slices.Clone(workerDenied), func(nr uint32) bool { return slices.Contains(needs, nr) })
}

// workerDenied are the calls that a worker has no use for and somebody who took
// it over would: those of launchDenied, and to run something, to look into other
// processes, to make sockets and shared memory. They answer EPERM. It gets its sockets from others, so it makes none;
// clone is allowed for threads only, see denyCalls.
var workerDenied = slices.Concat(launchDenied, []uint32{
	unix.SYS_SOCKET, unix.SYS_SOCKETPAIR, unix.SYS_BIND, unix.SYS_CONNECT, unix.SYS_LISTEN,
	unix.SYS_EXECVE, unix.SYS_EXECVEAT, unix.SYS_FORK, unix.SYS_VFORK, unix.SYS_CHROOT,
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV,
	unix.SYS_PERSONALITY, unix.SYS_CLOCK_ADJTIME, unix.SYS_ADJTIMEX, unix.SYS_MODIFY_LDT, unix.SYS_VMSPLICE, unix.SYS_MIGRATE_PAGES, unix.SYS_MOVE_PAGES,
	unix.SYS_SHMGET, unix.SYS_SEMGET, unix.SYS_MSGGET, unix.SYS_MQ_OPEN,
})
