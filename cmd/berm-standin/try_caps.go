package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// manyTasks makes more processes than its group may have, and no more than that
// proves.
func manyTasks(t *try) {
	const most = 420
	n := 0
	for ; n < most; n++ {
		if _, err := waiting(0); err != nil {
			t.note(fmt.Sprintf("process %d", n), err)
			break
		}
	}
	t.say("%d processes", n)
}

// muchMemory takes more memory than its group may have: 400 MiB in all.
func muchMemory(t *try) {
	t.begun()
	for range 100 {
		b, err := unix.Mmap(-1, 0, 4<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
		if err != nil {
			t.note("memory", err)
			return
		}
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
	}
	t.say("400 MiB")
}

// maxFill bounds what is written to the host's disk.
const maxFill = 192 << 20

// writeDisk writes to the file of the writable layer behind gVisor's back: more
// than the layer may hold.
func writeDisk(t *try) {
	t.begun()
	b := make([]byte, 1<<20)
	for i := range b {
		b[i] = byte(i * 7)
	}
	for off := int64(0); off < maxFill; off += int64(len(b)) {
		if _, err := unix.Pwrite(t.s.inside.upper, b, off); err != nil {
			t.note(fmt.Sprintf("write at %d MiB", off>>20), err)
			break
		}
		time.Sleep(20 * time.Millisecond) // no faster than a host can look
	}
	time.Sleep(time.Second) // it is not hindered from staying
	t.say("filled")
}

// leaveGroup moves itself to the groups above its own.
func leaveGroup(t *try) {
	for _, file := range []string{"tasks", "cgroup.procs"} {
		for _, root := range []string{"/sys/fs/cgroup", "/proc/1/root/sys/fs/cgroup"} {
			for _, f := range append(glob(root+"/"+file), glob(root+"/*/"+file)...) {
				t.note(f, os.WriteFile(f, []byte("0"), 0))
			}
		}
	}
	for _, f := range t.s.inside.given {
		for _, file := range []string{"tasks", "cgroup.procs", "../tasks", "../cgroup.procs"} {
			if fd, err := unix.Openat(f, file, unix.O_WRONLY|unix.O_CLOEXEC, 0); err == nil {
				_, err := unix.Write(fd, []byte("0"))
				t.note(fmt.Sprintf("%s from descriptor %d", file, f), err)
				unix.Close(fd)
			}
		}
	}
}

func glob(pattern string) []string {
	out, _ := filepath.Glob(pattern)
	return out
}

// leaveChildren leaves children in sessions of their own, and stops listening.
func leaveChildren(t *try) {
	for range 8 {
		_, err := waiting(0)
		t.note("child", err)
	}
	time.AfterFunc(2*linger, func() { t.s.hush(true) }) // once this is answered
}

// neverAnswer says nothing more, for longer than it may.
func neverAnswer(t *try) {
	t.begun()
	t.s.hush(true)
	time.Sleep(6 * time.Second)
	t.s.hush(false)
}
