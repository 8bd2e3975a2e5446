package agent

import (
	"runtime"
	"syscall"
	"unsafe"
)

const (
	capSysAdmin = 21
	capVersion3 = 0x20080522
)

type capHeader struct {
	version uint32
	pid     int32
}

// capSets are the sets of one thread, low words first.
type capSets [2]struct{ effective, permitted, inheritable uint32 }

func getCaps(s *capSets) error {
	h := capHeader{version: capVersion3}
	if _, _, no := syscall.RawSyscall(syscall.SYS_CAPGET, uintptr(unsafe.Pointer(&h)), uintptr(unsafe.Pointer(s)), 0); no != 0 {
		return no
	}
	return nil
}

// dropAdmin takes the right to mount from every thread there is, so from every
// one to come. With keep it can be taken up again, by withAdmin; what is started
// never has it, see launcher.
func dropAdmin(keep bool) error {
	var s capSets
	if err := getCaps(&s); err != nil {
		return err
	}
	s[0].effective &^= 1 << capSysAdmin
	if !keep {
		s[0].permitted &^= 1 << capSysAdmin
	}
	h := capHeader{version: capVersion3}
	_, _, no := syscall.AllThreadsSyscall(syscall.SYS_CAPSET, uintptr(unsafe.Pointer(&h)), uintptr(unsafe.Pointer(&s)), 0)
	runtime.KeepAlive(&s)
	runtime.KeepAlive(&h)
	if no != 0 {
		return no
	}
	return nil
}

// withAdmin calls f on a thread that may read the attributes of an overlay.
func withAdmin(f func() error) error {
	runtime.LockOSThread()
	var s capSets
	if err := getCaps(&s); err != nil {
		runtime.UnlockOSThread()
		return err
	}
	before := s
	s[0].effective |= s[0].permitted & (1 << capSysAdmin)
	if err := setCaps(&s); err != nil {
		runtime.UnlockOSThread()
		return err
	}
	err := f()
	if setCaps(&before) == nil {
		runtime.UnlockOSThread() // else the thread ends with its goroutine
	}
	return err
}

func setCaps(s *capSets) error {
	h := capHeader{version: capVersion3}
	if _, _, no := syscall.RawSyscall(syscall.SYS_CAPSET, uintptr(unsafe.Pointer(&h)), uintptr(unsafe.Pointer(s)), 0); no != 0 {
		return no
	}
	return nil
}
