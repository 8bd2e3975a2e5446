package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
)

// counting prints 0, 1, 2, ... until /workspace/go is there, and exits with 7.
const counting = `i=0; while [ ! -e /workspace/go ]; do echo $i; i=$((i+1)); sleep 0.05; done; echo end $i; exit 7`

// lasting is a sandbox whose commands nothing but this test ends.
var lasting = api.CreateRequest{TTLSeconds: 3600, Persistent: true, Limits: api.Limits{TimeoutSeconds: 3600}}

// A foreground is a `berm exec` of this daemon's.
type foreground struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines *bufio.Scanner
	errs  bytes.Buffer
	next  int
}

func (s *served) foreground(args ...string) *foreground {
	s.t.Helper()
	f := &foreground{t: s.t, cmd: exec.Command(s.bin, append([]string{"exec"}, args...)...)}
	f.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "BERM_STATE=" + s.state}
	f.cmd.Stderr = &f.errs
	f.stdin, _ = f.cmd.StdinPipe()
	out, err := f.cmd.StdoutPipe()
	if err == nil {
		err = f.cmd.Start()
	}
	if err != nil {
		s.t.Fatal(err)
	}
	f.lines = bufio.NewScanner(out)
	s.t.Cleanup(func() { f.cmd.Process.Kill(); f.cmd.Wait() })
	return f
}

// count reads until n lines came, each one the next.
func (f *foreground) count(n int) {
	f.t.Helper()
	for f.next < n {
		if !f.lines.Scan() || f.lines.Text() != fmt.Sprint(f.next) {
			f.t.Fatalf("line %q where %d comes next; %s", f.lines.Text(), f.next, &f.errs)
		}
		f.next++
	}
}

// end reads the rest and returns the exit code.
func (f *foreground) end() int {
	f.t.Helper()
	for f.lines.Scan() {
		switch f.lines.Text() {
		case fmt.Sprint(f.next):
			f.next++
		case fmt.Sprint("end ", f.next):
		default:
			f.t.Errorf("line %q where %d comes next", f.lines.Text(), f.next)
		}
	}
	f.cmd.Wait()
	return f.cmd.ProcessState.ExitCode()
}

// over waits until no command runs in a sandbox, and each was ended.
func (s *served) over(id string) {
	s.t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		var l api.ExecList
		s.must(200, "GET", "/v1/sandboxes/"+id+"/execs", nil, &l)
		run := slices.ContainsFunc(l.Execs, func(x api.Exec) bool { return x.State != api.ExecEnded })
		if run && time.Now().Before(end) {
			continue
		}
		if run || len(l.Execs) == 0 {
			s.t.Fatalf("it runs on: %+v", l.Execs)
		}
		for _, x := range l.Execs {
			if x.Result.Ending != api.EndKilled {
				s.t.Errorf("it ended as %+v", x.Result)
			}
		}
		return
	}
}

// TestDaemonKillForeground: a foreground `berm exec` comes back to its command
// when the daemon is killed and another one comes: every line is there once, and
// the exit code is the command's.
func TestDaemonKillForeground(t *testing.T) {
	s := serve(t)
	for name, args := range map[string][]string{
		"plain":            {"--", "sh", "-c", counting},
		"all of its input": {"-i", "--", "sh", "-c", "cat; " + counting},
	} {
		t.Run(name, func(t *testing.T) {
			id := s.create(lasting)
			f := s.foreground(append([]string{id}, args...)...)
			f.stdin.Close()
			for range 2 {
				f.count(f.next + 20)
				s.kill9()
				time.Sleep(300 * time.Millisecond) // it prints meanwhile
				s.start()
				f.count(f.next + 20)
			}
			s.exec(id, "touch /workspace/go")
			if code := f.end(); code != 7 || strings.Count(f.errs.String(), "waiting for the daemon") != 2 {
				t.Errorf("exit code %d after %d lines: %s", code, f.next, &f.errs)
			}
		})
	}
	t.Run("much output", func(t *testing.T) { // more than is kept, and more than the way there holds
		id := s.create(lasting)
		f := s.foreground(id, "--", "sh", "-c", "seq 0 2999999; echo end 3000000; exit 7")
		f.count(100_000)
		s.kill9()
		time.Sleep(300 * time.Millisecond)
		s.start()
		if code := f.end(); code != 7 || f.next != 3_000_000 || strings.Contains(f.errs.String(), "no longer kept") {
			t.Errorf("exit code %d after %d lines: %s", code, f.next, &f.errs)
		}
	})
	t.Run("input under way", func(t *testing.T) { // what arrived of it cannot be known
		id := s.create(lasting)
		f := s.foreground(id, "-i", "--", "sh", "-c", counting)
		f.count(20)
		s.kill9()
		s.start()
		if code := f.end(); code != 123 || !strings.Contains(f.errs.String(), "input is not known: it was ended") {
			t.Errorf("exit code %d: %s", code, &f.errs)
		}
		s.over(id)
	})
	for name, sig := range map[string]syscall.Signal{"interrupt": syscall.SIGINT, "client killed": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			id := s.create(lasting)
			f := s.foreground(id, "--", "sh", "-c", counting)
			f.count(5)
			f.cmd.Process.Signal(sig)
			if code := f.end(); sig == syscall.SIGINT && code != 137 {
				t.Errorf("exit code %d: %s", code, &f.errs)
			}
			s.over(id)
		})
	}
}

// TestDaemonGone: no daemon comes back, and berm does not say that nothing ran.
func TestDaemonGone(t *testing.T) {
	s := serve(t)
	id := s.create(lasting)
	f, tied := s.foreground(id, "--", "sh", "-c", counting), s.foreground(id, "--end-all", "--", "sh", "-c", counting)
	f.count(5)
	tied.count(5)
	s.kill9()
	if code := tied.end(); code != 123 || !strings.Contains(tied.errs.String(), "ends with its connection") {
		t.Errorf("--end-all: exit code %d: %s", code, &tied.errs)
	}
	if code := f.end(); code != 123 || !strings.Contains(f.errs.String(), "may still be running") {
		t.Errorf("exit code %d: %s", code, &f.errs)
	}
	s.start() // whose command it was is gone
	s.over(id)
}
