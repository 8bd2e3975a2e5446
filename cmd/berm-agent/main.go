// Command berm-agent is the first process inside a sandbox. It takes no
// arguments: descriptor 0 is the stream to the host.
package main

import (
	"context"
	"os"
	"syscall"

	"github.com/bermhq/berm/internal/guest/agent"
)

func main() {
	syscall.Chdir("/")
	syscall.Unlink("/tmp/.berm") // see internal/image: it kept /tmp on the disk layer
	// Nothing that is started may inherit the stream.
	syscall.CloseOnExec(0)
	syscall.CloseOnExec(1)
	syscall.SetNonblock(0, true)
	err := agent.Serve(context.Background(), os.NewFile(0, "host"), agent.NewLinux())
	if err != nil {
		os.Exit(1)
	}
}
