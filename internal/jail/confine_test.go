package jail

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// confined is what a process does after Confine; it tells on descriptor 3.
func confined() {
	uid, _ := strconv.Atoi(os.Args[2])
	kept, err := os.Open("/proc/self/status") // what is open stays open
	got := map[string]string{}
	note := func(what string, err error) { got[what] = fmt.Sprint(err) }
	note("open before", err)
	note("confine", Confine(os.Args[1], uid))
	_, err = os.ReadFile("/etc/passwd")
	note("read a file", err)
	note("make a file", os.WriteFile("/x", nil, 0o644))
	_, err = os.StartProcess("/proc/self/exe", []string{"x"}, &os.ProcAttr{})
	note("run a program", err)
	_, _, e := syscall.RawSyscall(syscall.SYS_EXECVE, 0, 0, 0)
	note("execve", e)
	_, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	note("inet socket", err)
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	note("unix socket", err)
	unix.Close(fd)
	note("unshare", unix.Unshare(unix.CLONE_NEWUSER))
	note("ptrace", unix.PtraceAttach(1))
	note("setuid 0", syscall.Setuid(0))
	var wg sync.WaitGroup
	for range 20 { // threads still come up
		wg.Go(func() { unix.Nanosleep(&unix.Timespec{Nsec: 5e6}, nil) })
	}
	wg.Wait()
	ifs, _ := net.Interfaces()
	note("interfaces", fmt.Errorf("%d", len(ifs)))
	b := make([]byte, 4096)
	n, _ := kept.ReadAt(b, 0)
	for line := range strings.Lines(string(b[:n])) {
		for _, k := range []string{"Uid:", "CapEff:", "NoNewPrivs:", "Seccomp:"} {
			if rest, ok := strings.CutPrefix(line, k); ok {
				got[k] = strings.Join(strings.Fields(rest), " ")
			}
		}
	}
	json.NewEncoder(os.NewFile(3, "out")).Encode(got)
}

func TestConfine(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: namespaces")
	}
	lease, err := LeaseUID()
	if err != nil {
		t.Fatal(err)
	}
	defer lease.Release()
	r, w, _ := os.Pipe()
	id := strconv.Itoa(lease.UID)
	cmd := exec.Command("/proc/self/exe", t.TempDir(), id)
	cmd.Args[0] = "confined-child"
	cmd.ExtraFiles, cmd.Stderr = []*os.File{w}, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: WorkerNamespaces}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	var got map[string]string
	err = json.NewDecoder(r).Decode(&got)
	if e := cmd.Wait(); err != nil || e != nil {
		t.Fatal(err, e)
	}
	for what, want := range map[string]string{
		"open before": "<nil>", "confine": "<nil>",
		"read a file": "no such file", "make a file": "read-only", "run a program": "not permitted", "execve": "not permitted",
		"inet socket": "not permitted", "unix socket": "not permitted", "unshare": "not permitted", "ptrace": "not permitted", "setuid 0": "not permitted",
		"Uid:": strings.TrimSpace(strings.Repeat(id+" ", 4)), "CapEff:": "0000000000000000", "NoNewPrivs:": "1", "Seccomp:": "2",
	} {
		if !strings.Contains(got[what], want) {
			t.Errorf("%s: %s, want %s", what, got[what], want)
		}
	}
}
