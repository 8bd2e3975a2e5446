package cli

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/bermhq/berm/attack"
	"github.com/bermhq/berm/attack/report"
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

// everywhere are the flags of all verbs.
var everywhere = []string{"--state", "--url", "--token-file", "--help"}

// options lists the flags of a verb as words.
func (v verb) options() (out []string) {
	if v.flags == nil {
		return everywhere
	}
	for _, f := range v.flags() {
		out = append(out, "--"+f.name)
		if f.short != "" {
			out = append(out, "-"+f.short)
		}
	}
	if v.own {
		return append(out, "--state", "--help")
	}
	return append(out, everywhere...)
}

// values lists the words that a flag takes, where there are few.
var values = map[string]string{
	"isolation": "auto gvisor", "min-isolation": "gvisor microvm", "lang": strings.Join(langNames(), " "), "only": strings.Join(append(slices.Clone(attack.Families), "benign"), " "), "format": "table " + strings.Join(report.Forms, " "),
	"role": "agent operator admin", "sort": "cpu memory age name", "stream": "stdout stderr both", "signal": "TERM INT HUP KILL USR1 USR2",
}

// words lists what may follow a verb, where there is little.
var words = map[string]string{"completion": "bash zsh fish", "bench": "run exec files", "attack": "verify render"}

// named says what the arguments of a verb name: sandboxes, commands, both, or
// sandboxes and files.
var named = map[string]string{
	"info": "ls -qa", "exec": "ls -q", "shell": "ls -q", "ps": "ls -q", "attach": "ps -q", "logs": "ls -qa", "kill": "ls -q", "pause": "ls -q",
	"resume": "ls -q", "ttl": "ls -q", "egress": "ls -q", "tag": "ls -q", "port": "ls -q", "cp": "ls -q", "fs": "ls -q", "report": "ls -qa",
}

// withFiles are verbs whose arguments may be files of this host.
var withFiles = []string{"run", "cp", "verify", "render", "diff", "apply"}

// bash writes a function that finds the verb, past flags and their values, and
// offers what may stand at the cursor: verbs and flags from a table, ids from the
// daemon if there is one. Names with spaces stay whole because compgen's lines
// are not split at spaces.
func bash(w io.Writer) {
	fmt.Fprint(w, `_berm() {
  local IFS=$'\n' cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} verb= sub= skip= w
  local -a at=()
  for w in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    if [[ $skip ]]; then [[ $skip == = ]] || at+=("$skip" "$w"); skip=; continue; fi
    case $w in
      --state|--url|--token-file) skip=$w ;;
      =|-*) ;;
      *) if [[ ! $verb ]]; then verb=$w; elif [[ ! $sub ]]; then sub=$w; fi ;;
    esac
  done
  _berm_words() { COMPREPLY=($(compgen -W "${1// /$'\n'}" -- "$cur")); }
  _berm_files() { compopt -o filenames 2>/dev/null; COMPREPLY+=($(compgen -f -- "$cur")); }
  _berm_ids() { COMPREPLY+=($(compgen -W "$(timeout 2 "${COMP_WORDS[0]}" "${at[@]}" "$1" "$2" 2>/dev/null)" -S "$3" -- "$cur")); }
  if [[ $prev == --state ]]; then compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -d -- "$cur")); return; fi
  if [[ $prev == --token-file || $prev == --config || $prev == --policy || $prev == --presets || $prev == --head || $prev == --tls-* ]]; then _berm_files; return; fi
  case $verb in
`)
	fmt.Fprintf(w, "    '') _berm_words '%s --version'; return ;;\n    help) _berm_words '%s'; return ;;\n",
		strings.Join(append(names(verbs()), everywhere[:3]...), " "), strings.Join(append(names(verbs()), slices.Sorted(maps.Keys(topics))...), " "))
	for _, v := range verbs() {
		if v.name == "help" {
			continue
		}
		fmt.Fprintf(w, "    %s)\n", v.name)
		if v.subs == nil {
			bashVerb(w, v, "")
			continue
		}
		fmt.Fprint(w, "      case $sub in\n")
		if v.run == nil {
			fmt.Fprintf(w, "      '') _berm_words '%s --help'; return ;;\n", strings.Join(names(v.subs), " "))
		}
		for _, s := range v.subs {
			fmt.Fprintf(w, "      %s)\n", s.name)
			bashVerb(w, s, v.name)
		}
		if v.run != nil {
			fmt.Fprint(w, "      *)\n")
			bashVerb(w, v, "")
		}
		fmt.Fprint(w, "      esac\n      return ;;\n")
	}
	fmt.Fprint(w, `  esac
  _berm_files
}
complete -F _berm berm
`)
}

// bashVerb offers what may follow a verb, which is one of a group or not.
func bashVerb(w io.Writer, v verb, group string) {
	if v.flags != nil {
		var cases []string
		for _, f := range v.flags() {
			if list, ok := values[f.name]; ok && f.value != "" {
				cases = append(cases, fmt.Sprintf("--%s) _berm_words '%s'; return ;;", f.name, list))
			}
		}
		if len(cases) > 0 {
			fmt.Fprintf(w, "      case $prev in %s esac\n", strings.Join(cases, " "))
		}
	}
	fmt.Fprintf(w, "      if [[ $cur == -* ]]; then _berm_words '%s'; return; fi\n", strings.Join(v.options(), " "))
	ids, ok := named[v.name]
	if group == "fs" {
		ids, ok = named[group], true
	} else if group != "" && v.name != "report" {
		ok = false
	}
	if ok {
		colon := ""
		if group == "fs" || v.name == "cp" {
			colon = ":"
			fmt.Fprint(w, "      compopt -o nospace 2>/dev/null\n")
		}
		verb, flag, _ := strings.Cut(ids, " ")
		fmt.Fprintf(w, "      _berm_ids %s %s '%s'\n", verb, flag, colon)
		if v.name == "kill" {
			fmt.Fprint(w, "      if [[ $cur == x* ]]; then _berm_ids ps -q ''; fi\n")
		}
	}
	if slices.Contains(withFiles, v.name) {
		fmt.Fprint(w, "      _berm_files; return ;;\n")
		return
	}
	if ok {
		fmt.Fprint(w, "      return ;;\n")
		return
	}
	fmt.Fprintf(w, "      _berm_words '%s'; return ;;\n", words[v.name])
}

func zsh(w io.Writer) {
	fmt.Fprint(w, "autoload -U +X bashcompinit && bashcompinit\n")
	bash(w)
}

func fish(w io.Writer) {
	fmt.Fprint(w, "complete -c berm -n __fish_use_subcommand -f\n")
	for _, v := range verbs() {
		fmt.Fprintf(w, "complete -c berm -n __fish_use_subcommand -a %s -d %s\n", v.name, fishQuote(v.summary))
		if list, ok := words[v.name]; ok {
			fmt.Fprintf(w, "complete -c berm -n '__fish_seen_subcommand_from %s' -f -a %s\n", v.name, fishQuote(list))
		}
		if ids, ok := named[v.name]; ok {
			fmt.Fprintf(w, "complete -c berm -n '__fish_seen_subcommand_from %s' -a '(berm %s 2>/dev/null)'\n", v.name, ids)
		}
		fishFlags(w, v, "__fish_seen_subcommand_from "+v.name)
		for _, s := range v.subs {
			fmt.Fprintf(w, "complete -c berm -n '__fish_seen_subcommand_from %s; and not __fish_seen_subcommand_from %s' -f -a %s -d %s\n",
				v.name, strings.Join(names(v.subs), " "), s.name, fishQuote(s.summary))
			fishFlags(w, s, "__fish_seen_subcommand_from "+v.name+"; and __fish_seen_subcommand_from "+s.name)
		}
	}
}

func fishQuote(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(s) + "'"
}

func fishFlags(w io.Writer, v verb, when string) {
	if v.flags == nil {
		return
	}
	for _, f := range v.flags() {
		fmt.Fprintf(w, "complete -c berm -n %s -l %s", fishQuote(when), f.name)
		if f.short != "" {
			fmt.Fprintf(w, " -s %s", f.short)
		}
		if f.value != "" {
			fmt.Fprint(w, " -r")
			if list, ok := values[f.name]; ok {
				fmt.Fprintf(w, " -f -a %s", fishQuote(list))
			}
		}
		fmt.Fprintf(w, " -d %s\n", fishQuote(f.help))
	}
}
