// Command berm runs code that nobody reviewed in a disposable sandbox. It is
// one static binary: main only says which part of it this process is.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/client"
	"github.com/bermhq/berm/internal/cli"
	"github.com/bermhq/berm/internal/daemon"
	"github.com/bermhq/berm/internal/image"
)

func main() {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "keeper":
			if len(os.Args) > 2 && os.Args[2] == "unit" {
				os.Exit(part(keeperUnit))
			}
			os.Exit(part(daemon.RunKeeper))
		case "worker":
			os.Exit(part(daemon.RunWorker))
		case "presets":
			os.Exit(part(daemon.RunPresets))
		case "librarian":
			os.Exit(part(daemon.RunLibrarian))
		case "maker":
			os.Exit(part(daemon.RunMaker))
		}
	}
	os.Exit(cli.Main(context.Background(), cli.Env{
		Args:  os.Args[1:],
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Open:     open,
		Connect:  connect,
		Serve:    serveUntilTold,
		Rungs:    rungs,
		Runtime:  func(dir string) (string, error) { return daemon.RuntimeFile(dir, program("sandbox")) },
		StateFor: daemon.StateDir,
		Version:  version(),
	}))
}

// part runs a process that daemon.Start has started.
func part(run func([]string) error) int {
	os.WriteFile("/proc/self/comm", []byte("berm-"+os.Args[1]), 0) // for ps; only a name
	if err := run(os.Args[2:]); err != nil {
		fmt.Fprintf(os.Stderr, "berm: %s: %v\n", os.Args[1], err)
		return 125
	}
	return 0
}

// rungs asks what this host offers; nil if it cannot be asked.
func rungs(ctx context.Context) []api.Rung {
	s, err := open(ctx, cli.OpenOptions{NoTemplate: true})
	if err != nil {
		return nil
	}
	defer s.Close()
	d, err := s.Client.Doctor(ctx)
	if err != nil {
		return nil
	}
	return d.Rungs
}

// open starts a worker and a keeper for one command line and returns a client
// that speaks to the worker as to any server.
func open(ctx context.Context, o cli.OpenOptions) (*cli.Session, error) {
	state, err := daemon.StateDir(o.StateDir)
	if err != nil {
		return nil, err
	}
	opt := daemon.Options{
		StateDir: state,
		Template: o.Template,
		Sandbox:  program("sandbox"),
		Agent:    program("agent"),
		NoImage:  o.NoTemplate,
		Making:   o.Templates,
		NoSweep:  o.NoSweep,
		Only:     o.Only,
		Link:     o.Link,
		Presets:  o.Presets, PresetsFile: o.PresetsFile,
	}
	standIn(&opt, o.StandIn)
	opt.Image = image.Options{Include: o.Include, Exclude: o.Exclude, MaxBytes: o.MaxBytes}
	if o.Progress != nil {
		opt.Image.Progress = func(p image.Progress) { o.Progress("template: "+p.Phase, p.Done, p.Total) }
	}
	if os.Getenv("BERM_DEBUG") != "" {
		opt.Debug = os.Stderr
	}
	l, err := daemon.Start(ctx, opt)
	if err != nil {
		return nil, err
	}
	c := client.New(client.Options{Dial: l.Dial})
	return &cli.Session{Client: c, Template: l.Template, StateDir: state, Close: func() error {
		c.Close()
		return l.Close()
	}}, nil
}
