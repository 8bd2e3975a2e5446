package jail

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What is no child in a pid namespace of its own is not stopped: it would be us.
func TestStopAllRefuses(t *testing.T) {
	for _, pid := range []int{os.Getpid(), os.Getppid(), 1 << 22} {
		if stopped, err := StopAll(pid, nil, 0, time.Second); err == nil {
			t.Errorf("stopped %v", stopped)
		}
	}
}

// Without a group, the processes are found by their namespace, and what forks
// while it is being stopped is stopped too.
func TestStopAll(t *testing.T) {
	cmd := exec.Command("/bin/sh", "-c", "f() { while :; do /bin/true; done; }; f & f & wait")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWUSER, Pdeathsig: syscall.SIGKILL,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}, GidMappings: []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}}
	if err := cmd.Start(); err != nil {
		t.Skipf("needs user namespaces: %v", err)
	}
	defer func() {
		cmd.Process.Kill()
		cmd.Wait()
	}()
	ns, err := os.Readlink(nsOf(cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	spent := func() (out string) {
		for _, p := range members(ns) {
			out += cpuOf(p) + "\n"
		}
		return out
	}
	for round := range 3 {
		from := spent()
		for end := time.Now().Add(10 * time.Second); len(members(ns)) < 3 || spent() == from; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("round %d: it does not run", round)
			}
		}
		stopped, err := StopAll(cmd.Process.Pid, nil, 0, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		before := spent()
		time.Sleep(100 * time.Millisecond)
		if after := spent(); after != before {
			t.Errorf("round %d: stopped, it ran:\n%s%s", round, before, after)
		}
		ContinueAll(stopped)
	}
}
