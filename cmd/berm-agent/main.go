// Command berm-agent is the first process inside a sandbox. Descriptor 0
// is the stream to the host; arguments say whether the root has to be put
// together first, see agent.Stack.
package main

import (
	"context"
	"os"
	"syscall"

	"github.com/bermhq/berm/internal/guest/agent"
)

func main() {
	syscall.Chdir("/")
	if err := agent.Stack(os.Args[1:]); err != nil {
		println("berm-agent: " + err.Error())
		os.Exit(3)
	}
	agent.Resolve() // nobody would hear of a failure, and the rest works without
	if err := serve(); err != nil {
		println("berm-agent: " + err.Error()) // heard by nobody in a sandbox
		os.Exit(1)
	}
}

// serve works on a descriptor of its own: descriptor 0 may already be watched
// as os.Stdin, and nothing that is started may inherit either.
func serve() error {
	const closeRange, closeOnExec = 436, 4
	syscall.RawSyscall(closeRange, 0, 1<<32-1, closeOnExec)
	fd, _, no := syscall.Syscall(syscall.SYS_FCNTL, 0, syscall.F_DUPFD_CLOEXEC, 3)
	if no != 0 {
		return no
	}
	if err := syscall.SetNonblock(int(fd), true); err != nil {
		return err
	}
	return agent.Serve(context.Background(), os.NewFile(fd, "host"), agent.NewLinux())
}
