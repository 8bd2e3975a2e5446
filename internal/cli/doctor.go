package cli

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"text/tabwriter"

	"github.com/bermhq/berm/api"
)

const doctorAbout = `
Tries out, on this host and with your rights, which isolation kinds can run and
which walls hold around a sandbox. What does not hold comes with the reason and
with the one command that fixes it. Exit code 1 if a wall does not hold or no
kind can run, 0 otherwise.

With --leaks it lists what ended sandboxes have left on the host: records,
cgroups, processes, files. There should never be any; the next berm that runs a
sandbox removes what a killed keeper could not. Exit code 1 if there are some.

  berm doctor
  berm doctor --json | jq '.walls[] | select(.holds | not)'
`

func doctorVerb() verb {
	var asJSON, leaks bool
	fs := flags{
		{name: "leaks", help: "list what ended sandboxes have left on the host", set: toggle(&leaks)},
		{name: "json", help: "print one JSON object", set: toggle(&asJSON)},
	}
	return verb{
		name: "doctor", summary: "say what this host can hold up, and how to fix what it cannot", usage: "[--leaks] [--json]",
		flags: func() flags { return fs }, about: doctorAbout,
		run: func(ctx context.Context, env *Env, args []string) int {
			rest, _, err := append(slices.Clone(fs), globalFlags(env)...).parse(args)
			if err == nil && len(rest) > 0 {
				err = &fault{"doctor", "takes no arguments", "berm doctor"}
			}
			if err != nil {
				return env.fail(err)
			}
			s, err := env.Open(ctx, OpenOptions{StateDir: env.StateDir, NoTemplate: true, NoSweep: true})
			if err != nil && !leaks {
				return env.noRung(err, asJSON)
			}
			if err != nil {
				return env.fail(err)
			}
			defer s.Close()
			if leaks {
				return env.leaks(ctx, s, asJSON)
			}
			return env.doctor(ctx, s, asJSON)
		},
	}
}

func (env *Env) doctor(ctx context.Context, s *Session, asJSON bool) int {
	d, err := s.Client.Doctor(ctx)
	if err != nil {
		return env.fail(err)
	}
	return env.showDoctor(d, asJSON)
}

// noRung is the answer where nothing could be started, so that nobody could be
// asked.
func (env *Env) noRung(err error, asJSON bool) int {
	r := api.Rung{Name: api.IsolationGVisor, Boundary: api.BoundaryUserKernel, Reason: err.Error()}
	var known *api.Error
	if errors.As(err, &known) {
		r.Reason, r.Fix = known.Message, known.Hint
	}
	host := map[string]any{"arch": runtime.GOARCH, "cpus": runtime.NumCPU()}
	return env.showDoctor(api.Doctor{Host: host, Rungs: []api.Rung{r}, Walls: []api.Wall{}}, asJSON)
}

func (env *Env) showDoctor(d api.Doctor, asJSON bool) int {
	code := exitOK
	if slices.ContainsFunc(d.Walls, func(w api.Wall) bool { return !w.Holds }) ||
		!slices.ContainsFunc(d.Rungs, func(r api.Rung) bool { return r.Available }) {
		code = 1
	}
	if asJSON {
		return max(code, env.print(d))
	}
	for _, k := range []string{"os", "kernel", "arch", "cpus"} {
		if v, ok := d.Host[k]; ok {
			fmt.Fprintf(env.Stdout, "%s %v   ", k, v)
		}
	}
	fmt.Fprintln(env.Stdout)
	w := tabwriter.NewWriter(env.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nISOLATION\tBOUNDARY\tHERE\t")
	for _, r := range d.Rungs {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", r.Name, r.Boundary, yes(r.Available), r.Reason)
		if r.Fix != "" {
			fmt.Fprintf(w, "\t\t\ttry: %s\n", r.Fix)
		}
	}
	if len(d.Walls) == 0 {
		w.Flush()
		return code
	}
	fmt.Fprintln(w, "\nWALL\tHOLDS\tHOW, OR WHY NOT")
	for _, l := range d.Walls {
		fmt.Fprintf(w, "%s\t%s\t%s\n", l.Name, yes(l.Holds), l.Reason)
		if l.Fix != "" {
			fmt.Fprintf(w, "\t\ttry: %s\n", l.Fix)
		}
	}
	w.Flush()
	return code
}

func (env *Env) leaks(ctx context.Context, s *Session, asJSON bool) int {
	l, err := s.Client.Leaks(ctx)
	if err != nil {
		return env.fail(err)
	}
	code := exitOK
	if len(l.Leaks) > 0 {
		code = 1
	}
	if asJSON {
		return max(code, env.print(l))
	}
	if code == exitOK {
		fmt.Fprintln(env.Stdout, "nothing is left of any ended sandbox")
		return code
	}
	w := tabwriter.NewWriter(env.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "KIND\tWHAT\tOWNER\tAGE")
	for _, x := range l.Leaks {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", x.Kind, x.ID, x.Owner, age(x.AgeSeconds))
	}
	w.Flush()
	fmt.Fprintln(env.Stderr, "try: berm run -- true   (any run removes what a dead keeper left)")
	return code
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "NO"
}

func age(seconds float64) string {
	return fmt.Sprintf("%.0fs", seconds)
}
