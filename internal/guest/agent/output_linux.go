package agent

import (
	"bytes"
	"errors"
	"io"
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

// grace is how long after a process has ended its output may still be held open
// by a descendant before it is taken as complete.
const grace = 50 * time.Millisecond

// pipeSize is what a pipe may hold; larger means fewer switches between a
// process and the agent.
const pipeSize = 256 << 10

// An output is the reading end of a pipe or a terminal. It ends when every
// writer is gone, or after the grace: then with what is in it at that moment.
type output struct {
	f    *os.File
	fd   int
	last atomic.Bool // the grace is over
	left int         // of what may be in it then
	tty  bool
	eof  bool        // every writer is gone; the reader's own
	echo atomic.Bool // a key that sends a signal was typed, and is about to be echoed
}

func newOutput(fd int) *output {
	const setPipeSize = 1031 // F_SETPIPE_SZ
	left := 64 << 10
	if n, _, no := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), setPipeSize, pipeSize); no == 0 {
		left = int(n)
	}
	return &output{f: nonblock(fd, "output"), fd: fd, left: left}
}

// ending starts the grace.
func (o *output) ending(at time.Time) {
	if o.f.SetReadDeadline(at) != nil {
		o.last.Store(true)
	}
}

func (o *output) Read(p []byte) (int, error) {
	if !o.last.Load() {
		n, err := o.f.Read(p)
		if err == nil || !errors.Is(err, os.ErrDeadlineExceeded) {
			if n == 0 && err != nil {
				err, o.eof = io.EOF, true // a terminal without users says EIO
			}
			if o.echo.Load() {
				n = o.tidy(p, n)
			}
			return n, err
		}
		o.last.Store(true)
	}
	if o.left <= 0 {
		return 0, io.EOF
	}
	n, err := syscall.Read(o.fd, p)
	if n <= 0 || err != nil {
		return 0, io.EOF
	}
	o.left -= n
	return n, nil
}

// tidy replaces the echo of a keyboard's signal, a control byte and what erases
// it, with what Linux shows: ^C.
func (o *output) tidy(p []byte, n int) int {
	for i, c := range p[:n] {
		if c >= ' ' || c == '\b' {
			continue
		}
		k := i + 1
		for bytes.HasPrefix(p[k:n], []byte("\b \b")) {
			k += 3
		}
		if k >= i+4 {
			o.echo.Store(false)
			p[i], p[i+1] = '^', c+'@'
			return i + 2 + copy(p[i+2:n], p[k:n])
		}
	}
	return n
}

// Close leaves the output. If a descendant still holds the other end it must not
// die of its next line, so somebody reads on.
func (o *output) Close() error {
	if o.eof || o.tty || !o.last.Load() || o.f.SetReadDeadline(time.Time{}) != nil {
		return o.f.Close()
	}
	go func() {
		defer o.f.Close()
		for {
			// Little at a time: who floods what nobody hears waits for it.
			var b [4 << 10]byte
			if _, err := o.f.Read(b[:]); err != nil {
				return
			}
		}
	}()
	return nil
}
