//go:build linux

package agent

import (
	"syscall"
	"unsafe"
)

const (
	tiocGPTN   = 0x80045430
	tiocSPTLCK = 0x40045431
)

func ioctl(fd int, req uintptr, arg unsafe.Pointer) error {
	if _, _, no := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), req, uintptr(arg)); no != 0 {
		return no
	}
	return nil
}

// unlockPTY makes the other end of a terminal usable and returns its number.
func unlockPTY(fd int) (n int, err error) {
	var lock, num int32
	if err := ioctl(fd, tiocSPTLCK, unsafe.Pointer(&lock)); err != nil {
		return 0, err
	}
	err = ioctl(fd, tiocGPTN, unsafe.Pointer(&num))
	return int(num), err
}

func setWinsize(fd int, rows, cols uint16) error {
	ws := [4]uint16{rows, cols}
	return ioctl(fd, syscall.TIOCSWINSZ, unsafe.Pointer(&ws))
}

func getTermios(fd int, t *syscall.Termios) error {
	return ioctl(fd, syscall.TCGETS, unsafe.Pointer(t))
}

func setTermios(fd int, t *syscall.Termios) error {
	return ioctl(fd, syscall.TCSETS, unsafe.Pointer(t))
}

// foreground is the process group that a terminal's keys go to; 0 if unknown.
func foreground(fd int) int {
	var n int32
	if ioctl(fd, syscall.TIOCGPGRP, unsafe.Pointer(&n)) != nil {
		return 0
	}
	return int(n)
}
