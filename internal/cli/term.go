package cli

import (
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// isTerminal says whether f is one.
func isTerminal(f *os.File) bool {
	if f == nil {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// makeRaw puts a terminal into raw mode. restore may be called more than once
// and from anywhere.
func makeRaw(f *os.File) (restore func(), err error) {
	fd := int(f.Fd())
	old, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return nil, err
	}
	raw := *old
	raw.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	raw.Oflag &^= unix.OPOST
	raw.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	raw.Cflag = raw.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
	raw.Cc[unix.VMIN], raw.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, &raw); err != nil {
		return nil, err
	}
	return sync.OnceFunc(func() { unix.IoctlSetTermios(fd, unix.TCSETS, old) }), nil
}

// windowSize is rows and columns of a terminal.
func windowSize(f *os.File) [2]uint16 {
	ws, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil || ws.Row == 0 || ws.Col == 0 {
		return [2]uint16{24, 80}
	}
	return [2]uint16{ws.Row, ws.Col}
}

// watchSize reports each new size of a terminal until stop is called.
func watchSize(f *os.File) (sizes <-chan [2]uint16, stop func()) {
	sig, out, done := make(chan os.Signal, 1), make(chan [2]uint16), make(chan struct{})
	signal.Notify(sig, syscall.SIGWINCH)
	go func() {
		for {
			select {
			case <-sig:
			case <-done:
				return
			}
			select {
			case out <- windowSize(f):
			case <-done:
				return
			}
		}
	}()
	return out, sync.OnceFunc(func() { signal.Stop(sig); close(done) })
}
