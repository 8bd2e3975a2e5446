package main

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A person sits at a terminal and has started a berm there.
type person struct {
	t      *testing.T
	master *os.File
	slave  *os.File
	cmd    *exec.Cmd
	ended  chan error
	told   chan string
	screen string // what was not yet looked at
}

// sit starts berm run -t with args on a new terminal of 33 rows and 77 columns.
func sit(t *testing.T, args ...string) *person {
	t.Helper()
	path, state := binary(t)
	p := &person{t: t, ended: make(chan error, 1), told: make(chan string, 1000)}
	var err error
	if p.master, err = os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0); err != nil {
		t.Skip("needs a terminal: ", err)
	}
	t.Cleanup(func() { p.master.Close() })
	n := -1
	p.control(func(fd int) error {
		if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
			return err
		}
		n, err = unix.IoctlGetInt(fd, unix.TIOCGPTN)
		return err
	})
	if p.slave, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|syscall.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.slave.Close() })
	p.resize(33, 77)
	p.cmd = exec.Command(path, append([]string{"run", "--timeout", "2m", "-t", "--"}, args...)...)
	p.cmd.Env = append(os.Environ(), "BERM_STATE="+state)
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = p.slave, p.slave, p.slave
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.cmd.Process.Kill() })
	go func() { p.ended <- p.cmd.Wait() }()
	go func() {
		for b := make([]byte, 4096); ; {
			n, err := p.master.Read(b)
			if err != nil {
				return
			}
			p.told <- string(b[:n])
		}
	}()
	return p
}

func (p *person) control(f func(fd int) error) {
	p.t.Helper()
	c, err := p.master.SyscallConn()
	var ferr error
	if err == nil {
		err = c.Control(func(fd uintptr) { ferr = f(int(fd)) })
	}
	if err = errors.Join(err, ferr); err != nil {
		p.t.Fatal(err)
	}
}

func (p *person) resize(rows, cols uint16) {
	p.t.Helper()
	p.control(func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols})
	})
}

// settings are those of the terminal berm was started on.
func (p *person) settings() (t unix.Termios) {
	p.t.Helper()
	p.control(func(fd int) error {
		s, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		if err == nil {
			t = *s
		}
		return err
	})
	return t
}

func (p *person) types(s string) {
	p.t.Helper()
	if _, err := p.master.WriteString(s); err != nil {
		p.t.Fatal(err)
	}
}

// sees waits until the screen shows want and returns what was before it.
func (p *person) sees(want string) string {
	p.t.Helper()
	for late := time.After(20 * time.Second); ; {
		if before, after, ok := strings.Cut(p.screen, want); ok {
			p.screen = after
			return before
		}
		select {
		case s := <-p.told:
			p.screen += s
		case <-late:
			p.t.Fatalf("waited for %q, and the screen shows %q", want, p.screen)
		}
	}
}

// saw says whether the screen shows want by now, and if so goes on behind it.
func (p *person) saw(want string) bool {
	p.t.Helper()
	for {
		select {
		case s := <-p.told:
			p.screen += s
			continue
		default:
		}
		_, after, ok := strings.Cut(p.screen, want)
		if ok {
			p.screen = after
		} else if len(p.screen) > 1<<16 {
			p.t.Fatalf("waited for %q, and the screen shows %q", want, p.screen[:1000])
		}
		return ok
	}
}

// code waits until berm has ended.
func (p *person) code() int {
	p.t.Helper()
	for late := time.After(20 * time.Second); ; {
		select {
		case <-p.ended:
			return p.cmd.ProcessState.ExitCode()
		case s := <-p.told:
			p.screen += s
		case <-late:
			p.t.Fatalf("berm does not end; the screen shows %q", p.screen)
		}
	}
}

// pause lets a program begin to wait for its keys.
func pause() { time.Sleep(300 * time.Millisecond) }

func TestTerminal(t *testing.T) {
	t.Parallel()
	p := sit(t, "sh")
	before := p.settings()
	p.sees("$ ")
	if p.settings() == before {
		t.Error("the terminal is not raw")
	}
	p.types("stty size\r")
	p.sees("33 77\r\n")

	p.types("trap 'stty size' WINCH\r")
	p.sees("$ ")
	p.resize(44, 88)
	for !p.saw("44 88\r\n") {
		p.types("true\r") // a shell runs its traps after commands
		pause()
	}
	p.types("sh -c 'trap \"echo told\" WINCH; echo on; while :; do sleep 0.1; done'\r")
	p.sees("on\r\n")
	p.resize(45, 89)
	p.sees("told\r\n")
	p.types("\x03")
	p.sees("^C")
	p.types("trap '' WINCH\r")

	for _, waits := range []string{"sleep 100", "cat", "stty -icanon -echo; cat; stty sane", "python3 -c 'import time; time.sleep(100)'"} {
		p.types("echo be''gin; " + waits + "; echo no''t in''terrupted\r")
		p.sees("begin\r\n")
		pause()
		p.types("\x03")
		pause()
		p.types("stty sane; echo cle''an\r")
		if s := p.sees("clean\r\n"); strings.Contains(s, "not found") || strings.Contains(s, "not interrupted") {
			t.Errorf("%s: after ^C: %q", waits, s)
		}
	}
	// What was typed ahead, a line or half of one, is flushed.
	p.types("sleep 100\r")
	pause()
	p.types("echo typed''ahead\rhalf")
	pause()
	p.types("\x03")
	pause()
	p.types("echo cle''an\r")
	if s := p.sees("clean\r\n"); strings.Contains(s, "typedahead") || strings.Contains(s, "not found") {
		t.Errorf("after ^C: %q", s)
	}
	p.types("half a line\x03")
	pause()
	p.types("echo cle''an\r")
	if s := p.sees("clean\r\n"); strings.Contains(s, "not found") || !strings.Contains(s, "half a line^C") {
		t.Errorf("after half a line and ^C: %q", s)
	}
	p.types("sleep 100\r")
	pause()
	p.types("\x1c")
	pause()
	p.types("echo status $?\r")
	p.sees("status 131\r\n")
	p.types("sleep 100\r")
	pause()
	p.types("\x1a")
	pause()
	p.types("jobs; kill -9 %1; wait; echo cle''an\r")
	if s := p.sees("clean\r\n"); !strings.Contains(s, "Stopped") && !strings.Contains(s, "Suspended") {
		t.Errorf("after ^Z: %q", s)
	}
	// Without signals a key is a byte like any other, and harms nobody.
	p.types("stty -isig -icanon -echo; echo ra''w; head -c 5 | od -c; stty sane; stty -a\r")
	p.sees("raw\r\n")
	pause()
	p.types("a\x03\x1c\x1ab")
	p.sees("a 003 034 032   b")
	p.sees("intr = ^C; quit = ^\\;")
	p.sees("susp = ^Z;")

	p.types("exit 7\r")
	if code := p.code(); code != 7 {
		t.Errorf("exit code %d, want 7", code)
	}
	if after := p.settings(); after != before {
		t.Errorf("the terminal was left as %+v, it was %+v", after, before)
	}
}

func TestTerminalEndOfFile(t *testing.T) {
	t.Parallel()
	p := sit(t, "cat")
	before := p.settings()
	for p.settings() == before { // raw: from here on its keys are the program's
		time.Sleep(10 * time.Millisecond)
	}
	p.types("a line\r")
	p.sees("a line\r\na line\r\n")
	p.types("\x04")
	if code := p.code(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	if after := p.settings(); after != before {
		t.Errorf("the terminal was left as %+v, it was %+v", after, before)
	}
}

func TestTerminalInterrupt(t *testing.T) {
	t.Parallel()
	p := sit(t, "sh", "-c", "echo on; sleep 100")
	before := p.settings()
	p.sees("on\r\n")
	pause()
	p.types("\x03")
	if code := p.code(); code != 130 {
		t.Errorf("exit code %d, want 130", code)
	}
	if after := p.settings(); after != before {
		t.Errorf("the terminal was left as %+v, it was %+v", after, before)
	}
}

func TestTerminalBash(t *testing.T) {
	t.Parallel()
	p := sit(t, "bash", "--norc")
	p.sees("$ ")
	for _, before := range []string{"", "half a line", "sleep 100\r"} {
		p.types(before)
		pause()
		p.types("\x03")
		pause()
		p.types("echo cle''an\r")
		if s := p.sees("clean\r\n"); strings.Contains(s, "not found") || strings.Contains(s, "\a") {
			t.Errorf("after %q and ^C: %q", before, s)
		}
	}
	p.types("exit 8\r")
	if code := p.code(); code != 8 {
		t.Errorf("exit code %d, want 8", code)
	}
}
