package here

import (
	"errors"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// noOpenat2 remembers that this kernel lacks the call.
var noOpenat2 atomic.Bool

// openBeneath opens a relative path below the folder dirfd. Nothing above it is
// reached and no link is followed, whatever changes meanwhile: a path with a
// link in it is ELOOP, one that leaves is EXDEV. "" and "." are the folder.
func openBeneath(dirfd int, path string, flags int, perm uint32) (int, error) {
	if path == "" {
		path = "."
	}
	flags |= unix.O_CLOEXEC | unix.O_NOFOLLOW
	if !noOpenat2.Load() {
		how := unix.OpenHow{Flags: uint64(flags), Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS}
		if flags&unix.O_CREAT != 0 {
			how.Mode = uint64(perm)
		}
		for range 100 {
			fd, err := unix.Openat2(dirfd, path, &how)
			switch {
			case err == unix.EAGAIN || err == unix.EINTR: // something was renamed meanwhile
				continue
			case err == unix.ENOSYS || err == unix.EPERM && !openat2Works(dirfd):
				noOpenat2.Store(true)
				return openSteps(dirfd, path, flags, perm)
			}
			return fd, err
		}
		return -1, unix.EAGAIN
	}
	return openSteps(dirfd, path, flags, perm)
}

// openat2Works tells a filter that refuses the call from a path that does.
func openat2Works(dirfd int) bool {
	fd, err := unix.Openat2(dirfd, ".", &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC})
	if err == nil {
		unix.Close(fd)
	}
	return err == nil
}

// openSteps is openBeneath one name at a time, for kernels without openat2.
func openSteps(dirfd int, path string, flags int, perm uint32) (int, error) {
	cur := dirfd
	leave := func() {
		if cur != dirfd {
			unix.Close(cur)
		}
	}
	for {
		name, rest, more := strings.Cut(path, "/")
		if name == ".." || name == "" || name == "." && more {
			leave()
			return -1, unix.EXDEV
		}
		if !more {
			fd, err := openRetry(cur, name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, perm)
			leave()
			return fd, err
		}
		next, err := openRetry(cur, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if errors.Is(err, unix.ENOTDIR) && isLink(cur, name) {
			err = unix.ELOOP
		}
		leave()
		if err != nil {
			return -1, err
		}
		cur, path = next, rest
	}
}

func isLink(dirfd int, name string) bool {
	var st unix.Stat_t
	return unix.Fstatat(dirfd, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK
}

func openRetry(dirfd int, name string, flags int, perm uint32) (int, error) {
	for {
		fd, err := unix.Openat(dirfd, name, flags, perm)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

// lstatBeneath looks at a path below the folder dirfd, through no link.
func lstatBeneath(dirfd int, path string) (st unix.Stat_t, err error) {
	dir, err := openBeneath(dirfd, parent(path), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return st, err
	}
	defer unix.Close(dir)
	return st, unix.Fstatat(dir, base(path), &st, unix.AT_SYMLINK_NOFOLLOW)
}

func stampOf(st *unix.Stat_t) stamp {
	return stamp{dev: uint64(st.Dev), ino: st.Ino, size: st.Size, mtime: st.Mtim.Nano(), ctime: st.Ctim.Nano()}
}

// readlinkAt reads the link name in dirfd.
func readlinkAt(dirfd int, name string) (string, error) {
	buf := make([]byte, unix.PathMax+1)
	n, err := unix.Readlinkat(dirfd, name, buf)
	if err == nil && n == len(buf) {
		err = unix.ENAMETOOLONG
	}
	return string(buf[:max(n, 0)]), err
}
