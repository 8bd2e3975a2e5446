// Command hostview looks at the host before and after a command, without any
// help from Berm, and says what the command left behind:
//
//	hostview -state DIR -- COMMAND...
//
// It runs the command as the reaper of all its descendants (a Linux "child
// subreaper"), so no process can slip away by losing its parent. Beside
// processes it compares the mounts of this namespace, the cgroup trees, the
// network devices, bound unix sockets and the state directory. It exits with
// 1 if anything differs, else with the command's own code.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

// grace is how long what a command left behind may take to go away.
const grace = 2 * time.Second

func main() {
	state := flag.String("state", os.Getenv("BERM_STATE"), "state `directory` to compare too")
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	os.Exit(run(*state, flag.Args()))
}

func run(state string, args []string) int {
	if err := becomeReaper(); err != nil {
		fmt.Fprintln(os.Stderr, "hostview:", err)
		return 2
	}
	before, err := look(state)
	if err != nil {
		fmt.Fprintln(os.Stderr, "hostview:", err)
		return 2
	}
	signal.Ignore(syscall.SIGINT) // the command gets it too and ends; then we look
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	code := 0
	if err := cmd.Run(); err != nil {
		code = 2
		if cmd.ProcessState != nil {
			code = exitCode(cmd.ProcessState.Sys().(syscall.WaitStatus))
		} else {
			fmt.Fprintln(os.Stderr, "hostview:", err)
		}
	}
	diff, after, err := settle(state, before, grace)
	if err != nil {
		fmt.Fprintln(os.Stderr, "hostview:", err)
		return 2
	}
	report(os.Stdout, before, after, diff)
	if len(diff) > 0 {
		return 1
	}
	return code
}

func exitCode(ws syscall.WaitStatus) int {
	if ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return ws.ExitStatus()
}
