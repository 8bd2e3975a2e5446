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

const runAbout = `
What it does
  A fresh sandbox with its own user-space kernel starts, the program runs in it
  as user agent in /workspace, its output comes out live, and everything is
  gone. Inside there is nothing of yours but what you pass: no environment, no
  files, no network, no keys. Flags stop at FILE or at --; what follows belongs
  to the program.

Examples
  berm run script.py 1 2 3                  a file, by its extension or #! line
  berm run -- sh -c 'ls -la /'              a command of the template
  berm run --lang python --code 'print(1)'  code as an argument
  curl -s URL | berm run --lang bash -      code from standard input
  berm run --in data.csv --out 'plots/*.svg:pics' plot.py
                                            data.csv goes to /workspace, the
                                            pictures come back to ./pics
  berm run --stdin -- wc -l < words.txt     standard input, when you say so
  berm run -t -- bash                       a terminal in a sandbox
  berm run --timeout 2m --memory 2g --cpus 2 train.py
  berm run --json -- python3 -c 'print(6*7)'

Limits
  Sizes are bytes or 512k, 512m, 2g; times 30s, 2m. Timeout, memory, cpus and
  pids may be "unlimited": you then accept that nothing holds that cap. A host
  that cannot hold a cap refuses the run and says what to do.

Exit code
  the program's own; 128+n when signal n ended it; 124 when its time was up;
  137 when memory ended it or it was killed (Ctrl-C too); 123 when another cap
  ended it; 126, 127 when the command could not be executed or was not found;
  125 when berm could not run it or refused to, and nothing was executed.

What comes back
  Only regular files, only below the folder you name, never through a symlink,
  never setuid. What was refused is said on stderr, and in "denied" with --json;
  the exit code stays the program's.
  Without -t, control sequences in the output are shown and not obeyed when
  your output is a terminal.
`
