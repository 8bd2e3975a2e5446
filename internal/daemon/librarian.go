package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bermhq/berm/internal/image"
	"github.com/bermhq/berm/internal/jail"
	"github.com/bermhq/berm/internal/template"
)

// Templates are kept where the rights to the state directory are: by the process
// that a person starts, for its worker; and under a daemon by a librarian, a
// process that is started before rights are given up and has those that the
// daemon was started with. Neither parses what strangers wrote: makers do.

// shelf returns the store of templates of a state directory.
func shelf(images *image.Store, host func(ctx context.Context, build bool) (image.Image, error)) *template.Store {
	return template.New(images, template.Options{Host: host, Maker: "/proc/self/exe"})
}

// RunMaker is the main of a maker.
func RunMaker(args []string) error { return template.RunMaker(args) }

// RunLibrarian is the main of a librarian, which is two processes: one that keeps
// the templates, and above it one that does nothing but start it again when it
// has ended before its time; the daemon could not, it has given its rights up.
// The arguments are the state directory and the image of the template host, as
// JSON, and "at work" for the one below; the socket is descriptor fdOwner.
func RunLibrarian(args []string) error {
	conn, err := inherited(fdOwner)
	if err != nil {
		return err
	}
	switch {
	case len(args) == 2:
		return watchOver(conn, args)
	case len(args) == 3 && args[2] == "at work":
		return keepTemplates(conn, args)
	}
	return errors.New("librarian: not started by berm")
}

func keepTemplates(conn *net.UnixConn, args []string) error {
	var host image.Image
	if err := json.Unmarshal([]byte(args[1]), &host); err != nil {
		return errors.New("librarian: not started by berm")
	}
	s := shelf(image.Open(filepath.Join(args[0], "templates")), func(context.Context, bool) (image.Image, error) { return host, nil })
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go collectNow(ctx, s, time.Hour)
	return template.Serve(ctx, conn, s)
}

// rest is how long to wait before the next start, after so many in a row.
func rest(tries int) time.Duration { return min(5*time.Second, 50*time.Millisecond<<min(tries, 10)) }

// watchOver keeps one at work until the daemon is gone.
func watchOver(conn *net.UnixConn, args []string) error {
	f, err := conn.File()
	if err != nil {
		return err
	}
	runtime.LockOSThread() // whose end would be taken for ours
	for tries := 0; ; tries++ {
		cmd := exec.Command("/proc/self/exe")
		cmd.Args = append(append([]string{"berm", "librarian"}, args...), "at work")
		cmd.Dir, cmd.ExtraFiles = "/", []*os.File{f}
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		began := time.Now()
		err := cmd.Run()
		if err == nil {
			return nil // the daemon has closed its end
		}
		if time.Since(began) > time.Minute {
			tries = 0
		}
		time.Sleep(rest(tries))
		if err := template.Begin(conn); err != nil {
			return nil // the same
		}
	}
}

// collectNow collects at once and then every so often.
func collectNow(ctx context.Context, s *template.Store, every time.Duration) {
	for {
		s.Collect(ctx) // the next one finds what this one could not take
		select {
		case <-ctx.Done():
			return
		case <-time.After(every):
		}
	}
}

// A librarian is a daemon's own.
type librarian struct {
	*template.Client
	cmd   *exec.Cmd
	ended chan struct{} // closed when it has
}

// newLibrarian starts one, with the rights and the environment of this process.
func newLibrarian(state string, host image.Image) (*librarian, error) {
	ours, theirs, err := jail.Pair(unix.SOCK_SEQPACKET)
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	known, err := json.Marshal(host)
	if err != nil {
		ours.Close()
		return nil, err
	}
	conn, err := jail.Conn(ours)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{"berm", "librarian", state, string(known)}
	cmd.Dir, cmd.ExtraFiles = "/", []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		conn.Close()
		return nil, fmt.Errorf("start the process that keeps templates: %w", err)
	}
	l := &librarian{template.NewClient(conn), cmd, make(chan struct{})}
	go func() {
		defer close(l.ended)
		cmd.Wait()
	}()
	return l, nil
}

// close ends the process, and every maker with it.
func (l *librarian) close() {
	if l == nil {
		return
	}
	l.Client.Close()
	late := time.AfterFunc(5*time.Second, func() { l.cmd.Process.Kill() }) // in vain where it has more rights; it ends by itself
	defer late.Stop()
	<-l.ended
}

// lend serves a store to a worker, on the other end of the socket it returns.
func lend(ctx context.Context, s template.Service) (theirs *os.File, end func(), err error) {
	ours, theirs, err := jail.Pair(unix.SOCK_SEQPACKET)
	if err != nil {
		return nil, nil, err
	}
	conn, err := jail.Conn(ours)
	if err != nil {
		theirs.Close()
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		template.Serve(ctx, conn, s) // ends with the worker
	}()
	return theirs, func() { cancel(); <-done }, nil
}

// findRoot is the root of a template by name, for an engine.
func findRoot(s template.Service, name string) (image.Root, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return s.Resolve(ctx, name)
}

// borrowed is the client of the store that this process was lent.
func borrowed() (*template.Client, error) {
	conn, err := inherited(fdShelf)
	if err != nil {
		return nil, err
	}
	return template.NewClient(conn), nil
}
