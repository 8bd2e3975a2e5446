package agent

import (
	"bytes"
	"slices"
	"strconv"
	"sync"
	"syscall"
)

// A keyboard types on a terminal. Closing it types the end of file.
//
// gVisor's terminal has gaps, which it fills: a key that sends a signal is also
// left in the input, input is not flushed, and such a key sends its signal even
// where the program wants it as a byte. Who is in the foreground only gVisor
// knows, so the signal must be its own.
type keyboard struct {
	p    *process
	mu   sync.Mutex
	line int // bytes typed since the last line ended
}

// longestLine is how much of an unfinished line a terminal keeps.
const longestLine = 4096

// hidden stands for a special key that is switched off for a moment; no text
// holds it. 0, which means "none" on Linux, is a key to gVisor.
const hidden = 0xff

func (k *keyboard) Write(b []byte) (n int, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for n < len(b) {
		t := k.p.settings() // for each part anew: they may be others by now
		m := specialKey(b[n:], t)
		switch {
		case m < 0:
			m, err = k.plain(b[n:])
		case m > 0:
			m, err = k.plain(b[n : n+m])
		case b[n] != 0 && t.Lflag&syscall.ISIG != 0:
			m, err = 1, k.signal(b[n], t)
		default:
			m, err = 1, k.unheard(b[n:n+1], *t)
		}
		if n += m; err != nil {
			return n, err
		}
	}
	return n, nil
}

func (k *keyboard) Close() error {
	_, err := k.Write([]byte{4})
	return err
}

// plain types what is no special key.
func (k *keyboard) plain(b []byte) (int, error) {
	n, err := k.p.out[0].f.Write(b)
	if i := bytes.LastIndexAny(b[:n], "\r\n\x04"); i >= 0 {
		k.line = n - i - 1
	} else {
		k.line = min(k.line+n, longestLine)
	}
	return n, err
}

// settings are the terminal's, if its keys need help.
func (p *process) settings() *syscall.Termios {
	var t syscall.Termios
	if !p.l.gvisor || p.terminal(func(fd int) error { return getTermios(fd, &t) }) != nil {
		return nil
	}
	return &t
}

// specialKey is where in b the first key is that may send a signal, or -1.
func specialKey(b []byte, t *syscall.Termios) int {
	if t == nil {
		return -1
	}
	return slices.IndexFunc(b, func(c byte) bool {
		return c == t.Cc[syscall.VINTR] || c == t.Cc[syscall.VQUIT] || c == t.Cc[syscall.VSUSP]
	})
}

// signal types a key that sends a signal and takes it out of the input again,
// together with what was waiting there, as Linux does.
func (k *keyboard) signal(key byte, t *syscall.Termios) error {
	flush := t.Lflag&syscall.NOFLSH == 0
	if flush {
		k.drain() // a line that nobody reads would hold the key up
	}
	if t.Lflag&syscall.ECHO != 0 {
		k.p.out[0].echo.Store(true)
	}
	if t.Lflag&syscall.ICANON == 0 {
		return k.unlined(key, *t)
	}
	erase := 1
	if flush {
		erase += k.line
		k.line = 0
	}
	_, err := k.p.out[0].f.Write(append([]byte{key}, bytes.Repeat([]byte{t.Cc[syscall.VERASE]}, erase)...))
	return err
}

// unlined types a key that sends a signal where there are no lines. Whoever
// reads after the signal must not find the key, so for this moment there are
// lines: a key in one that is not ended can be erased before it is read.
func (k *keyboard) unlined(key byte, t syscall.Termios) (err error) {
	lined := t
	lined.Lflag |= syscall.ICANON
	lined.Cc[syscall.VERASE] = hidden
	k.with(lined, t, func() { _, err = k.p.out[0].f.Write([]byte{key, hidden}) })
	return err
}

// drain reads what is in the input, so that nobody else does.
func (k *keyboard) drain() {
	fd, err := syscall.Open("/dev/pts/"+strconv.Itoa(k.p.pts), syscall.O_RDONLY|syscall.O_NOCTTY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer syscall.Close(fd)
	var b [longestLine]byte
	for range 64 { // more than what the queues of a terminal hold
		if n, err := syscall.Read(fd, b[:]); n <= 0 || err != nil {
			return
		}
	}
}

// unheard types one key while none sends a signal.
func (k *keyboard) unheard(b []byte, t syscall.Termios) (err error) {
	off := t
	for _, i := range []int{syscall.VINTR, syscall.VQUIT, syscall.VSUSP} {
		off.Cc[i] = hidden
	}
	k.with(off, t, func() { _, err = k.plain(b) })
	return err
}

// with does f under other settings. If the program changes them meanwhile, its
// own stay.
func (k *keyboard) with(other, t syscall.Termios, f func()) {
	k.p.terminal(func(fd int) error { return setTermios(fd, &other) })
	f()
	if now := k.p.settings(); now != nil && *now == other {
		k.p.terminal(func(fd int) error { return setTermios(fd, &t) })
	}
}

// terminal lends the master's descriptor, if it is still open.
func (p *process) terminal(f func(fd int) error) error {
	if p.pts < 0 {
		return syscall.ENOTTY
	}
	c, err := p.out[0].f.SyscallConn()
	if err != nil {
		return err
	}
	var ferr error
	if err := c.Control(func(fd uintptr) { ferr = f(int(fd)) }); err != nil {
		return err
	}
	return ferr
}

// foreground is the process group that a terminal's keys go to; 0 if unknown,
// as always in gVisor.
func (p *process) foreground() (g int) {
	p.terminal(func(fd int) error { g = foreground(fd); return nil })
	return g
}

// Resize sets the size of the terminal. gVisor tells nobody, so everybody in
// its session is told: who does not care ignores it.
func (p *process) Resize(rows, cols uint16) error {
	p.l.mu.Lock()
	defer p.l.mu.Unlock()
	if p.gone {
		return syscall.ENOTTY
	}
	if err := p.terminal(func(fd int) error { return setWinsize(fd, rows, cols) }); err != nil || !p.l.gvisor {
		return err
	}
	for _, t := range p.l.find(p.ex.tag) {
		if sessionOf(t.pid) == p.pid {
			syscall.Kill(t.pid, syscall.SIGWINCH)
		}
	}
	return nil
}

func sessionOf(pid int) int {
	s, _, no := syscall.RawSyscall(syscall.SYS_GETSID, uintptr(pid), 0, 0)
	if no != 0 {
		return 0
	}
	return int(s)
}

// openTTY makes a terminal and returns both its ends. The slave is the user's.
func openTTY(uid, gid uint32) (master, slave, number int, err error) {
	master, err = syscall.Open("/dev/ptmx", syscall.O_RDWR|syscall.O_NOCTTY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return -1, -1, 0, err
	}
	if number, err = unlockPTY(master); err == nil {
		slave, err = syscall.Open("/dev/pts/"+strconv.Itoa(number), syscall.O_RDWR|syscall.O_NOCTTY|syscall.O_CLOEXEC, 0)
	}
	if err != nil {
		syscall.Close(master)
		return -1, -1, 0, err
	}
	syscall.Fchown(slave, int(uid), int(gid)) // so that /dev/tty and friends open; not every kernel can
	return master, slave, number, nil
}
