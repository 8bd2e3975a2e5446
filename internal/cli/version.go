package cli

import (
	"context"
	"fmt"
)

func versionVerb() verb {
	var asJSON bool
	fs := flags{{name: "json", help: "print one JSON object", set: toggle(&asJSON)}}
	return verb{
		name: "version", own: true, summary: "print the version", usage: "[--json]",
		flags: func() flags { return fs },
		run: func(_ context.Context, env *Env, args []string) int {
			rest, _, err := append(fs, globalFlags(env)...).parse(args)
			if err == nil && len(rest) > 0 {
				err = &fault{"version", "takes no arguments", "berm version"}
			}
			if err != nil {
				return env.fail(err)
			}
			v := env.Version
			if asJSON {
				return env.print(v)
			}
			fmt.Fprintf(env.Stdout, "berm %s", v.Version)
			if v.Commit != "" {
				fmt.Fprintf(env.Stdout, " (%s)", v.Commit)
			}
			fmt.Fprintf(env.Stdout, " %s %s/%s\n", v.Go, v.OS, v.Arch)
			return exitOK
		},
	}
}
