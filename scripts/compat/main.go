// Command compat runs everyday programs twice, on this host and in a sandbox,
// and compares what they print. It writes the table of docs/compatibility.md:
//
//	compat -berm bin/berm [-state DIR] [-only NAME,...] [-o docs/compatibility.md]
//
// Both sides start from one root file system, the template "compat" of this
// folder's recipe, so a difference is the sandbox's. A program is a script in
// programs/ with a head of comments (see program.go). What differs must be named
// in that head with its reason; anything else fails the run. Natively a program
// runs in a private copy of that root, as the sandbox's user and in namespaces
// of its own, so it needs root.
package main

import (
	"context"
	"embed"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
)

//go:embed programs
var programs embed.FS

func main() {
	if len(os.Args) > 1 && os.Args[1] == "native" {
		native(os.Args[2:])
	}
	o := options{}
	flag.StringVar(&o.berm, "berm", "bin/berm", "the `binary` to test")
	flag.StringVar(&o.state, "state", "", "its state `directory`")
	flag.StringVar(&o.template, "template", "compat", "a template or a root file system as `tar`")
	flag.StringVar(&o.tree, "tree", "", "the same, unpacked, as `directory`; made by an export if not given")
	flag.StringVar(&o.only, "only", "", "`names` of programs, with commas")
	flag.StringVar(&o.out, "o", "", "the `page` to write")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ok, err := run(ctx, o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "compat:", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

type options struct{ berm, state, template, tree, only, out string }

// tries is how often a program may be asked: some tests of others hang on how
// busy the machine is. What the sandbox causes is there every time.
const (
	tries     = 3
	mostShown = 20 // lines of one program
)

// run runs all programs and says whether every difference has its reason.
func run(ctx context.Context, o options) (bool, error) {
	list, err := load(programs, strings.Split(o.only, ","))
	if err != nil {
		return false, err
	}
	if o.tree == "" {
		dir, done, err := export(ctx, o)
		if err != nil {
			return false, err
		}
		defer done()
		o.tree = dir
	}
	ok := true
	var rows []row
	for i, p := range list {
		fmt.Printf("%2d/%d %-18s ", i+1, len(list), p.name)
		r := compare(p, runNative(ctx, o, p), runInside(ctx, o, p))
		for n := 1; n < tries && len(r.unexplained) > 0 && ctx.Err() == nil; n++ {
			r = compare(p, runNative(ctx, o, p), runInside(ctx, o, p))
		}
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		fmt.Println(r.summary())
		for i, d := range r.unexplained {
			if i == mostShown {
				fmt.Printf("     and %d more\n", len(r.unexplained)-i)
				break
			}
			fmt.Println("     " + d)
		}
		ok = ok && len(r.unexplained) == 0
		rows = append(rows, r)
	}
	same, explained, bad := tally(rows)
	fmt.Printf("%d programs: %d the same, %d with an explained difference, %d with another\n", len(rows), same, explained, bad)
	if o.out == "" {
		return ok, nil
	}
	return ok, os.WriteFile(o.out, []byte(page(rows)), 0o644)
}
