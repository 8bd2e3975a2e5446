package attack

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// ownWord is in everything that a hostile program writes where it might be the
// host's, so that it is found, and can be taken back.
const ownWord = "berm-attack"

// settings are files by which a kernel is told what to run and what to be.
func settings() []string {
	agents, _ := filepath.Glob("/sys/fs/cgroup/*/release_agent")
	return append(agents, "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/hostname",
		"/proc/sys/kernel/domainname", "/proc/sys/kernel/randomize_va_space", "/sys/kernel/uevent_helper")
}

// owned are groups and formats of programs that a hostile one has made.
func owned() (out []string) {
	filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == ownWord+"-group" {
			out = append(out, path)
		}
		return nil
	})
	if _, err := os.Stat("/proc/sys/fs/binfmt_misc/" + ownWord); err == nil {
		out = append(out, "/proc/sys/fs/binfmt_misc/"+ownWord)
	}
	return out
}

// putBack undoes what a program of the suite has done to settings since before:
// a wall that is missing is a finding, and no reason to leave the host so.
func putBack(before view) {
	for _, line := range before["setting"] {
		path, was, ok := strings.Cut(line, " = ")
		if ok && strings.TrimSpace(readText(path)) != was && strings.Contains(readText(path), ownWord) {
			os.WriteFile(path, []byte(was+"\n"), 0)
		}
	}
	for _, path := range owned() {
		if slices.Contains(before["setting"], path) {
			continue
		}
		if strings.HasPrefix(path, "/proc/") {
			os.WriteFile(path, []byte("-1"), 0)
		} else {
			os.Remove(path)
		}
	}
}
