package jail

import (
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// roomFD is above every descriptor that a child moves its files to.
const roomFD = 320

// Room makes this process's table of descriptors large once, and so, by
// inheritance, that of every child: a program with threads waits for an RCU
// grace period whenever its table grows (11-15 ms measured), and gVisor moves
// its files to 256 and up at each start. It costs nothing where the starter of
// this process left a descriptor up there; see RoomFiles. That one is of use in
// this process only, as is all that it was given: no child may have it.
func Room() error {
	keepToOurselves()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer null.Close()
	_, err = unix.FcntlInt(null.Fd(), unix.F_DUPFD_CLOEXEC, roomFD) // stays open
	return err
}

// keepToOurselves has no program that is run from here on get what this process
// was started with.
func keepToOurselves() {
	if unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC) == nil {
		return
	}
	for fd := 3; fd < 4*roomFD; fd++ { // before Linux 5.11; what is not open does not mind
		unix.CloseOnExec(fd)
	}
}

// RoomFiles pads the ExtraFiles of a process that will call Room.
func RoomFiles(files []*os.File, last *os.File) []*os.File {
	out := make([]*os.File, roomFD-3+1)
	copy(out, files)
	out[len(out)-1] = last
	return out
}

// Rights are the descriptors that came with a message, close-on-exec. What
// cannot be read as such is none.
func Rights(oob []byte) []*os.File {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	var out []*os.File
	for _, m := range msgs {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			continue
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			out = append(out, os.NewFile(uintptr(fd), "received"))
		}
	}
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

// linkBuffer is what may be under way on a link in one direction: as many frames
// of full size as a few streams have in flight, because what does not fit is
// dropped, as on any wire (measured: see docs/rationale.md). The kernel counts it
// as memory of whoever sends.
const linkBuffer = 4 << 20

// Link makes the pair that is a sandbox's wire: frames are messages. The host's
// end is polled by the runtime, so its Fd must never be taken.
func Link() (host, guest *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	for _, fd := range fds {
		if err := setBuffer(fd, linkBuffer); err != nil {
			unix.Close(fds[0])
			unix.Close(fds[1])
			return nil, nil, err
		}
	}
	return os.NewFile(uintptr(fds[0]), "link"), os.NewFile(uintptr(fds[1]), "link-guest"), nil
}

// Memory makes memory that several processes may map, one after the other. Its
// size is sealed, so that nobody who holds it can take from under another what
// that one has mapped.
func Memory(name string, size int64) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), name)
	err = f.Truncate(size)
	if err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// SetBuffer bounds what a socket may have sent that nobody has read. Where this
// process is not root, the host's own bound (net.core.wmem_max) may be lower.
func SetBuffer(f *os.File, n int) error { return setBuffer(int(f.Fd()), n) }

func setBuffer(fd, n int) error {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, n) == nil {
		return nil
	}
	return os.NewSyscallError("setsockopt", unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, n))
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

// RaiseFiles lifts the limit of open files as far as it goes; root lifts the
// hard one too, if that is low.
func RaiseFiles() {
	var n syscall.Rlimit
	if syscall.Getrlimit(unix.RLIMIT_NOFILE, &n) != nil {
		return
	}
	const least = 4096
	if n.Max < least && syscall.Setrlimit(unix.RLIMIT_NOFILE, &syscall.Rlimit{Cur: least, Max: least}) == nil {
		return
	}
	n.Cur = n.Max
	syscall.Setrlimit(unix.RLIMIT_NOFILE, &n)
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
