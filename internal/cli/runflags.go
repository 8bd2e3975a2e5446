package cli

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/client"
)

// runOptions are what the flags of run say.
type runOptions struct {
	template, isolation string
	limits              api.Limits
	env, tags           map[string]string
	in                  []copyIn
	out                 []client.Out
	outLimit            int64
	stdin, tty, json    bool
	noDaemon            bool
	code, lang          string
	include, exclude    []string
	wire                wireOptions
	presets             string // file
	templateMax         int64
	hasCode             bool
	user                string
	entrypoint          string
	hasEntrypoint       bool
	here                hereOptions
}

const defaultOutLimit = 1 << 30

func (o *runOptions) flags() flags {
	o.env, o.tags, o.outLimit = map[string]string{}, map[string]string{}, defaultOutLimit
	return slices.Concat(flags{
		{name: "code", value: "STRING", help: "run this code instead of a file (needs --lang)", set: func(s string) error {
			o.code, o.hasCode = s, true
			return nil
		}},
		{name: "lang", value: "NAME", help: "language of the code or file: " + strings.Join(langNames(), ", "), set: text(&o.lang)},
		{name: "template", value: "NAME|IMAGE|DIR|TAR", help: "what the sandbox starts from (default: host, made from this host's own tools); an IMAGE:TAG that is not kept is pulled", set: text(&o.template)},
		{name: "template-include", value: "PATH", help: "a host path that the host template takes too, whole (repeat)", set: more(&o.include)},
		{name: "template-exclude", value: "PATH", help: "a path that the template leaves out, with all below (repeat)", set: more(&o.exclude)},
		{name: "template-max", value: "SIZE", help: "how large the template's image may be (default: 2g for host)", set: size(&o.templateMax, false)},
		{name: "entrypoint", value: "COMMAND", help: "instead of what the template says goes before a command; '' for nothing", set: func(s string) error {
			o.entrypoint, o.hasEntrypoint = s, true
			return nil
		}},
		{name: "user", short: "u", value: "NAME", help: "whom the program runs as: agent, or root where the template grants it (default: as the template says)", set: text(&o.user)},
		{name: "isolation", value: "KIND", help: "auto or gvisor (default: auto)", set: text(&o.isolation)},
	}, limitFlags(&o.limits, "the program"), o.here.flags(), o.wire.flags(), flags{
		{name: "presets", value: "FILE", help: "what presets stand for, instead of what this host's own clients say; see berm help policy", set: text(&o.presets)},
		{name: "env", value: "K=V", help: "set a variable inside; nothing of your own environment goes in (repeat)", set: setEnv(o.env)},
		{name: "in", value: "LOCAL[:PATH]", help: "copy a file or folder in, below /workspace unless PATH is absolute; see Files in (repeat)", set: func(s string) error {
			c, err := parseIn(s)
			o.in = append(o.in, c)
			return err
		}},
		{name: "out", value: "PATH-OR-GLOB[:LOCAL]", help: "bring files back when it ended, to LOCAL or here; see Files out (repeat)", set: func(s string) error {
			out, err := parseOut(s)
			o.out = append(o.out, out)
			return err
		}},
		{name: "out-limit", value: "SIZE", help: "bytes that may come back in all (default: 1g)", set: size(&o.outLimit, false)},
		{name: "stdin", help: "connect your standard input to the program (default: it reads nothing)", set: toggle(&o.stdin)},
		{name: "tty", short: "t", help: "give the program a terminal, yours", set: toggle(&o.tty)},
		{name: "tag", value: "K=V", help: "a label on the run and in its report (repeat)", set: func(s string) error {
			if k, _, _ := strings.Cut(s, "="); !utf8.ValidString(s) {
				return &fault{"--tag " + k, notUTF8, "--tag with text, or with its base64"}
			}
			return pairs(o.tags, "as in --tag session=s1")(s)
		}},
		{name: "no-daemon", help: "do not use a daemon, although one is running", set: toggle(&o.noDaemon)},
		{name: "json", help: "print one JSON object instead of the output", set: toggle(&o.json)},
	})
}

const notUTF8 = "holds bytes that are not UTF-8"

// notText refuses bytes that would not arrive as they are.
func notText(what string) error {
	return &fault{what, notUTF8, "pass them in a file with --in, or with --stdin"}
}

// legible refuses a command or arguments that are not text; an argument is
// counted as the program counts its own.
func (o *runOptions) legible(rest []string) error {
	for i, a := range rest {
		switch {
		case utf8.ValidString(a):
		case o.hasCode:
			return notText(fmt.Sprintf("argument %d", i+1))
		case i > 0:
			return notText(fmt.Sprintf("argument %d", i))
		default:
			return &fault{"the name of what is to run", notUTF8, "give it another name"}
		}
	}
	return nil
}

// withUnit refuses a small bare number: nobody means that many bytes.
func withUnit(name string, set func(string) error) func(string) error {
	return func(s string) error {
		if n, err := strconv.Atoi(s); err == nil && n > 0 && n < 1<<20 {
			return &fault{"--" + name + " " + s, "has no unit and would be bytes", "--" + name + " " + s + "m"}
		}
		return set(s)
	}
}

// more collects a flag that may be given again.
func more(p *[]string) func(string) error {
	return func(s string) error {
		if s == "" {
			return errEmpty
		}
		*p = append(*p, s)
		return nil
	}
}

func setEnv(m map[string]string) func(string) error {
	set := pairs(m, "")
	return func(s string) error {
		if s != "" && !strings.Contains(s, "=") {
			return &fault{"--env " + s, "is not K=V, and nothing is copied from your environment by name alone", "--env " + s + `="$` + s + `"`}
		}
		if strings.ContainsRune(s, 0) {
			return errors.New("holds a zero byte")
		}
		if k, _, _ := strings.Cut(s, "="); !utf8.ValidString(s) {
			return notText("--env " + k)
		}
		if err := set(s); err != nil {
			return errors.New("is not K=V")
		}
		return nil
	}
}

// parseOut reads PATH-OR-GLOB[:LOCAL], and tries whether files may come there.
func parseOut(s string) (client.Out, error) {
	o := client.Out{Pattern: s}
	if i := strings.LastIndexByte(s, ':'); i >= 0 {
		o.Pattern, o.Local = s[:i], s[i+1:]
		if o.Local == "" {
			return o, errors.New("is not PATH-OR-GLOB[:LOCAL]")
		}
	}
	if o.Pattern == "" || strings.ContainsRune(s, 0) {
		return o, errors.New("is not PATH-OR-GLOB[:LOCAL]")
	}
	if !utf8.ValidString(o.Pattern) {
		return o, &fault{"--out", notUTF8, "write ? for each of them"}
	}
	var r *client.Refusal
	if err := o.Check(); errors.As(err, &r) {
		return o, &fault{"--out " + shellLine([]string{s}), r.Reason, r.Fix}
	} else if err != nil {
		return o, err
	}
	return o, nil
}
