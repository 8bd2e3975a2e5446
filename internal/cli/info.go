package cli

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/bermhq/berm/api"
)

func infoVerb() verb {
	var asJSON, report bool
	fs := flags{
		{name: "report", help: "what was done in it, and what it took", set: toggle(&report)},
		{name: "json", help: "print one JSON object", set: toggle(&asJSON)},
	}
	return verb{
		name: "info", summary: "say all about one sandbox", usage: "[--report] [--json] SANDBOX", flags: func() flags { return fs },
		about: "A sandbox that has ended is known for a day.",
		run: ask("info", fs, 1, 1, func(ctx context.Context, a *asker, args []string) error {
			id, err := a.everSandbox(ctx, args[0])
			if err != nil {
				return err
			}
			if report {
				r, err := a.Report(ctx, id)
				if err != nil {
					return err
				}
				if asJSON {
					return a.printed(r)
				}
				a.showReport(r)
				return nil
			}
			sb, err := a.Get(ctx, id)
			if err != nil {
				return err
			}
			if asJSON {
				return a.printed(sb)
			}
			a.showSandbox(sb)
			if sb.EndedAt == "" {
				if m, err := a.Metrics(ctx, id); err == nil {
					a.facts([][2]string{
						{"uses", fmt.Sprintf("%s of memory (at most %s), %s on disk, %.1f s of cpu", bytesText(m.MemoryBytes), bytesText(m.MemoryPeak), bytesText(m.DiskBytes), m.CPUSeconds)},
						{"runs", counted(m.RunningExecs, "command")},
					})
				}
			}
			return nil
		}),
	}
}

// facts prints names and what they are.
func (env *Env) facts(rows [][2]string) {
	w := tabwriter.NewWriter(env.Stdout, 12, 0, 2, ' ', 0)
	for _, r := range rows {
		if r[1] != "" {
			fmt.Fprintf(w, "%s\t%s\n", r[0], shownName(r[1]))
		}
	}
	w.Flush()
}

func (env *Env) showSandbox(sb api.Sandbox) {
	template := sb.Template
	if sb.TemplateResolved != "" && sb.TemplateResolved != sb.Template {
		template += " (" + sb.TemplateResolved + ")"
	}
	l := sb.Limits
	idle := "never ended for being idle"
	if sb.IdleTimeoutSeconds > 0 && !sb.Persistent {
		idle = timeText(sb.IdleTimeoutSeconds)
	}
	env.facts([][2]string{
		{"sandbox", sb.SandboxID}, {"state", stateText(sb)}, {"run", sb.RunID}, {"session", sb.Session}, {"tags", tagText(sb.Tags)},
		{"template", template}, {"isolation", sb.Isolation + " (" + sb.Boundary + ")"}, {"weakened", strings.Join(sb.HostFactsWeakening, "; ")},
		{"limits", fmt.Sprintf("%s a command, %s memory, %s cpus, %s tasks, %s disk", capText(l.TimeoutSeconds, timeText(l.TimeoutSeconds)),
			bytesText(l.MemoryBytes), capText(l.CPUs, fmt.Sprint(l.CPUs)), capText(float64(l.Pids), fmt.Sprint(l.Pids)), bytesText(l.DiskBytes))},
		{"created", sb.CreatedAt}, {"expires", sb.ExpiresAt}, {"ended", sb.EndedAt}, {"idle time", idle},
	})
}

func capText(n float64, s string) string {
	if n < 0 {
		return unlimited
	}
	return s
}

func (env *Env) showReport(r api.Report) {
	env.showSandbox(r.Sandbox)
	env.facts([][2]string{
		{"ending", r.Ending}, {"caps hit", strings.Join(r.CapsHit, " ")},
		{"used", fmt.Sprintf("%.1f s of cpu, %s of memory, %s on disk, %d tasks at most", r.Usage.CPUSeconds, bytesText(r.Usage.MemoryPeakBytes), bytesText(r.Usage.DiskPeakBytes), r.Usage.PidsPeak)},
		{"events", fmt.Sprintf("%d, seq %d to %d", r.Events, r.FirstSeq, r.LastSeq)}, {"hosts", strings.Join(r.Hosts, " ")},
	})
	if len(r.Commands) > 0 {
		fmt.Fprintln(env.Stdout)
		t := newTable(env.Stdout, "COMMAND", "STATE", "STARTED", "ACTOR", "WHAT")
		for _, x := range r.Commands {
			t.row(short(x.ExecID), execState(x), x.StartedAt, x.Actor, commandText(x.Args))
		}
		t.end()
	}
	for _, l := range []struct {
		name  string
		files []api.FileMoved
	}{{"FILE IN", r.FilesIn}, {"FILE OUT", r.FilesOut}} {
		if len(l.files) > 0 {
			fmt.Fprintln(env.Stdout)
			t := newTable(env.Stdout, l.name, "BYTES", "SHA256", "ACTOR", "TIME")
			for _, f := range l.files {
				t.row(f.Path, f.Bytes, short(f.SHA256), f.Actor, f.Time)
			}
			t.end()
		}
	}
	if len(r.Denied) > 0 {
		fmt.Fprintln(env.Stdout)
		t := newTable(env.Stdout, "DENIED", "TARGET", "RULE", "REASON")
		for _, d := range r.Denied {
			t.row(d.Kind, d.Target, d.Rule, d.Reason)
		}
		t.end()
	}
	if r.Truncated {
		env.note("the lists were cut at their bound; the events have all of it: berm events --sandbox %s", r.Sandbox.SandboxID)
	}
}
