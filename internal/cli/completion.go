package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/bermhq/berm/attack"
)

func completionVerb() verb {
	return verb{
		name: "completion", summary: "print completion for bash, zsh or fish", usage: "bash|zsh|fish",
		about: "  source <(berm completion bash)\n  source <(berm completion zsh)\n  berm completion fish | source",
		run: func(_ context.Context, env *Env, args []string) int {
			if len(args) != 1 {
				return env.fail(&fault{"completion", "needs the name of one shell", "berm completion bash"})
			}
			write, ok := map[string]func(io.Writer){"bash": bash, "zsh": zsh, "fish": fish}[args[0]]
			if !ok {
				return env.fail(&fault{"completion " + args[0], "is not a shell that berm knows", "berm completion bash"})
			}
			write(env.Stdout)
			return exitOK
		},
	}
}

// options lists the flags of a verb as words.
func (v verb) options() (out []string) {
	if v.flags == nil {
		return []string{"--state", "--help"}
	}
	for _, f := range v.flags() {
		out = append(out, "--"+f.name)
		if f.short != "" {
			out = append(out, "-"+f.short)
		}
	}
	return append(out, "--state", "--help")
}

// values lists the words that a flag takes, where there are few.
var values = map[string]string{
	"isolation": "auto gvisor", "lang": strings.Join(langNames(), " "), "only": strings.Join(attack.Families, " "), "format": "table json",
}

// words lists what may follow a verb, where there is little.
var words = map[string]string{"completion": "bash zsh fish", "bench": "run"}

// bash writes a function that finds the verb, past flags and their values, and
// offers what may stand at the cursor. Files are offered for run only; names
// with spaces stay whole because compgen's lines are not split at spaces.
func bash(w io.Writer) {
	verbWords := strings.Join(names(verbs()), " ")
	fmt.Fprint(w, `_berm() {
  local IFS=$'\n' cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} verb= skip= w
  for w in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    if [[ $skip ]]; then skip=; continue; fi
    case $w in --state) skip=1 ;; =|-*) ;; *) verb=$w; break ;; esac
  done
  _berm_words() { COMPREPLY=($(compgen -W "${1// /$'\n'}" -- "$cur")); }
  if [[ $prev == --state ]]; then compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -d -- "$cur")); return; fi
  case $verb in
`)
	fmt.Fprintf(w, "    '') _berm_words '%s --state --version'; return ;;\n    help) _berm_words '%s'; return ;;\n", verbWords, verbWords)
	for _, v := range verbs() {
		if v.name == "help" {
			continue
		}
		fmt.Fprintf(w, "    %s)\n", v.name)
		if v.flags != nil {
			var cases []string
			for _, f := range v.flags() {
				if list, ok := values[f.name]; ok {
					cases = append(cases, fmt.Sprintf("--%s) _berm_words '%s'; return ;;", f.name, list))
				}
			}
			if len(cases) > 0 {
				fmt.Fprintf(w, "      case $prev in %s esac\n", strings.Join(cases, " "))
			}
		}
		fmt.Fprintf(w, "      if [[ $cur == -* ]]; then _berm_words '%s'; return; fi\n", strings.Join(v.options(), " "))
		if v.name == "run" {
			fmt.Fprint(w, "      ;;\n")
			continue
		}
		fmt.Fprintf(w, "      _berm_words '%s'; return ;;\n", words[v.name])
	}
	fmt.Fprint(w, `  esac
  compopt -o filenames 2>/dev/null
  COMPREPLY=($(compgen -f -- "$cur"))
}
complete -F _berm berm
`)
}

func zsh(w io.Writer) {
	fmt.Fprint(w, "autoload -U +X bashcompinit && bashcompinit\n")
	bash(w)
}

func fish(w io.Writer) {
	fmt.Fprint(w, "complete -c berm -n __fish_use_subcommand -f\n")
	quote := func(s string) string {
		return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(s) + "'"
	}
	for _, v := range verbs() {
		fmt.Fprintf(w, "complete -c berm -n __fish_use_subcommand -a %s -d %s\n", v.name, quote(v.summary))
		if list, ok := words[v.name]; ok {
			fmt.Fprintf(w, "complete -c berm -n '__fish_seen_subcommand_from %s' -f -a %s\n", v.name, quote(list))
		}
		if v.flags == nil {
			continue
		}
		for _, f := range v.flags() {
			fmt.Fprintf(w, "complete -c berm -n '__fish_seen_subcommand_from %s' -l %s", v.name, f.name)
			if f.short != "" {
				fmt.Fprintf(w, " -s %s", f.short)
			}
			if f.value != "" {
				fmt.Fprint(w, " -r")
			}
			if list, ok := values[f.name]; ok {
				fmt.Fprintf(w, " -f -a %s", quote(list))
			}
			fmt.Fprintf(w, " -d %s\n", quote(f.help))
		}
	}
}
