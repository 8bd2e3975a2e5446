// Command berm-weak is berm with one wall taken out, by name: the negative
// control of `berm attack`, which must go red on it. A suite that stays green
// on a weak build measures nothing. It is never released and no other program
// can become it: it is not part of `make build`, it refuses to run unless
// BERM_WEAK_WALL names a wall, and what it takes out, it takes out here, around
// the same parts that berm is made of, which have no switch for it.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/client"
	"github.com/bermhq/berm/internal/cli"
	"github.com/bermhq/berm/internal/daemon"
)

func main() {
	if len(os.Args) > 1 {
		switch os.Args[1] { // as strong as ever: they are started without any environment
		case "keeper":
			os.Exit(part(daemon.RunKeeper))
		case "worker":
			os.Exit(part(daemon.RunWorker))
		case nativePart:
			os.Exit(part(runNative))
		case "presets":
			os.Exit(part(daemon.RunPresets))
		case "librarian":
			os.Exit(part(daemon.RunLibrarian))
		case "maker":
			os.Exit(part(daemon.RunMaker))
		}
	}
	name := os.Getenv("BERM_WEAK_WALL")
	w, ok := find(name)
	if !ok {
		fmt.Fprintf(os.Stderr, "berm-weak: %q is no wall that it can take out: BERM_WEAK_WALL must be one of %s\ntry: berm\n", name, strings.Join(names(), ", "))
		os.Exit(125)
	}
	fmt.Fprintf(os.Stderr, "berm-weak: WITHOUT A WALL: %s. Not for use.\n", w.without)
	args := os.Args[1:]
	if w.args != nil {
		args = w.args(args)
	}
	env := cli.Env{
		Args:  args,
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Open:    func(ctx context.Context, o cli.OpenOptions) (*cli.Session, error) { return open(ctx, o, w) },
		Serve:   func(ctx context.Context, o cli.ServeOptions) error { return serveWeak(ctx, o, w) },
		Version: api.Version{Version: "weak, without " + name},
	}
	if len(args) > 0 && args[0] == "run" { // --here keeps something; a report of this program is never signed
		env.StateFor = daemon.StateDir
	}
	os.Exit(cli.Main(context.Background(), env))
}

func part(run func([]string) error) int {
	if err := run(os.Args[2:]); err != nil {
		fmt.Fprintf(os.Stderr, "berm-weak: %s: %v\n", os.Args[1], err)
		return 125
	}
	return 0
}

// program is one of those that `make build` has packed. They are not embedded:
// this binary is of no use away from the folder that it was built in.
func program(name string) daemon.Program {
	return daemon.Program{Name: name, Files: os.DirFS(os.Getenv("BERM_WEAK_BLOBS"))}
}

// open does what berm's own does, and puts a proxy without w between the
// client and the worker.
func open(ctx context.Context, o cli.OpenOptions, w wall) (*cli.Session, error) {
	state, err := daemon.StateDir(o.StateDir)
	if err != nil {
		return nil, err
	}
	opt := daemon.Options{StateDir: state, Template: o.Template, NoImage: o.NoTemplate, NoSweep: o.NoSweep, Link: o.Link,
		Sandbox: program("sandbox"), Agent: program("agent")}
	standIn(&opt, o.StandIn)
	if w.template != "" {
		opt.Template = w.template
	}
	if w.options != nil {
		w.options(&opt)
	}
	l, err := daemon.Start(ctx, opt)
	if err != nil {
		return nil, err
	}
	direct := client.New(client.Options{Dial: l.Dial})
	p := serve(l.Dial, direct, w)
	c := client.New(client.Options{Dial: p.dial})
	return &cli.Session{Client: c, Template: l.Template, StateDir: state, Extract: w.extract, Close: func() error {
		if w.forget {
			return nil // it all ends with this process
		}
		c.Close()
		p.close()
		direct.Close()
		return l.Close()
	}}, nil
}
