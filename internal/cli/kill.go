package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/client"
)

const killAbout = `
Ends sandboxes with all that is in them, and prints the id of each that ended.
The id of a command ends that command with all that it started; with --signal it
gets that signal instead, and its group with it.

All are those of the tenant of your token, here and in ls and top. For those of
another, the admin of this host makes a token (berm token create --tenant NAME
--role operator) and passes it with --token-file.

  berm kill $SB
  berm kill --tag job=42
  berm kill --signal INT $X
`

func killVerb() verb {
	f := client.Filter{Tags: map[string]string{}}
	var all, quiet bool
	var signal string
	fs := flags{
		{name: "all", help: "every sandbox of the token's tenant", set: toggle(&all)},
		{name: "tag", value: "K=V", help: "every one of them with this label (repeat)", set: pairs(f.Tags, "as in --tag job=42")},
		{name: "signal", short: "s", value: "SIG", help: "only send this signal (commands only), as TERM or 15", set: text(&signal)},
		{name: "quiet", short: "q", help: "print nothing", set: toggle(&quiet)},
	}
	return verb{
		name: "kill", summary: "end sandboxes, or commands in them", usage: "[FLAG...] SANDBOX|COMMAND-ID... | --all | --tag K=V",
		flags: func() flags { return fs }, about: killAbout,
		run: ask("kill", fs, 0, -1, func(ctx context.Context, a *asker, args []string) error {
			many := all || len(f.Tags) > 0
			switch {
			case many && len(args) > 0:
				return &fault{"kill", "--all and --tag say which; no ids beside them", "berm kill " + shellLine(args)}
			case !many && len(args) == 0:
				return &fault{"kill", "no sandbox is named", "berm ls"}
			case many && signal != "":
				return &fault{"--signal", "goes to commands, by their ids", "berm ps"}
			}
			if many {
				list, err := a.Sandboxes(ctx, f)
				if err != nil {
					return err
				}
				for _, sb := range list {
					args = append(args, sb.SandboxID)
				}
			}
			failed := false
			for _, arg := range args {
				id, err := a.kill(ctx, arg, signal)
				var ae *api.Error
				if many && errors.As(err, &ae) && (ae.Code == api.CodeSandboxNotFound || ae.Code == api.CodeSandboxEnded) {
					continue
				}
				if err != nil {
					a.explain(err)
					failed = true
				} else if !quiet {
					fmt.Fprintln(a.Stdout, shownName(id))
				}
			}
			if failed {
				return exitCode(exitRefused)
			}
			return nil
		}),
	}
}

// kill ends one thing, or sends it a signal.
func (a *asker) kill(ctx context.Context, arg, signal string) (string, error) {
	if execLike(arg) {
		id, exec, err := a.exec(ctx, "", arg)
		if err != nil {
			return "", err
		}
		if signal != "" {
			return exec, a.Signal(ctx, id, exec, signal)
		}
		return exec, a.KillExec(ctx, id, exec)
	}
	if signal != "" {
		return "", &fault{shellLine([]string{arg}), "is not the id of a command, and only those get signals", "berm ps"}
	}
	id, err := a.sandbox(ctx, arg)
	if err != nil {
		return "", err
	}
	_, err = a.Delete(ctx, id)
	return id, err
}

func pauseVerb() verb {
	return eachVerb("pause", "stop everything in a sandbox until it is resumed",
		"Nothing in it runs, but its time goes on: ttl and timeouts hold.", (*client.Client).Pause)
}

func resumeVerb() verb {
	return eachVerb("resume", "let a paused sandbox go on", "", (*client.Client).Resume)
}

// eachVerb does one thing to each sandbox that is named.
func eachVerb(name, summary, about string, do func(*client.Client, context.Context, string) error) verb {
	return verb{
		name: name, summary: summary, usage: "SANDBOX...", flags: func() flags { return nil }, about: about,
		run: ask(name, nil, 1, -1, func(ctx context.Context, a *asker, args []string) error {
			failed := false
			for _, arg := range args {
				id, err := a.sandbox(ctx, arg)
				if err == nil {
					err = do(a.Client, ctx, id)
				}
				if err != nil {
					a.explain(err)
					failed = true
				}
			}
			if failed {
				return exitCode(exitRefused)
			}
			return nil
		}),
	}
}
