package attack

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
)

// Host is the machine that was attacked, as far as it matters for a verdict.
type Host struct {
	Kernel          string            `json:"kernel"`
	Arch            string            `json:"arch"`
	CPUs            int               `json:"cpus"`
	MemoryBytes     int64             `json:"memory_bytes"`
	Root            bool              `json:"root"`
	Cgroup          string            `json:"cgroup"`
	Distribution    string            `json:"distribution,omitempty"`
	CPUModel        string            `json:"cpu_model,omitempty"`
	Virtual         bool              `json:"virtual"` // it runs on a hypervisor
	SecurityModules []string          `json:"security_modules"`
	Vulnerabilities map[string]string `json:"vulnerabilities"` // of the processor, as the kernel names them
}

// thisHost describes the machine for the report.
func thisHost() Host {
	h := Host{Arch: runtime.GOARCH, CPUs: runtime.NumCPU(), Root: os.Geteuid() == 0, Cgroup: "v1",
		Kernel: firstLine("/proc/sys/kernel/osrelease"), SecurityModules: []string{}, Vulnerabilities: map[string]string{}}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		h.Cgroup = "v2"
	}
	var si syscall.Sysinfo_t
	if syscall.Sysinfo(&si) == nil {
		h.MemoryBytes = int64(si.Totalram) * int64(si.Unit)
	}
	for line := range strings.Lines(readText("/etc/os-release")) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "PRETTY_NAME="); ok {
			h.Distribution = brief(strings.Trim(v, `"'`))
		}
	}
	for line := range strings.Lines(readText("/proc/cpuinfo")) {
		key, v, _ := strings.Cut(line, ":")
		switch strings.TrimSpace(key) {
		case "model name":
			h.CPUModel = brief(strings.TrimSpace(v))
		case "flags":
			h.Virtual = strings.Contains(v+" ", " hypervisor ") || strings.Contains(v, " hypervisor\n")
		case "":
			goto one // they are all alike
		}
	}
one:
	for m := range strings.SplitSeq(firstLine("/sys/kernel/security/lsm"), ",") {
		if m != "" {
			h.SecurityModules = append(h.SecurityModules, m)
		}
	}
	names, _ := filepath.Glob("/sys/devices/system/cpu/vulnerabilities/*")
	for _, name := range names {
		if v := firstLine(name); v != "" && v != "Not affected" {
			h.Vulnerabilities[filepath.Base(name)] = v
		}
	}
	return h
}

// firstLine is a fact that the kernel tells in a file; "" if it does not.
func firstLine(path string) string {
	line, _, _ := strings.Cut(readText(path), "\n")
	return brief(strings.TrimSpace(line))
}

// brief bounds a fact.
func brief(s string) string { return fmt.Sprintf("%.160s", Plain(s)) }

// thisSuite is what is embedded here.
func thisSuite() (s Suite) {
	h := sha256.New()
	for _, of := range []fs.FS{embedded, embeddedWorks} {
		fs.WalkDir(of, ".", func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			b, err := fs.ReadFile(of, path)
			fmt.Fprintf(h, "%s %d\n", path, len(b))
			h.Write(b)
			if strings.HasPrefix(path, "cases/") && filepath.Ext(path) == ".txtar" {
				s.Cases++
			}
			return err
		})
	}
	s.SHA256 = hex.EncodeToString(h.Sum(nil))
	return s
}
