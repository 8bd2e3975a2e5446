package cli

import (
	"context"
	"fmt"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/client"
)

func lsVerb() verb {
	f := client.Filter{Tags: map[string]string{}}
	var asJSON, quiet bool
	fs := flags{
		{name: "all", short: "a", help: "those too that have ended (kept for a day)", set: toggle(&f.Ended)},
		{name: "tag", value: "K=V", help: "only with this label (repeat)", set: pairs(f.Tags, "as in --tag job=42")},
		{name: "state", value: "STATE", help: "only in this state: running, paused, ended, ...", set: text(&f.State)},
		{name: "session", value: "NAME", help: "only of this session", set: text(&f.Session)},
		{name: "quiet", short: "q", help: "print ids only", set: toggle(&quiet)},
		{name: "json", help: "print one JSON array", set: toggle(&asJSON)},
	}
	return verb{
		name: "ls", summary: "list the sandboxes of your token's tenant", usage: "[FLAG...]", flags: func() flags { return fs },
		about: "Wherever an id is asked for, so much of it is enough as no other id starts with.",
		run: ask("ls", fs, 0, 0, func(ctx context.Context, a *asker, _ []string) error {
			list, err := a.Sandboxes(ctx, f)
			if err != nil {
				return err
			}
			switch {
			case asJSON:
				return a.printed(nonNil(list))
			case quiet:
				for _, sb := range list {
					fmt.Fprintln(a.Stdout, shownName(sb.SandboxID))
				}
				return nil
			}
			t := newTable(a.Stdout, "SANDBOX", "STATE", "TEMPLATE", "ISOLATION", "AGE", "LEFT", "TAGS")
			for _, sb := range list {
				left := until(sb.ExpiresAt)
				if sb.EndedAt != "" {
					left = ""
				}
				t.row(short(sb.SandboxID), stateText(sb), sb.Template, sb.Isolation, since(sb.CreatedAt), left, tagText(sb.Tags))
			}
			t.end()
			return nil
		}),
	}
}

// nonNil is list, as an empty array if it is nothing.
func nonNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

func psVerb() verb {
	var asJSON, quiet, all bool
	fs := flags{
		{name: "all", short: "a", help: "those too that have ended", set: toggle(&all)},
		{name: "quiet", short: "q", help: "print ids only", set: toggle(&quiet)},
		{name: "json", help: "print one JSON array", set: toggle(&asJSON)},
	}
	return verb{
		name: "ps", summary: "list the commands of a sandbox, or of all of your token's tenant", usage: "[FLAG...] [SANDBOX]", flags: func() flags { return fs },
		run: ask("ps", fs, 0, 1, func(ctx context.Context, a *asker, args []string) (err error) {
			id := ""
			if len(args) > 0 {
				if id, err = a.sandbox(ctx, args[0]); err != nil {
					return err
				}
			}
			list, err := a.execs(ctx, id)
			if err != nil {
				return err
			}
			shown := []api.Exec{}
			for _, x := range list {
				if all || x.State != api.ExecEnded {
					shown = append(shown, x)
				}
			}
			if asJSON {
				return a.printed(shown)
			}
			var t *table
			if !quiet {
				t = newTable(a.Stdout, "COMMAND", "SANDBOX", "STATE", "AGE", "OUTPUT", "WHAT")
				defer t.end()
			}
			for _, x := range shown {
				if quiet {
					fmt.Fprintln(a.Stdout, shownName(x.ExecID))
					continue
				}
				t.row(short(x.ExecID), short(x.SandboxID), execState(x), since(x.StartedAt), bytesText(x.OutputBytes), commandText(x.Args))
			}
			return nil
		}),
	}
}

// execState is the state of a command, with how it ended.
func execState(x api.Exec) string {
	switch {
	case x.Result != nil && x.Result.Ending == api.EndExit:
		return fmt.Sprintf("exit %d", x.Result.ExitCode)
	case x.Result != nil:
		return x.State + " (" + x.Result.Ending + ")"
	case x.Detached:
		return x.State + ", detached"
	}
	return x.State
}
