package main

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What these open stays open, so that it is seen from outside.

func (t *try) door(what string, nr uintptr, args ...uintptr) {
	var a [6]uintptr
	copy(a[:], args)
	fd, _, e := unix.RawSyscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5])
	if e != 0 {
		t.note(what, e)
		return
	}
	t.say("%s: descriptor %d", what, fd)
}

func openRing(t *try) {
	var params [120]byte
	t.door("io_uring_setup", unix.SYS_IO_URING_SETUP, 4, uintptr(unsafe.Pointer(&params)))
}

func openFaults(t *try) {
	const userModeOnly = 1
	t.door("userfaultfd", unix.SYS_USERFAULTFD, unix.O_CLOEXEC|userModeOnly)
	t.door("userfaultfd of the kernel's faults too", unix.SYS_USERFAULTFD, unix.O_CLOEXEC)
}

// openBPF makes a map and a socket filter, which is what users may where they may
// anything.
func openBPF(t *try) {
	m := [72]byte{0: 2, 4: 4, 8: 8, 12: 1} // an array of one value
	t.door("bpf map", unix.SYS_BPF, 0, uintptr(unsafe.Pointer(&m)), uintptr(len(m)))
	code := [16]byte{0: 0xb7, 8: 0x95} // r0 = 0; exit
	license := [4]byte{'G', 'P', 'L'}
	var p [72]byte
	p[0], p[4] = 1, 2
	*(*uint64)(unsafe.Pointer(&p[8])) = uint64(uintptr(unsafe.Pointer(&code)))
	*(*uint64)(unsafe.Pointer(&p[16])) = uint64(uintptr(unsafe.Pointer(&license)))
	t.door("bpf program", unix.SYS_BPF, 5, uintptr(unsafe.Pointer(&p)), uintptr(len(p)))
}

func openPerf(t *try) {
	attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_TASK_CLOCK, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
		Bits: unix.PerfBitDisabled | unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv}
	fd, err := unix.PerfEventOpen(&attr, 0, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	t.note(fmt.Sprintf("perf_event_open %d", fd), err)
}

func openFanotify(t *try) {
	t.door("fanotify_init", unix.SYS_FANOTIFY_INIT, unix.FAN_CLOEXEC|0x200, unix.O_RDONLY) // reports by file id, as users may
}

// addKeys puts keys on the kernel's keyrings, which outlive a process and count
// as memory of nobody.
func addKeys(t *try) {
	for _, ring := range []int{unix.KEY_SPEC_PROCESS_KEYRING, unix.KEY_SPEC_USER_KEYRING, unix.KEY_SPEC_SESSION_KEYRING} {
		id, err := unix.AddKey("user", "berm-"+t.nonce, []byte("standin"), ring)
		t.note(fmt.Sprintf("key %d", id), err)
		if err == nil {
			unix.KeyctlInt(unix.KEYCTL_SET_TIMEOUT, id, 5, 0, 0)
		}
	}
}
