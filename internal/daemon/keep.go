package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/keeper"
)

// keeperServe is the main of a keeper that outlives its daemon. Its arguments
// are: state directory, runtime program, "rootless" or "root", and its mode; its
// listening socket is descriptor fdOwner.
func keeperServe(args []string) error {
	keeper.Harden()
	unix.CloseOnExec(fdOwner)
	l, err := net.FileListener(os.NewFile(fdOwner, "keeper.sock"))
	if err != nil {
		return errors.New("keeper: not started by berm")
	}
	ul, ok := l.(*net.UnixListener)
	if !ok || args[3] != "linger" {
		return errors.New("keeper: not started by berm")
	}
	signal.Ignore(syscall.SIGHUP)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	context.AfterFunc(ctx, func() { ul.Close() }) // ends every sandbox, and then Serve
	return keeper.Serve(keeper.Config{StateDir: args[0], Runtime: args[1], Rootless: args[2] == "rootless"}, ul, keeper.ModeLinger)
}

// KeeperUnit is the main of a keeper that a service manager runs apart from the
// daemon. It returns when ctx is over, which ends every sandbox.
func KeeperUnit(ctx context.Context, stateDir string, sandboxProgram Program) error {
	if os.Geteuid() != 0 {
		return &api.Error{Code: api.CodeHostFailure, Message: "a keeper of its own needs root", Hint: "sudo berm keeper unit DIR; or just berm serve, which starts one"}
	}
	ready := newNotifier()
	state, err := StateDir(stateDir)
	if err != nil {
		return err
	}
	if err := closeOnExec(); err != nil {
		return err
	}
	runtimeFile, err := unpack(state, sandboxProgram)
	if err != nil {
		return unusable(state, err)
	}
	dir, err := os.Open(state)
	if err != nil {
		return unusable(state, err)
	}
	defer dir.Close()
	lock, err := os.OpenFile(below(dir, "keeper.lock"), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return unusable(state, err)
	}
	defer lock.Close()
	if c, err := dialUnix(ctx, dir, "unixpacket", keeperSocket); err == nil {
		c.Close()
		return &api.Error{Code: api.CodeHostFailure, Message: "a keeper is already running for " + state, Hint: "stop the daemon that started it first"}
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return &api.Error{Code: api.CodeHostFailure, Message: fmt.Sprintf("keeper of %s: %v", state, err), Hint: "another one is starting"}
	}
	l, err := listenUnix(dir, "unixpacket", keeperSocket)
	if err != nil {
		return unusable(state, err)
	}
	keeper.Harden()
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	ready.tell("READY=1")
	err = keeper.Serve(keeper.Config{StateDir: state, Runtime: runtimeFile}, l, keeper.ModeUnit)
	ready.tell("STOPPING=1")
	if ctx.Err() != nil {
		return nil
	}
	return err
}
