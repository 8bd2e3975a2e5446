// Command hostview looks at the host before and after a command, without any
// help from Berm, and says what the command left behind:
//
//	hostview -state DIR [-want CODE] [-name NAME -failures FILE] -- COMMAND...
//
// It runs the command as the reaper of all its descendants (a Linux "child
// subreaper"), so no process can slip away by losing its parent. Beside
// processes it compares the mounts of this namespace, the cgroup trees, the
// network devices, bound unix sockets and the state directory. What other
// programs did meanwhile, another Berm with another state directory among
// them, is told apart where that can be done without asking Berm.
//
// A command that ended with another code than CODE and a host that differs are
// two failures, each said in its own words and, with -failures, appended to
// FILE. It exits with 0 if there is none, 1 if there is, 2 if it could not look.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// grace is how long what a command left behind may take to go away.
const grace = 2 * time.Second

// Options say what is looked at and what is expected.
type options struct {
	state    string
	want     int // exit code, or -1 for any
	name     string
	failures string
}

func main() {
	var o options
	flag.StringVar(&o.state, "state", os.Getenv("BERM_STATE"), "state `directory` to compare too")
	flag.IntVar(&o.want, "want", -1, "the exit `code` that the command should have; -1 for any")
	flag.StringVar(&o.name, "name", "", "what to call the command in a failure")
	flag.StringVar(&o.failures, "failures", "", "`file` to append each failure to, a line each")
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	failed, err := run(o, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "hostview:", err)
		os.Exit(2)
	}
	if len(failed) > 0 {
		os.Exit(1)
	}
}

// run runs the command between two looks and returns what is wrong.
func run(o options, args []string) (failed []string, err error) {
	if err := becomeReaper(); err != nil {
		return nil, err
	}
	w, err := begin(thisHost(o.state))
	if err != nil {
		return nil, err
	}
	defer w.close()
	signal.Ignore(syscall.SIGINT) // the command gets it too and ends; then we look
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		return nil, err
	}
	code := exitCode(cmd.ProcessState.Sys().(syscall.WaitStatus))
	ours, others, after, err := w.settle(grace)
	if err != nil {
		return nil, err
	}
	report(os.Stdout, w.before, after, ours, others)
	failed = verdict(o, code, ours)
	if o.want > 0 && code == o.want {
		fmt.Printf("exit code %d, as it should be\n", code)
	}
	return failed, keep(o.failures, failed)
}

// verdict says what is wrong, a sentence each.
func verdict(o options, code int, ours []change) (failed []string) {
	name := o.name
	if name == "" {
		name = "the command"
	}
	if o.want >= 0 && code != o.want {
		failed = append(failed, fmt.Sprintf("%s: exit code %d, not %d", name, code, o.want))
	}
	if len(ours) > 0 {
		failed = append(failed, fmt.Sprintf("%s: the host differs afterwards (differences: %d): %s", name, len(ours), ours[0]))
	}
	return failed
}

// keep appends the failures to a file, if there is one.
func keep(path string, failed []string) error {
	if path == "" || len(failed) == 0 {
		return nil
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(strings.Join(failed, "\n") + "\n")
	return errors.Join(err, f.Close())
}

func exitCode(ws syscall.WaitStatus) int {
	if ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return ws.ExitStatus()
}
