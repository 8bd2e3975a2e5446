package cli

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

func helpVerb() verb {
	return verb{
		name: "help", summary: "explain berm, one verb, or policy", usage: "[VERB [VERB] | policy]",
		run: func(_ context.Context, env *Env, args []string) int { return help(env, env.Stdout, args) },
	}
}

// help writes the overview, or the page of one verb.
func help(env *Env, w io.Writer, args []string) int {
	if len(args) == 0 {
		fmt.Fprint(w, "berm runs code that nobody reviewed in a sandbox that is gone afterwards.\n\n")
		listVerbs(w, verbs())
		fmt.Fprint(w, "\nberm help VERB explains one. Before or after the verb: --state DIR, --url URL,\n--token-file FILE. All ask a daemon, but diff, apply, serve, bench and attack; run,\ntemplate and doctor do without one too.\nberm help policy says what a sandbox may reach: nothing, until you name it.\n\n"+
			"  berm run script.py\n  berm run -- sh -c 'uname -a'\n  berm run --json --code 'print(6*7)' --lang python\n  berm serve\n  berm exec $(berm create) -- uname -a\n")
		return exitOK
	}
	if page, ok := topics[args[0]]; ok && len(args) == 1 {
		fmt.Fprint(w, page)
		return exitOK
	}
	of, vs := "berm", verbs()
	var v verb
	for i, a := range args {
		sub, ok := findIn(vs, a)
		if !ok {
			f := fault{a, "is not a verb of " + of + ", so there is no help for it", "berm help" + strings.TrimPrefix(of, "berm")}
			if near := nearest(a, append(names(vs), slices.Sorted(maps.Keys(topics))...)); near != "" {
				f.try = "berm help" + strings.TrimPrefix(of, "berm") + " " + near
			}
			return env.fail(&f)
		}
		if v, vs = sub, sub.subs; i < len(args)-1 && vs == nil {
			break // what follows is the verb's own
		}
		if vs != nil {
			of += " " + a
		}
	}
	name := strings.TrimSuffix(of, " "+v.name) + " " + v.name
	fmt.Fprintf(w, "%s: %s\n\nusage: %s %s\n", name, v.summary, name, v.usage)
	if v.subs != nil {
		fmt.Fprintln(w)
		listVerbs(w, v.subs)
	}
	if v.flags != nil {
		fmt.Fprintln(w)
		general := globalFlags(env)
		if v.own {
			general = general[:1] // --state
		}
		for _, f := range append(v.flags(), general...) {
			writeFlag(w, f)
		}
	}
	if v.about != "" {
		fmt.Fprintf(w, "\n%s\n", strings.TrimSpace(v.about))
	}
	return exitOK
}

func listVerbs(w io.Writer, vs []verb) {
	for _, v := range vs {
		fmt.Fprintf(w, "  %-11s %s\n", v.name, v.summary)
	}
}

func writeFlag(w io.Writer, f flag) {
	left := "  --" + f.name
	if f.short != "" {
		left = "  -" + f.short + ", --" + f.name
	}
	if f.value != "" {
		left += " " + f.value
	}
	if f.maybe != "" {
		left += "[=" + f.maybe + "]"
	}
	if len(left) > 28 {
		fmt.Fprintf(w, "%s\n%-30s%s\n", left, "", f.help)
		return
	}
	fmt.Fprintf(w, "%-30s%s\n", left, f.help)
}
