package sandbox

import (
	"bytes"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// HostFacts describe the machine for a report: enough to compare figures, and
// nothing that names it or its owner. A process that will see no files of the
// host takes them before; see Options.Host.
func HostFacts() map[string]any {
	f := map[string]any{"arch": runtime.GOARCH, "cpus": runtime.NumCPU()}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		f["kernel"] = string(bytes.TrimRight(u.Release[:], "\x00"))
	}
	var si unix.Sysinfo_t
	if unix.Sysinfo(&si) == nil {
		f["memory_bytes"] = uint64(si.Totalram) * uint64(si.Unit)
	}
	if b, err := os.ReadFile("/etc/os-release"); err == nil {
		for line := range strings.Lines(string(b)) {
			if v, ok := strings.CutPrefix(strings.TrimSpace(line), "PRETTY_NAME="); ok {
				f["os"] = strings.Trim(v, `"`)
			}
		}
	}
	_, err := os.Stat("/dev/kvm")
	f["kvm_device"] = err == nil // its being there proves nothing; nothing here uses it
	return f
}
