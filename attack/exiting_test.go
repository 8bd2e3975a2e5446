package attack

import (
	"os/exec"
	"strconv"
	"testing"
	"time"
)

func TestExiting(t *testing.T) {
	if exiting("/proc/self") {
		t.Error("this process is ending")
	}
	cmd := exec.Command("sh", "-c", "exit 0") // a zombie until it is waited for
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	dir := "/proc/" + strconv.Itoa(cmd.Process.Pid)
	for end := time.Now().Add(10 * time.Second); !exiting(dir); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a dead process is not ending")
		}
	}
	if cmd.Wait(); !exiting(dir) {
		t.Error("a process that is gone is not ending")
	}
}
