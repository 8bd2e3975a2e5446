package jail

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A Launcher is one thread in a mount namespace whose root holds a /proc and
// nothing else. Children are forked from it, so they are born with no host
// path in reach, and die with it (parent-death signal).
type Launcher struct {
	jobs     chan func()
	rootless bool
	home     []*os.File // v1 tasks files to go back to
}

// A Child is what to fork.
type Child struct {
	Exe    *os.File // the program, by descriptor: the empty root has no paths
	Args   []string // with argv[0]
	Env    []string
	Files  []*os.File // become descriptors 3, 4, ...
	UID    int        // host uid and gid; ignored without root
	Cgroup *Cgroup    // nil: none
	NProc  uint64     // RLIMIT_NPROC; 0: as it is. The only bound on tasks where there is no cgroup
}

// childID is what a child takes itself for in its own user namespace.
const childID = 65534

// NewLauncher starts the thread. mountOn is any directory; the empty root is
// mounted over it in the private namespace, where nobody else sees it.
// rootless says that this process is root only in a user namespace of its own.
func NewLauncher(mountOn string, h *Hierarchy, rootless bool) (*Launcher, error) {
	l := &Launcher{jobs: make(chan func()), rootless: rootless}
	if h != nil && !h.V2 {
		for _, c := range h.controllers() {
			f, err := os.OpenFile(filepath.Join(h.parents[c], "tasks"), os.O_WRONLY, 0)
			if err != nil {
				return nil, fmt.Errorf("cgroup %s: %w", c, err)
			}
			l.home = append(l.home, f)
		}
	}
	ready := make(chan error)
	spoilThread(func() {
		err := emptyRoot(mountOn)
		if err == nil {
			err = filterThread()
		}
		ready <- err
		if err == nil {
			for job := range l.jobs {
				job()
			}
		}
	})
	if err := <-ready; err != nil {
		return nil, err
	}
	return l, nil
}

// Close ends the thread and so every child that still lives.
func (l *Launcher) Close() { close(l.jobs) }

func (l *Launcher) do(f func() error) error {
	done := make(chan error, 1)
	l.jobs <- func() { done <- f() }
	return <-done
}

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
		step("mkdir", os.Mkdir(filepath.Join(on, "ctl"), 0o700)),
		step("proc", unix.Mount("/proc", filepath.Join(on, "proc"), "", unix.MS_BIND, "")),
		step("ctl", unix.Mount("berm-ctl", filepath.Join(on, "ctl"), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "size=1m,mode=700")),
		step("chdir", unix.Chdir(on)),
		step("pivot", unix.PivotRoot(".", ".")),
		step("detach", unix.Unmount(".", unix.MNT_DETACH)),
		step("chdir /", unix.Chdir("/")),
		step("read-only", unix.Mount("", "/", "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")),
	)
}

// Listen makes a listening unix socket that only this launcher can connect to:
// its name is in the private namespace.
func (l *Launcher) Listen(name string) (f *os.File, err error) {
	err = l.do(func() error {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		if err := unix.Bind(fd, &unix.SockaddrUnix{Name: "/ctl/" + name}); err != nil {
			unix.Close(fd)
			return err
		}
		f = os.NewFile(uintptr(fd), name)
		return nil
	})
	return f, err
}

// Connect makes a connection to a socket made by Listen.
func (l *Launcher) Connect(name string) (f *os.File, err error) {
	err = l.do(func() error {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		if err := unix.Connect(fd, &unix.SockaddrUnix{Name: "/ctl/" + name}); err != nil {
			unix.Close(fd)
			return err
		}
		f = os.NewFile(uintptr(fd), name)
		return nil
	})
	return f, err
}

// Unlisten forgets the name of a socket made by Listen.
func (l *Launcher) Unlisten(name string) {
	l.do(func() error { return unix.Unlink("/ctl/" + name) })
}

// Start forks c: inside its cgroup from birth, in new user, pid, mount, net,
// ipc and uts namespaces, as a uid of its own, without capabilities.
func (l *Launcher) Start(c Child) (*os.Process, error) {
	var in []*os.File
	var cgroupFD *os.File
	defer func() {
		for _, f := range in {
			f.Close()
		}
		if cgroupFD != nil {
			cgroupFD.Close()
		}
	}()
	if c.Cgroup != nil {
		for _, d := range c.Cgroup.dirs() {
			var f *os.File
			var err error
			if c.Cgroup.V2 {
				f, err = os.Open(d)
				cgroupFD = f
			} else if f, err = os.OpenFile(filepath.Join(d, "tasks"), os.O_WRONLY, 0); err == nil {
				in = append(in, f)
			}
			if err != nil {
				return nil, fmt.Errorf("cgroup %s: %w", d, err)
			}
		}
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()

	// The fork moves the child's files about between the highest of them and
	// that plus their number; the program must not be in the way.
	top := null.Fd()
	for _, f := range c.Files {
		top = max(top, f.Fd())
	}
	exe, err := unix.FcntlInt(c.Exe.Fd(), unix.F_DUPFD_CLOEXEC, int(top)+len(c.Files)+8)
	if err != nil {
		return nil, fmt.Errorf("launch: program: %w", err)
	}
	defer unix.Close(exe)

	cmd := &exec.Cmd{
		Path: "/proc/self/fd/" + strconv.Itoa(exe), Args: c.Args, Env: append([]string{}, c.Env...), // never nil: that would be our own
		Stdin: null, Stdout: null, Stderr: null, ExtraFiles: c.Files,
		SysProcAttr: l.attr(c.UID, cgroupFD),
	}
	err = l.do(func() error {
		// v1: this thread joins, forks, and leaves; the child is born inside.
		for _, f := range in {
			if _, err := f.WriteString("0"); err != nil {
				l.goHome()
				return fmt.Errorf("enter cgroup: %w", err)
			}
		}
		defer l.goHome()
		if c.NProc > 0 {
			var old unix.Rlimit
			lim := unix.Rlimit{Cur: c.NProc, Max: c.NProc}
			if err := unix.Prlimit(0, unix.RLIMIT_NPROC, nil, &old); err != nil {
				return err
			}
			lim.Max = old.Max
			if err := unix.Prlimit(0, unix.RLIMIT_NPROC, &lim, nil); err != nil {
				return fmt.Errorf("RLIMIT_NPROC: %w", err)
			}
			defer unix.Prlimit(0, unix.RLIMIT_NPROC, &old, nil)
		}
		return cmd.Start()
	})
	if err != nil {
		return nil, fmt.Errorf("launch: %w", err)
	}
	return cmd.Process, nil
}

func (l *Launcher) goHome() {
	for _, f := range l.home {
		f.WriteString("0")
	}
}

func (l *Launcher) attr(uid int, cgroup *os.File) *syscall.SysProcAttr {
	host := uid
	if l.rootless {
		host = 0 // the one id that our own user namespace maps: the user's own
	}
	one := []syscall.SysProcIDMap{{ContainerID: childID, HostID: host, Size: 1}}
	a := &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNS |
			unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		Credential:  &syscall.Credential{Uid: childID, Gid: childID, NoSetGroups: l.rootless},
		UidMappings: one, GidMappings: one,
		Pdeathsig: syscall.SIGKILL,
		Setsid:    true,
	}
	if !l.rootless {
		a.GidMappingsEnableSetgroups = true
	}
	if cgroup != nil {
		a.UseCgroupFD, a.CgroupFD = true, int(cgroup.Fd())
	}
	return a
}

// CoverProc lays an empty read-only file system over /proc in the mount
// namespace of pid. It must come after the child has read what it needs there
// and before any guest code runs.
func CoverProc(pid int) error {
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
			err = unix.Mount("none", "/proc", "tmpfs",
				unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "size=4k,nr_inodes=2,mode=000")
			if err != nil {
				return fmt.Errorf("cover /proc: %w", err)
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

// roomFD is above every descriptor that a child moves its files to.
const roomFD = 320

// Room makes this process's table of descriptors large once, and so, by
// inheritance, that of every child: a program with threads waits for an RCU
// grace period whenever its table grows (11-15 ms measured), and gVisor moves
// its files to 256 and up at each start. It costs nothing where the starter of
// this process left a descriptor up there; see RoomFiles.
func Room() error {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer null.Close()
	_, err = unix.FcntlInt(null.Fd(), unix.F_DUPFD_CLOEXEC, roomFD) // stays open
	return err
}

// RoomFiles pads the ExtraFiles of a process that will call Room.
func RoomFiles(files []*os.File, last *os.File) []*os.File {
	out := make([]*os.File, roomFD-3+1)
	copy(out, files)
	out[len(out)-1] = last
	return out
}

// Pair makes a connected pair of unix sockets, close-on-exec.
func Pair(kind int) (a, b *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	return os.NewFile(uintptr(fds[0]), "pair-a"), os.NewFile(uintptr(fds[1]), "pair-b"), nil
}

// Conn turns a socket descriptor into a net.Conn and closes the file.
func Conn(f *os.File) (*net.UnixConn, error) {
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		c.Close()
		return nil, errors.New("not a unix socket")
	}
	return u, nil
}

// Scratch is an unlinked file in dir of at most the file system's size: what
// backs a writable layer. It is gone when its last descriptor is.
func Scratch(dir string) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC|unix.O_EXCL, 0o600)
	if err == nil {
		return os.NewFile(uintptr(fd), "scratch"), nil
	}
	if !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EISDIR) {
		return nil, &os.PathError{Op: "scratch file in", Path: dir, Err: err}
	}
	f, err := os.CreateTemp(dir, ".scratch-*")
	if err != nil {
		return nil, err
	}
	return f, os.Remove(f.Name())
}

// WaitByte reads the one byte that says that a child is up, or the end of the
// file that says that it died.
func WaitByte(f *os.File, timeout time.Duration) error {
	if err := f.SetReadDeadline(time.Now().Add(timeout)); err != nil && !errors.Is(err, os.ErrNoDeadline) {
		return err
	}
	var b [1]byte
	if n, err := f.Read(b[:]); n != 1 {
		return fmt.Errorf("the sandbox process did not come up: %w", err)
	}
	return nil
}
