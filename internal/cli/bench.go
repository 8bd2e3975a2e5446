package cli

import (
	"context"
	"fmt"
	"os"
	"slices"
	"text/tabwriter"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/bench"
)

const benchAbout = `
Measures on this host, side by side in one run, so that the ratios mean
something on a busy machine: each round runs every contestant once, and a ratio
is the median of the rounds' own ratios.

  berm bench run    a cold "berm run", whole process to whole process, against
                    gVisor's own "runsc run" of a folder with the same files,
                    and against the command itself without any sandbox
  berm bench exec   a command in a sandbox that is up, over HTTP on an open
                    connection, against what the agent inside says it took
  berm bench egress one transfer over one connection and over fifty, and short
                    connections, from inside a sandbox to this host,
                    against the same client outside, and against gVisor's own
                    network over a veth pair (needs root, ip and nsenter);
                    half a minute, and 10 to 30 seconds a round
  berm bench files  a file of --size into a sandbox and out of it, against the
                    same bytes through "cat" in the same sandbox

"run" and "egress" need no daemon. "run" needs root, like runsc does, takes about a minute, and 1.5 GB in the folder
for temporary files while it runs. An interrupt of "egress" prints the rounds that are done. "exec" and "files" ask the daemon in force.
`

func benchVerb() verb {
	var asJSON bool
	n, bulk := int64(0), int64(2<<30)
	fs := flags{
		{name: "size", value: "SIZE", help: "of the file (default: 2g)", set: size(&bulk, false)},
		{name: "rounds", short: "n", value: "N", help: "rounds (default: 20, of egress 3)", set: count(&n)},
		{name: "json", help: "print one JSON object", set: toggle(&asJSON)},
	}
	return verb{
		name: "bench", summary: "measure on this host what the specification promises", usage: "run|exec|egress|files [-n N] [--size SIZE] [--json]",
		flags: func() flags { return fs }, about: benchAbout,
		run: func(ctx context.Context, env *Env, args []string) int {
			var name string
			if len(args) > 0 && args[0] != "" && args[0][0] != '-' {
				name, args = args[0], args[1:]
			}
			rest, _, err := append(slices.Clone(fs), globalFlags(env)...).parse(args)
			if err == nil && (!slices.Contains([]string{"run", "exec", "egress", "files"}, name) || len(rest) > 0) {
				err = &fault{"bench", "needs the name of one benchmark: run, exec, egress or files", "berm bench run"}
			}
			if err == nil && n == -1 {
				err = &fault{"-n", "cannot be unlimited", "-n 20"}
			}
			if err != nil {
				return env.fail(err)
			}
			if n == 0 {
				n = 20
				if name == "egress" {
					n = 3
				}
			}
			ctx, in := env.interruptible(ctx, func() {}, 0)
			defer in.stop()
			code := exitOK
			report, err := env.bench(ctx, name, int(n), bulk)
			switch {
			case err != nil && context.Cause(ctx) == errInterrupted && len(report.Rows) == 0:
				return env.fail(&api.Error{Code: api.CodeInterrupted, Message: "bench: interrupted, nothing was measured"})
			case err != nil && len(report.Rows) == 0:
				return env.fail(err)
			case err != nil:
				env.note("interrupted: these are the rounds that were done")
				code = exitKilled
			}
			if asJSON {
				return max(env.print(report), code)
			}
			w := tabwriter.NewWriter(env.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
			fmt.Fprintln(w, "WHAT\tUNIT\tN\tP50\tP99\tMIN\tMAX\tRATIO\t  AGAINST\t")
			for _, r := range report.Rows {
				fmt.Fprintf(w, "%s\t%s\t%d\t%.1f\t%.1f\t%.1f\t%.1f\t", r.Name, r.Unit, r.N, r.P50, r.P99, r.Min, r.Max)
				if r.Baseline != "" {
					fmt.Fprintf(w, "%.2f\t  %s\t", r.RatioP50, r.Baseline)
				} else {
					fmt.Fprint(w, "\t\t")
				}
				fmt.Fprintln(w)
			}
			w.Flush()
			return code
		},
	}
}

func (env *Env) bench(ctx context.Context, name string, n int, size int64) (bench.Report, error) {
	if name == "egress" {
		return env.benchEgress(ctx, n)
	}
	if name != "run" {
		s, err := env.connect(ctx)
		if err != nil {
			return bench.Report{}, err
		}
		defer s.Close()
		o := bench.Options{Client: s.Client, Rounds: n, Note: func(line string) { env.note("%s", line) }}
		if name == "exec" {
			return bench.Exec(ctx, o)
		}
		return bench.Files(ctx, o, size)
	}
	if env.Runtime == nil || os.Geteuid() != 0 {
		return bench.Report{}, &fault{"bench run", "needs root: runsc, which it compares with, does", "sudo berm bench run"}
	}
	runsc, err := env.Runtime(env.StateDir)
	if err != nil {
		return bench.Report{}, err
	}
	self, err := os.Executable()
	if err != nil {
		return bench.Report{}, err
	}
	s, err := env.Open(ctx, OpenOptions{StateDir: env.StateDir})
	if err != nil {
		return bench.Report{}, err
	}
	defer s.Close()
	return bench.Run(ctx, bench.Options{Client: s.Client, Template: s.Template, Berm: self, Runsc: runsc,
		StateDir: env.StateDir, Rounds: n, Note: func(line string) { env.note("%s", line) }})
}

// benchEgress has processes of its own, so that no daemon's other work is in the
// figures.
func (env *Env) benchEgress(ctx context.Context, n int) (bench.Report, error) {
	runsc := ""
	if env.Runtime != nil && os.Geteuid() == 0 {
		var err error
		if runsc, err = env.Runtime(env.StateDir); err != nil {
			return bench.Report{}, err
		}
	}
	s, err := env.Open(ctx, OpenOptions{StateDir: env.StateDir, Link: true})
	if err != nil {
		return bench.Report{}, err
	}
	defer s.Close()
	return bench.Egress(ctx, bench.Options{Client: s.Client, Template: s.Template, Runsc: runsc, Rounds: n,
		Note: func(line string) { env.note("%s", line) }})
}
