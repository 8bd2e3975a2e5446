package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/bermhq/berm/internal/cli"
	"github.com/bermhq/berm/internal/daemon"
)

// serveUntilTold is the daemon, until it is told to stop.
func serveUntilTold(ctx context.Context, o cli.ServeOptions) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	return daemon.Serve(ctx, daemon.ServeOptions{
		StateDir: o.StateDir, Config: o.Config, Listen: o.Listen, Hosts: o.Hosts, TLSCert: o.TLSCert, TLSKey: o.TLSKey, Debug: o.Debug,
		Sandbox: program("sandbox"), Agent: program("agent"), Version: version(), Stdout: os.Stdout, Stderr: os.Stderr,
	})
}

// keeperUnit is a keeper of its own, until it is told to stop. Its arguments
// are "unit" and the state directory.
func keeperUnit(args []string) error {
	if len(args) > 2 {
		return errors.New("usage: berm keeper unit [DIR]")
	}
	dir := ""
	if len(args) == 2 {
		dir = args[1]
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	return daemon.KeeperUnit(ctx, dir, program("sandbox"))
}
