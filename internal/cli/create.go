package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/bermhq/berm/api"
)

const createAbout = `
Prints the id of the sandbox. It lives until it is killed, until its ttl is over
(counted from now; default 1h), or until nothing was asked of it for the idle
time (default 5m); a running command counts as being used. --persistent switches
the idle time off, never the caps or the ttl.

  SB=$(berm create --tag job=42 --ttl 2h)
  berm cp data.csv $SB:
  berm exec $SB -- python3 -c 'print(len(open("data.csv").read()))'
  berm kill $SB
`

func createVerb() verb {
	req := api.CreateRequest{Tags: map[string]string{}, Env: map[string]string{}}
	var asJSON bool
	var wire wireOptions
	fs := slices.Concat(flags{
		{name: "template", value: "NAME", help: "what it starts from (default: host)", set: text(&req.Template)},
		{name: "isolation", value: "KIND", help: "auto or gvisor (default: auto)", set: text(&req.Isolation)},
		{name: "min-isolation", value: "KIND", help: "the weakest boundary that will do: gvisor or microvm", set: text(&req.MinIsolation)},
		{name: "ttl", value: "TIME", help: "how long it may live, from now (default: 1h)", set: period("ttl", &req.TTLSeconds)},
		{name: "idle-timeout", value: "TIME", help: "ends it when nobody used it for that long (default: 5m)", set: period("idle-timeout", &req.IdleTimeoutSeconds)},
		{name: "persistent", help: "never end it for being idle", set: toggle(&req.Persistent)},
		{name: "session", value: "NAME", help: "the session that it belongs to, for good", set: text(&req.Session)},
	}, limitFlags(&req.Limits, "each command"), wire.flags(), flags{
		{name: "env", value: "K=V", help: "a variable of every command in it (repeat)", set: setEnv(req.Env)},
		{name: "tag", value: "K=V", help: "a label to find it by (repeat)", set: pairs(req.Tags, "as in --tag job=42")},
		{name: "json", help: "print the sandbox as one JSON object", set: toggle(&asJSON)},
	})
	return verb{
		name: "create", summary: "make a sandbox that stays, and print its id", usage: "[FLAG...]",
		flags: func() flags { return fs }, about: createAbout,
		run: ask("create", fs, 0, 0, func(ctx context.Context, a *asker, _ []string) error {
			if err := wire.check(a.Stdin, &req.Limits); err != nil {
				return err
			}
			if err := wire.put(&req); err != nil {
				return err
			}
			sb, err := a.Create(ctx, req)
			if err != nil {
				return err
			}
			if asJSON {
				return a.printed(sb)
			}
			fmt.Fprintln(a.Stdout, shownName(sb.SandboxID))
			return nil
		}),
	}
}

// limitFlags are the caps, as run and create take them.
func limitFlags(l *api.Limits, of string) flags {
	return flags{
		{name: "timeout", value: "TIME", help: "wall clock for " + of + ", as 30s or 2m (default: 30s)", set: duration(&l.TimeoutSeconds)},
		{name: "memory", value: "SIZE", help: "memory for all of it, as 512m or 2g (default: 512m)", set: withUnit("memory", size(&l.MemoryBytes, true))},
		{name: "cpus", value: "N", help: "cores' worth of time (default: 1)", set: number(&l.CPUs)},
		{name: "pids", value: "N", help: "processes and threads (default: 128)", set: count(&l.Pids)},
		{name: "disk", value: "SIZE", help: "everything that is written (default: 512m)", set: withUnit("disk", size(&l.DiskBytes, false))},
		{name: "output-limit", value: "SIZE", help: "output kept per stream with --json; 64 times this ends the program (default: 1m)", set: size(&l.OutputBytes, false)},
	}
}

// period is a time above zero, days included.
func period(name string, p *float64) func(string) error {
	return func(s string) error {
		secs, err := parsePeriod(s)
		if err != nil {
			if _, nerr := strconv.ParseFloat(s, 64); nerr == nil {
				return &fault{"--" + name + " " + s, "has no unit", "--" + name + " " + s + "s"}
			}
			return err
		}
		*p = secs
		return nil
	}
}

// parsePeriod reads 90s, 30m, 8h, 7d: a time that is more than nothing.
func parsePeriod(s string) (float64, error) {
	d, err := api.ParseTime(s)
	if err == nil && d == 0 {
		err = errors.New("is not a time after now")
	}
	return d.Seconds(), err
}

// printed is print for verbs that return an error.
func (env *Env) printed(v any) error {
	if code := env.print(v); code != exitOK {
		return exitCode(code)
	}
	return nil
}
