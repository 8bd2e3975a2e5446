package jail

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// WatchOOM calls f once when the group first runs out of memory. It works on
// v1, where the kernel kills one task and leaves the rest; on v2 the kernel
// ends the whole group by itself and WatchOOM does nothing. Stop the watch
// before the group is removed.
func (c *Cgroup) WatchOOM(f func()) (stop func(), err error) {
	dir := c.dir("memory")
	if c.V2 || dir == "" {
		return func() {}, nil
	}
	efd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watch memory: %w", err)
	}
	ev := os.NewFile(uintptr(efd), "oom-event") // non-blocking: the runtime polls it
	oom, err := os.Open(filepath.Join(dir, "memory.oom_control"))
	if err != nil {
		ev.Close()
		return nil, fmt.Errorf("watch memory: %w", err)
	}
	defer oom.Close()
	arm := fmt.Sprintf("%d %d", efd, oom.Fd())
	if err := os.WriteFile(filepath.Join(dir, "cgroup.event_control"), []byte(arm), 0); err != nil {
		ev.Close()
		return nil, fmt.Errorf("watch memory: %w", err)
	}
	go func() {
		var b [8]byte
		if n, _ := ev.Read(b[:]); n != 8 {
			return
		}
		// Taking the group away rings the bell too; only an OOM counts.
		state, _ := os.ReadFile(filepath.Join(dir, "memory.oom_control"))
		if now := fields(string(state)); now["oom_kill"] > 0 || now["under_oom"] > 0 {
			f()
		}
	}()
	return func() { ev.Close() }, nil
}
