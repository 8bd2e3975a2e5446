package egress

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// reset cuts a TCP connection off for everybody who holds a descriptor of it, so
// that the other side hears of a reset and no end. Connecting to nowhere is the
// kernel's way to say so, and x/sys has no name for it. The socket could then be
// connected again: a gateway's filter has no connect.
func (k *kept) reset() {
	if !k.tcp || !k.disconnect() {
		k.shutdown()
	}
}

// disconnect takes from a socket its peer, and from one of UDP its port.
func (k *kept) disconnect() bool {
	nowhere := unix.RawSockaddr{Family: unix.AF_UNSPEC}
	_, _, e := unix.Syscall(unix.SYS_CONNECT, uintptr(k.fd), uintptr(unsafe.Pointer(&nowhere)), unsafe.Sizeof(nowhere))
	return e == 0
}
