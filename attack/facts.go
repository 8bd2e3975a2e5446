package attack

import (
	"bytes"
	"encoding/hex"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// hostFacts are needles that need no planting: what only this machine has. A
// fact that cannot be read here is left out.
func hostFacts() []needle {
	var out []needle
	add := func(name, value string) {
		if value = strings.TrimSpace(value); len(value) >= 12 && strings.Trim(value, "0:-") != "" {
			out = append(out, needle{name, value})
		}
	}
	read := func(path string) string {
		b, _ := os.ReadFile(path)
		return string(b)
	}
	for line := range strings.Lines(read("/etc/shadow")) {
		name, _, _ := strings.Cut(line, ":")
		add("the line of "+name+" in /etc/shadow", line)
	}
	add("the machine id", read("/etc/machine-id"))
	add("the boot id", read("/proc/sys/kernel/random/boot_id"))
	add("the kernel's version line", read("/proc/version"))
	add("the kernel's command line", read("/proc/cmdline"))
	add("the product's id", read("/sys/class/dmi/id/product_uuid"))
	for line := range strings.Lines(read("/proc/kallsyms")) {
		if addr, name, _ := strings.Cut(line, " "); strings.Trim(addr, "0") != "" {
			add("a kernel address", addr+" "+name)
			break
		}
	}
	keys, _ := filepath.Glob("/etc/ssh/ssh_host_*_key")
	for _, k := range keys {
		if lines := strings.Split(read(k), "\n"); len(lines) > 2 {
			add("the host key "+k, lines[1])
		}
	}
	if ifs, err := net.Interfaces(); err == nil {
		for _, i := range ifs {
			add("the address of network card "+i.Name, i.HardwareAddr.String())
		}
	}
	for line := range strings.Lines(read("/proc/self/mountinfo")) {
		if f := strings.Fields(line); len(f) > 4 && f[4] == "/" {
			add("the mount of the host's root", line)
		}
	}
	for line := range strings.Lines(read("/proc/partitions")) {
		if f := strings.Fields(line); len(f) == 4 && len(f[2]) > 6 {
			add("a partition of the host", line)
			break
		}
	}
	for _, g := range groupsOf("self") {
		if len(g.path) > 12 {
			add("the cgroup of the host", g.path)
			break
		}
	}
	for line := range strings.Lines(read("/proc/iomem")) {
		if at, what, _ := strings.Cut(strings.TrimSpace(line), " : "); what == "System RAM" && strings.Trim(at, "0-") != "" {
			add("a range of physical memory", strings.TrimSpace(line))
		}
	}
	if notes := read("/sys/kernel/notes"); len(notes) > 40 {
		if i := strings.Index(notes, "GNU\x00"); i >= 0 && len(notes) >= i+24 {
			out = append(out, needle{"the kernel's build id", notes[i+4 : i+24]})
		}
	}
	add("the kernel log", kernelLog())
	add("the identity of the root file system", rootIdentity())
	return out
}

// kernelLog is the longest of the newest lines of the kernel's log, without its
// time; "" if it cannot be read.
func kernelLog() (found string) {
	b := make([]byte, 1<<16)
	n, err := unix.Klogctl(unix.SYSLOG_ACTION_READ_ALL, b)
	if err != nil {
		return ""
	}
	lines := strings.Split(string(b[:n]), "\n")
	for _, line := range lines[max(0, len(lines)-20):] {
		if _, text, ok := strings.Cut(line, "] "); ok && len(text) > len(found) {
			found = text
		}
	}
	return found
}

// rootIdentity is, in hex as programs print blocks, what tells the root's block
// device from others; "" if it cannot be read.
func rootIdentity() string {
	var st syscall.Stat_t
	if syscall.Stat("/", &st) != nil {
		return ""
	}
	dev := uint64(st.Dev)
	link, err := os.Readlink("/sys/dev/block/" + strconv.FormatUint(dev>>8&0xfff, 10) + ":" + strconv.FormatUint(dev&0xff, 10))
	if err != nil {
		return ""
	}
	f, err := os.Open("/dev/" + filepath.Base(link))
	if err != nil {
		return ""
	}
	defer f.Close()
	var b [2048]byte
	if _, err := f.ReadAt(b[:], 0); err != nil || bytes.Equal(b[1024+0x68:1024+0x78], make([]byte, 16)) {
		return ""
	}
	return hex.EncodeToString(b[1024+0x68 : 1024+0x78]) // the id in the superblock of ext2, 3 and 4
}
