package gateway

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"syscall"

	"golang.org/x/sys/unix"
)

// Where the keeper puts the descriptors of a gateway's process.
const (
	linkFD   = 3
	brokerFD = 4
	syncFD   = 5
	// and marksFD
)

// memory is what the process tries to stay below: it is charged to its sandbox.
const memory = 64 << 20

// Main is the process of a gateway. confine takes from it what it does not need;
// then it says so with one byte, and once the broker has said to go on it reads
// its link. It returns the exit code: 0 if the link or the broker has ended.
func Main(confine func() error) int {
	if err := run(confine); err != nil {
		fmt.Fprintf(os.Stderr, "berm-gateway: %v\n", err)
		return 125
	}
	return 0
}

func run(confine func() error) error {
	runtime.GOMAXPROCS(min(runtime.NumCPU(), 4)) // and no look at cgroups' files later on
	debug.SetGCPercent(50)
	debug.SetMemoryLimit(memory)
	var files [3]*os.File
	for i, fd := range []int{linkFD, brokerFD, syncFD} {
		if fd != syncFD {
			if err := unix.SetNonblock(fd, true); err != nil {
				return fmt.Errorf("descriptor %d: %w", fd, err)
			}
		}
		syscall.CloseOnExec(fd)
		files[i] = os.NewFile(uintptr(fd), "")
	}
	link, err := Packets(files[0])
	if err != nil {
		return err
	}
	b, err := newBroker(files[1])
	if err != nil {
		return err
	}
	g, err := newGateway(link, b)
	if err != nil {
		return err
	}
	g.window = windowFor(files[0])
	g.marks = openMarks(marksFD)
	if err := confine(); err != nil {
		return err
	}
	if _, err := files[2].Write([]byte{1}); err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	files[2].Close()
	if err := b.begin(); err != nil {
		if err == io.EOF {
			return nil
		}
		return err
	}
	done := make(chan error, 2)
	go func() {
		b.serve() // whatever ends it: without a broker there is no network
		done <- nil
	}()
	go func() { done <- g.run() }()
	return <-done
}

// windowFor is how much may be under way to this end of a link. The sandbox
// loses what the link has no room for, and takes long to find out; its end has
// as much as ours.
func windowFor(link *os.File) int64 {
	raw, err := link.SyscallConn()
	if err != nil {
		return bufferMost
	}
	room := bufferMost * 2
	raw.Control(func(fd uintptr) {
		if n, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF); err == nil {
			room = n
		}
	})
	return int64(min(max(room/2, bufferMost/16), bufferMost))
}
