package jail

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// A Launcher is one thread in a mount namespace whose root holds a /proc and
// nothing else. Children are forked from it, so they are born with no host
// path in reach, and die with it (parent-death signal).
type Launcher struct {
	jobs     chan func()
	closed   chan struct{}
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
	l := &Launcher{jobs: make(chan func()), closed: make(chan struct{}), rootless: rootless}
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
		for err == nil {
			select {
			case job := <-l.jobs:
				job()
			case <-l.closed:
				return
			}
		}
	})
	if err := <-ready; err != nil {
		return nil, err
	}
	return l, nil
}

// Close ends the thread and so every child that still lives.
func (l *Launcher) Close() { close(l.closed) }

func (l *Launcher) do(f func() error) error {
	done := make(chan error, 1)
	select {
	case l.jobs <- func() { done <- f() }:
		return <-done
	case <-l.closed:
		return errors.New("the launcher has ended")
	}
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

// Connect makes a connection to a socket made by Listen. It does not wait for
// one who listens and does not answer: this thread serves all the others too.
func (l *Launcher) Connect(name string) (f *os.File, err error) {
	err = l.do(func() error {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
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
	c = given(c)
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
		Stdin: null, Stdout: null, Stderr: null, ExtraFiles: c.Files, Dir: "/",
		SysProcAttr: born(l.attr(c.UID, cgroupFD)),
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
		Chroot:    inner,
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
