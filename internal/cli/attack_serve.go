package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/bermhq/berm/attack"
)

// keepDaemon runs a daemon until its own input ends, which it does when the
// program that started it does, and takes its state away then. It is a process
// of its own since a daemon that gives up root forgets whose child it was.
const keepDaemon = `("$@" </dev/null & echo "$!" >"$STATE/pid"; echo "$!"; wait "$!"; echo over) &
trap "" INT TERM HUP QUIT
cat >/dev/null
until [ -s "$STATE/pid" ]; do sleep 0.05; done
p=$(cat "$STATE/pid"); n=0
kill -TERM "$p" 2>/dev/null
while kill -0 "$p" 2>/dev/null && [ "$n" -lt 200 ]; do sleep 0.1; n=$((n + 1)); done
kill -KILL "$p" 2>/dev/null
wait
case $STATE in /*/berm-attack-*) rm -rf -- "$STATE" ;; esac`

// attackServe starts this program as a daemon to be attacked. Its state is its
// own, but for templates and programs: those are the ones of this state
// directory, which are found by what they hold and never changed.
func (env *Env) attackServe(ctx context.Context, own string, environ []string) (_ *attack.Daemon, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	state, err := os.MkdirTemp("", "berm-attack-")
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"templates", "runtimes"} {
		if err == nil {
			err = os.Symlink(filepath.Join(own, name), filepath.Join(state, name))
		}
	}
	if err != nil {
		os.RemoveAll(state)
		return nil, err
	}
	cmd := exec.Command("sh", "-c", keepDaemon, "berm-attack", self, "serve", "--state", state, "--listen", "127.0.0.1:0")
	cmd.Env = append(environ, "STATE="+state)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	log, err := os.Create(filepath.Join(state, "log"))
	if err != nil {
		os.RemoveAll(state)
		return nil, err
	}
	defer log.Close()
	cmd.Stderr = log
	in, err := cmd.StdinPipe()
	var out io.Reader
	if err == nil {
		out, err = cmd.StdoutPipe()
	}
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		os.RemoveAll(state)
		return nil, err
	}
	d := &attack.Daemon{StateDir: state, Close: func() error { return endDaemon(cmd, in, state) }}
	if err := ready(ctx, d, out); err != nil {
		said, _ := os.ReadFile(log.Name())
		return nil, errors.Join(fmt.Errorf("the daemon to be attacked did not get ready: %w: %.600q", err, said), d.Close())
	}
	return d, nil
}

// ready waits until a daemon says that it serves.
func ready(ctx context.Context, d *attack.Daemon, out io.Reader) error {
	type start struct {
		pid, line string
		err       error
	}
	said := make(chan start, 1)
	go func() {
		r := bufio.NewReader(out)
		var s start
		for s.err == nil && (s.pid == "" || s.line == "") { // they come in either order
			var l string
			if l, s.err = r.ReadString('\n'); s.err == nil {
				l = strings.TrimSpace(l)
				if url, is := strings.CutPrefix(l, "berm: ready "); is {
					s.line = url
				} else if s.pid = l; l == "over" {
					s.err = errors.New("it ended")
				}
			}
		}
		said <- s
		io.Copy(io.Discard, r)
	}()
	select {
	case s := <-said:
		if s.err != nil {
			return s.err
		}
		token, err := os.ReadFile(filepath.Join(d.StateDir, "token"))
		if err != nil {
			return err
		}
		d.URL, d.Token = s.line, strings.TrimSpace(string(token))
		d.PID, err = strconv.Atoi(s.pid)
		return err
	case <-time.After(60 * time.Second):
		return errors.New("it said nothing for a minute")
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func endDaemon(cmd *exec.Cmd, in io.Closer, state string) error {
	in.Close()
	late := time.AfterFunc(30*time.Second, func() { cmd.Process.Kill() })
	defer late.Stop()
	err := cmd.Wait()
	return errors.Join(err, os.RemoveAll(state))
}
