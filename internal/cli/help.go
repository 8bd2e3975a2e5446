package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
)

func helpVerb() verb {
	return verb{
		name: "help", summary: "explain berm or one verb", usage: "[VERB]",
		run: func(_ context.Context, env *Env, args []string) int { return help(env, env.Stdout, args) },
	}
}

// help writes the overview, or the page of one verb.
func help(env *Env, w io.Writer, args []string) int {
	if len(args) == 0 {
		fmt.Fprint(w, "berm runs code that nobody reviewed in a sandbox that is gone afterwards.\n\n")
		for _, v := range verbs() {
			fmt.Fprintf(w, "  %-11s %s\n", v.name, v.summary)
		}
		fmt.Fprint(w, "\nberm help VERB explains one. Before or after the verb: --state DIR.\n\n"+
			"  berm run script.py\n  berm run -- sh -c 'uname -a'\n  berm run --json --code 'print(6*7)' --lang python\n")
		return exitOK
	}
	v, ok := find(args[0])
	if !ok {
		f := fault{args[0], "is not a verb of berm, so there is no help for it", "berm help"}
		if near := nearest(args[0], names(verbs())); near != "" {
			f.try = "berm help " + near
		}
		return env.fail(&f)
	}
	fmt.Fprintf(w, "berm %s: %s\n\nusage: berm %s %s\n", v.name, v.summary, v.name, v.usage)
	if v.flags != nil {
		fmt.Fprintln(w)
		for _, f := range append(v.flags(), globalFlags(env)...) {
			writeFlag(w, f)
		}
	}
	if v.about != "" {
		fmt.Fprintf(w, "\n%s\n", strings.TrimSpace(v.about))
	}
	return exitOK
}

func writeFlag(w io.Writer, f flag) {
	left := "  --" + f.name
	if f.short != "" {
		left = "  -" + f.short + ", --" + f.name
	}
	if f.value != "" {
		left += " " + f.value
	}
	if len(left) > 28 {
		fmt.Fprintf(w, "%s\n%-30s%s\n", left, "", f.help)
		return
	}
	fmt.Fprintf(w, "%-30s%s\n", left, f.help)
}
