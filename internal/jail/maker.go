package jail

import (
	"slices"

	"golang.org/x/sys/unix"
)

// MakerLimits bound a process that ConfineMaker confines, in bytes.
type MakerLimits struct {
	File int64 // of what it writes to one descriptor
	Data int64 // of its own memory
}

// ConfineMaker is Confine for a process that turns what strangers wrote into
// images: it has the descriptors it was given and nothing else. Beside the calls
// of a worker it loses every one that takes a path, so that it has no files also
// where it is not root and keeps the host's root. It may write large files.
func ConfineMaker(mountOn string, uid int, l MakerLimits) error {
	return confineTo(mountOn, uid, []limit{
		{unix.RLIMIT_CORE, 0},
		{unix.RLIMIT_FSIZE, uint64(l.File)},
		{unix.RLIMIT_DATA, uint64(l.Data)},
		{unix.RLIMIT_NOFILE, 512},
	}, slices.Concat(workerDenied, pathCalls))
}

// pathCalls are the calls that take the path of a file, or wait for what happens
// to one.
var pathCalls = []uint32{
	unix.SYS_OPEN, unix.SYS_OPENAT, unix.SYS_OPENAT2, unix.SYS_CREAT, unix.SYS_MEMFD_CREATE,
	unix.SYS_STAT, unix.SYS_LSTAT, unix.SYS_NEWFSTATAT, unix.SYS_STATX, unix.SYS_STATFS,
	unix.SYS_ACCESS, unix.SYS_FACCESSAT, unix.SYS_FACCESSAT2, unix.SYS_READLINK, unix.SYS_READLINKAT,
	unix.SYS_CHDIR, unix.SYS_FCHDIR, unix.SYS_MKDIR, unix.SYS_MKDIRAT, unix.SYS_RMDIR,
	unix.SYS_UNLINK, unix.SYS_UNLINKAT, unix.SYS_RENAME, unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2,
	unix.SYS_LINK, unix.SYS_LINKAT, unix.SYS_SYMLINK, unix.SYS_SYMLINKAT, unix.SYS_MKNOD, unix.SYS_MKNODAT,
	unix.SYS_CHMOD, unix.SYS_FCHMODAT, unix.SYS_CHOWN, unix.SYS_LCHOWN, unix.SYS_FCHOWNAT, unix.SYS_TRUNCATE,
	unix.SYS_UTIME, unix.SYS_UTIMES, unix.SYS_FUTIMESAT, unix.SYS_UTIMENSAT,
	unix.SYS_SETXATTR, unix.SYS_LSETXATTR, unix.SYS_GETXATTR, unix.SYS_LGETXATTR,
	unix.SYS_LISTXATTR, unix.SYS_LLISTXATTR, unix.SYS_REMOVEXATTR, unix.SYS_LREMOVEXATTR,
	unix.SYS_USELIB, unix.SYS_INOTIFY_ADD_WATCH, unix.SYS_FANOTIFY_MARK,
	unix.SYS_KILL, unix.SYS_TKILL, unix.SYS_PIDFD_OPEN, unix.SYS_PIDFD_SEND_SIGNAL, unix.SYS_RT_SIGQUEUEINFO, unix.SYS_RT_TGSIGQUEUEINFO,
}
