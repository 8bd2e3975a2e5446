package jail

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// inner is the directory of the empty root that a child has for its own root:
// there is a /proc in it until it is covered, and nothing else. A process whose
// root is not that of its mount namespace can make no user namespace, so it never
// gets at what the kernel keeps for those who have capabilities in one.
const inner = "/in"

// procDirs are where a child's mount namespace has a /proc: for the fork, and for
// what it runs.
var procDirs = []string{"/proc", inner + "/proc"}

func emptyRoot(on string) error {
	step := func(what string, err error) error {
		if err != nil {
			return fmt.Errorf("empty root: %s: %w", what, err)
		}
		return nil
	}
	if err := step("unshare", unix.Unshare(unix.CLONE_FS|unix.CLONE_NEWNS)); err != nil {
		return err
	}
	return errors.Join(
		step("private mounts", unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, "")),
		step("tmpfs", unix.Mount("berm", on, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "size=64k,nr_inodes=16,mode=755")),
		step("mkdir", os.Mkdir(filepath.Join(on, "proc"), 0o555)),
		step("mkdir", os.MkdirAll(filepath.Join(on, inner, "proc"), 0o555)),
		step("mkdir", os.Mkdir(filepath.Join(on, "ctl"), 0o700)),
		step("proc", unix.Mount("/proc", filepath.Join(on, "proc"), "", unix.MS_BIND, "")),
		step("proc", unix.Mount("/proc", filepath.Join(on, inner, "proc"), "", unix.MS_BIND, "")),
		step("ctl", unix.Mount("berm-ctl", filepath.Join(on, "ctl"), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "size=1m,mode=700")),
		step("chdir", unix.Chdir(on)),
		step("pivot", unix.PivotRoot(".", ".")),
		step("detach", unix.Unmount(".", unix.MNT_DETACH)),
		step("chdir /", unix.Chdir("/")),
		step("read-only", unix.Mount("", "/", "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")),
	)
}

// CoverProc lays an empty read-only file system over each /proc in the mount
// namespace of pid. It must come after the child has read what it needs there
// and before any guest code runs.
func CoverProc(pid int) error {
	if uncovered {
		return nil
	}
	done := make(chan error)
	spoilThread(func() {
		done <- func() error {
			if err := unix.Unshare(unix.CLONE_FS); err != nil {
				return fmt.Errorf("cover /proc: %w", err)
			}
			fd, err := unix.Open(fmt.Sprintf("/proc/%d/ns/mnt", pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return fmt.Errorf("cover /proc: %w", err)
			}
			defer unix.Close(fd)
			if err := unix.Setns(fd, unix.CLONE_NEWNS); err != nil {
				return fmt.Errorf("cover /proc: setns: %w", err)
			}
			for _, p := range procDirs {
				err = unix.Mount("none", p, "tmpfs",
					unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "size=4k,nr_inodes=2,mode=000")
				if err != nil {
					return fmt.Errorf("cover %s: %w", p, err)
				}
			}
			return nil
		}()
	})
	return <-done
}

// spoilThread runs f on a thread that does nothing else and ends with f. The
// process's first thread never ends, so f is kept off it.
func spoilThread(f func()) {
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != os.Getpid() {
			f() // never unlocked
			return
		}
		taken := make(chan struct{})
		go func() {
			runtime.LockOSThread()
			close(taken)
			f()
		}()
		<-taken
		runtime.UnlockOSThread()
	}()
}
