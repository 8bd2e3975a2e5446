//go:build linux

package client

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"
)

// unnamed makes a file without a name in the folder that is opened with it.
// If this process is killed, nothing of the file stays.
const unnamed = 0x400000 | syscall.O_DIRECTORY // O_TMPFILE

// link gives an unnamed file a name in the very directory that dir holds. It
// never replaces anything.
func link(f *os.File, dir *os.Root, name string) error {
	d, err := dir.Open(".")
	if err != nil {
		return err
	}
	defer d.Close()
	from, err := syscall.BytePtrFromString(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if err != nil {
		return err
	}
	to, err := syscall.BytePtrFromString(name)
	if err != nil {
		return err
	}
	const follow = 0x400 // AT_SYMLINK_FOLLOW
	here := -100         // AT_FDCWD
	_, _, errno := syscall.Syscall6(syscall.SYS_LINKAT, uintptr(here), uintptr(unsafe.Pointer(from)),
		d.Fd(), uintptr(unsafe.Pointer(to)), follow, 0)
	runtime.KeepAlive(f)
	if errno != 0 {
		return errno
	}
	return nil
}
