package jail

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// dropped is what a process does after Drop; it tells on descriptor 3.
func dropped() {
	uid, _ := strconv.Atoi(os.Args[2])
	got := map[string]string{}
	note := func(what string, err error) { got[what] = fmt.Sprint(err) }
	note("drop", Drop(uid))
	note("setuid 0", syscall.Setuid(0))
	note("unshare", unix.Unshare(unix.CLONE_NEWUSER))
	// What a child of ours, such as an alert's command, could do.
	note("run a program", exec.Command("/bin/true").Run())
	c := exec.Command("/bin/true")
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNET}
	note("run it in new namespaces", c.Run())
	_, _, e := syscall.RawSyscall(unix.SYS_CLONE3, 0, 0, 0)
	note("clone3", e)
	for _, s := range []struct {
		name          string
		family, proto int
	}{{"unix", unix.AF_UNIX, 0}, {"inet", unix.AF_INET, 0}, {"inet6", unix.AF_INET6, 0}, {"netlink", unix.AF_NETLINK, unix.NETLINK_NETFILTER}, {"packet", unix.AF_PACKET, 0}, {"vsock", unix.AF_VSOCK, 0}} {
		fd, err := unix.Socket(s.family, unix.SOCK_DGRAM, s.proto)
		note(s.name, err)
		unix.Close(fd)
	}
	_, err := os.ReadFile("/etc/shadow")
	note("read shadow", err)
	json.NewEncoder(os.NewFile(3, "told")).Encode(got)
}

// TestDrop: a daemon keeps sockets and its alerts' commands, and nothing that
// leads back to rights.
func TestDrop(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	lease, err := LeaseUID()
	if err != nil {
		t.Fatal(err)
	}
	defer lease.Release()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", "drop", strconv.Itoa(lease.UID))
	cmd.Args[0] = "dropped-child"
	cmd.ExtraFiles, cmd.Stderr = []*os.File{w}, os.Stderr
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	var got map[string]string
	if err := json.NewDecoder(r).Decode(&got); err != nil {
		t.Fatal(err)
	}
	eperm := unix.EPERM.Error()
	want := map[string]string{
		"drop": "<nil>", "setuid 0": eperm, "unshare": eperm, "run a program": "<nil>",
		"run it in new namespaces": "fork/exec /bin/true: " + eperm, "clone3": unix.ENOSYS.Error(),
		"unix": "<nil>", "inet": "<nil>", "inet6": "<nil>", "netlink": eperm, "packet": eperm, "vsock": eperm,
		"read shadow": "open /etc/shadow: permission denied",
	}
	for what, w := range want {
		if got[what] != w {
			t.Errorf("%s: %s, want %s", what, got[what], w)
		}
	}
}
