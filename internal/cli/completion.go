package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
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
		return []string{"--state"}
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
var values = map[string]string{"isolation": "auto gvisor", "lang": strings.Join(langNames(), " ")}

func bash(w io.Writer) {
	fmt.Fprintf(w, `_berm() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} verb= w
  for w in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do case $w in -*) ;; *) verb=$w; break ;; esac; done
  case $prev in
`)
	for _, k := range []string{"isolation", "lang"} {
		fmt.Fprintf(w, "    --%s) COMPREPLY=($(compgen -W '%s' -- \"$cur\")); return ;;\n", k, values[k])
	}
	fmt.Fprintf(w, "    help) COMPREPLY=($(compgen -W '%s' -- \"$cur\")); return ;;\n", strings.Join(names(verbs()), " "))
	fmt.Fprintf(w, "    completion) COMPREPLY=($(compgen -W 'bash zsh fish' -- \"$cur\")); return ;;\n  esac\n  case $verb in\n")
	fmt.Fprintf(w, "    '') COMPREPLY=($(compgen -W '%s --state' -- \"$cur\")); return ;;\n", strings.Join(names(verbs()), " "))
	for _, v := range verbs() {
		fmt.Fprintf(w, "    %s) [[ $cur == -* ]] && COMPREPLY=($(compgen -W '%s' -- \"$cur\")) && return ;;\n", v.name, strings.Join(v.options(), " "))
	}
	fmt.Fprint(w, "  esac\n  COMPREPLY=($(compgen -f -- \"$cur\"))\n}\ncomplete -o filenames -F _berm berm\n")
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
			if words, ok := values[f.name]; ok {
				fmt.Fprintf(w, " -f -a %s", quote(words))
			}
			fmt.Fprintf(w, " -d %s\n", quote(f.help))
		}
	}
}
