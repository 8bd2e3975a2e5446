package jail

import (
	"debug/elf"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestMain doubles as the child that a launcher forks: it tells over
// descriptor 3 what it sees, and then waits to be killed.
func TestMain(m *testing.M) {
	switch os.Args[0] {
	case "jail-child":
		child()
		os.Exit(0)
	case "dropped-child":
		dropped()
		os.Exit(0)
	case "confined-child":
		confined()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

type view struct {
	UID, GID int
	Caps     string
	Root     []string
	Links    []string
	Env      []string
	Fds      []string
	Cgroup   string
	Kill     string            // what became of an attempt to write outside
	Spaces   string            // and of one to make a user namespace
	Doors    map[string]string // calls that were not refused
}

func child() {
	v := view{UID: os.Getuid(), GID: os.Getgid(), Env: os.Environ()}
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "CapEff:"); ok {
			v.Caps = strings.TrimSpace(rest)
		}
	}
	names := func(dir string) (out []string) {
		ents, err := os.ReadDir(dir)
		if err != nil {
			return []string{err.Error()}
		}
		for _, e := range ents {
			out = append(out, e.Name())
		}
		return out
	}
	v.Root, v.Fds = names("/"), names("/proc/self/fd")
	dev, _ := os.ReadFile("/proc/self/net/dev")
	for _, l := range strings.Split(strings.TrimSpace(string(dev)), "\n")[2:] {
		name, _, _ := strings.Cut(strings.TrimSpace(l), ":")
		v.Links = append(v.Links, name)
	}
	cg, _ := os.ReadFile("/proc/self/cgroup")
	v.Cgroup = string(cg)
	v.Kill = fmt.Sprint(os.WriteFile("/x", []byte("x"), 0o644), " ", os.Mkdir("/ctl/x", 0o755))
	_, _, e := unix.RawSyscall(unix.SYS_CLONE, unix.CLONE_NEWUSER|uintptr(unix.SIGCHLD), 0, 0) // it would run on here, and say so
	v.Spaces = e.Error()
	v.Doors = map[string]string{}
	for _, nr := range []uint32{unix.SYS_BPF, unix.SYS_IO_URING_SETUP, unix.SYS_USERFAULTFD, unix.SYS_PERF_EVENT_OPEN, unix.SYS_KEYCTL, unix.SYS_UNSHARE} {
		if _, _, e := unix.RawSyscall(uintptr(nr), 0, 0, 0); e != unix.EPERM {
			v.Doors[fmt.Sprint(nr)] = e.Error()
		}
	}
	f := os.NewFile(3, "out")
	json.NewEncoder(f).Encode(v)
	f.Close()
	time.Sleep(time.Minute)
}

func TestLauncher(t *testing.T) {
	h := realHierarchy(t)
	if self, err := elf.Open("/proc/self/exe"); err != nil || len(self.Progs) == 0 || dynamic(self) {
		t.Skip("needs a static test binary (CGO_ENABLED=0): the empty root has no dynamic linker")
	}
	l, err := NewLauncher(t.TempDir(), h, false)
	if err != nil {
		t.Fatal(err)
	}
	lease, err := LeaseUID()
	if err != nil {
		t.Fatal(err)
	}
	defer lease.Release()
	c, err := h.Create("berm-jail-test-child", Limits{MemoryBytes: 256 << 20, Tasks: 64, CPUs: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Remove(2 * time.Second)
	exe, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	r, w, _ := os.Pipe()
	t.Setenv("BERM_CANARY", "host-secret")
	p, err := l.Start(Child{Exe: exe, Args: []string{"jail-child"}, Files: []*os.File{w}, UID: lease.UID, Cgroup: c})
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	var v view
	b, err := io.ReadAll(io.LimitReader(r, 1<<20))
	if err == nil {
		err = json.Unmarshal(b, &v)
	}
	if err != nil {
		t.Fatalf("the child said %q: %v", b, err)
	}
	if v.UID != childID || v.GID != childID {
		t.Errorf("child is %d:%d inside", v.UID, v.GID)
	}
	var st unix.Stat_t
	if err := unix.Stat(fmt.Sprintf("/proc/%d", p.Pid), &st); err != nil || int(st.Uid) != lease.UID && st.Uid != 0 {
		t.Errorf("host uid %d, want %d (%v)", st.Uid, lease.UID, err)
	}
	if strings.Trim(v.Caps, "0") != "" {
		t.Errorf("child has capabilities %s", v.Caps)
	}
	if got := strings.Join(v.Root, " "); got != "proc" {
		t.Errorf("child's root holds %q", got)
	}
	if got := strings.Join(v.Links, " "); got != "lo" {
		t.Errorf("child has the links %q", got)
	}
	if len(v.Env) != 0 {
		t.Errorf("child has the environment %q", v.Env)
	}
	if !strings.Contains(v.Cgroup, "berm-jail-test-child") {
		t.Errorf("child is in %s", v.Cgroup)
	}
	if strings.Contains(v.Kill, "nil") {
		t.Errorf("child could write: %s", v.Kill)
	}
	if v.Spaces != unix.EPERM.Error() || len(v.Doors) > 0 {
		t.Errorf("child made a user namespace: %s; calls that are not refused: %v", v.Spaces, v.Doors)
	}
	if err := CoverProc(p.Pid); err != nil {
		t.Error(err)
	}
	if ents, err := os.ReadDir(fmt.Sprintf("/proc/%d/root/proc", p.Pid)); err == nil && len(ents) > 0 {
		t.Errorf("child still sees %d entries in /proc", len(ents))
	}
	// The end of the launcher is the end of its children.
	l.Close()
	done := make(chan error, 1)
	go func() { _, err := p.Wait(); done <- err }()
	select {
	case <-done:
	case <-time.After(5 * time.Second):
		p.Kill()
		t.Error("the child outlived its launcher")
	}
}

// TestRoom: what a keeper was given, at whatever number, is none of its children's.
func TestRoom(t *testing.T) {
	for _, fd := range []int{roomFD - 7, roomFD} { // a starter leaves it so that it is inherited
		if err := unix.Dup2(1, fd); err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
	}
	if err := Room(); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("/bin/sh", "-c", "ls /proc/self/fd").CombinedOutput()
	if err != nil {
		t.Skipf("needs sh and ls: %v", err)
	}
	for _, fd := range strings.Fields(string(out)) {
		if n, err := strconv.Atoi(fd); err != nil || n > 3 { // 3 is the folder that ls reads
			t.Errorf("a child has descriptor %s", fd)
		}
	}
}

// The v2 way in, on a hierarchy that is mounted beside v1 with no controllers:
// born inside by clone3, found there, ended by cgroup.kill, gone.
func TestLauncherV2(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes cgroups")
	}
	if self, err := elf.Open("/proc/self/exe"); err != nil || dynamic(self) {
		t.Skip("needs a static test binary (CGO_ENABLED=0): the empty root has no dynamic linker")
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	all := parseMounts(string(mounts))
	i := slices.IndexFunc(all, func(m cgMount) bool { return m.v2 })
	if i < 0 || writable(all[i].point) != nil {
		t.Skip("needs a writable cgroup2 mount")
	}
	h := &Hierarchy{V2: true, parents: map[string]string{"": all[i].point}}
	c, err := h.Create("berm-jail-test-v2", Limits{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Remove(2 * time.Second)
	l, err := NewLauncher(t.TempDir(), h, false)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	exe, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer exe.Close()
	lease, err := LeaseUID()
	if err != nil {
		t.Fatal(err)
	}
	defer lease.Release()
	r, w, _ := os.Pipe()
	p, err := l.Start(Child{Exe: exe, Args: []string{"jail-child"}, Files: []*os.File{w}, UID: lease.UID, Cgroup: c})
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	var v view
	if err := json.NewDecoder(io.LimitReader(r, 1<<20)).Decode(&v); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(v.Cgroup, "0::/berm-jail-test-v2") {
		t.Errorf("born in %s", v.Cgroup)
	}
	if c.Empty() {
		t.Error("the group is said to be empty")
	}
	c.Kill()
	if st, err := p.Wait(); err != nil || st.Success() {
		t.Errorf("after Kill: %v, %v", st, err)
	}
	if err := c.Remove(2 * time.Second); err != nil {
		t.Error(err)
	}
}

func dynamic(f *elf.File) bool {
	return slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
}

func TestLease(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: ordinary users have one uid")
	}
	seen := map[int]bool{}
	for range 50 {
		l, err := LeaseUID()
		if err != nil {
			t.Fatal(err)
		}
		defer l.Release()
		if seen[l.UID] {
			t.Fatalf("uid %d was leased twice", l.UID)
		}
		seen[l.UID] = true
	}
	var none *Lease
	none.Release() // must not panic
}

func TestScratch(t *testing.T) {
	dir := t.TempDir()
	f, err := Scratch(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(make([]byte, 8192)); err != nil {
		t.Fatal(err)
	}
	if ents, _ := os.ReadDir(dir); len(ents) != 0 {
		t.Errorf("the scratch file has a name: %v", ents)
	}
}
