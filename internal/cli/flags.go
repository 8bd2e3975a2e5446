package cli

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/bermhq/berm/api"
)

// A flag is one option of a verb.
type flag struct {
	name  string // without dashes
	short string // one letter, or ""
	value string // what its value is called; "" for a switch
	maybe string // of a switch that may have a value: what it is called; set gets "" without one
	help  string
	set   func(string) error // a switch is set with "true" or "false"
}

type flags []flag

var errHelp = errors.New("help was asked for")

// parse takes flags from the front of args until the first argument that is
// none, or `--`. A lone `-` is an argument.
func (fs flags) parse(args []string) (rest []string, dashes bool, err error) {
	for len(args) > 0 {
		a := args[0]
		if a == "--" {
			return args[1:], true, nil
		}
		if a == "-" || !strings.HasPrefix(a, "-") {
			return args, false, nil
		}
		args = args[1:]
		if a == "-h" || a == "--help" {
			return nil, false, errHelp
		}
		name, value, has := strings.Cut(strings.TrimLeft(a, "-"), "=")
		i := slices.IndexFunc(fs, func(f flag) bool {
			return strings.HasPrefix(a, "--") && f.name == name ||
				!strings.HasPrefix(a, "--") && f.short != "" && f.short == name
		})
		if letters := fs.letters(a); i < 0 && letters != nil {
			args = append(letters, args...)
			continue
		}
		if i < 0 {
			return nil, false, fs.unknown(a, name)
		}
		f := fs[i]
		shown, _, _ := strings.Cut(a, "=")
		switch {
		case f.maybe != "" && !has:
		case f.maybe != "" && value == "":
			return nil, false, &fault{shown, "has an empty value", shown + "=" + f.maybe}
		case f.maybe != "":
		case f.value == "" && !has:
			value = "true"
		case f.value == "" && value != "true" && value != "false":
			return nil, false, &fault{shown, fmt.Sprintf("is a switch and takes no %q", value), ""}
		case f.value != "" && !has:
			if len(args) == 0 {
				return nil, false, &fault{shown, "needs a value", shown + " " + f.value}
			}
			value, args = args[0], args[1:]
		}
		if err := f.set(value); err != nil {
			var ft *fault
			if errors.As(err, &ft) {
				return nil, false, err
			}
			return nil, false, &fault{fmt.Sprintf("%s %s", shown, shellLine([]string{value})), err.Error(), ""}
		}
	}
	return nil, false, nil
}

// letters takes -it apart, if each letter is a switch.
func (fs flags) letters(a string) (out []string) {
	if len(a) < 3 || a[1] == '-' {
		return nil
	}
	for _, l := range a[1:] {
		if !slices.ContainsFunc(fs, func(f flag) bool { return f.short == string(l) && f.value == "" }) {
			return nil
		}
		out = append(out, "-"+string(l))
	}
	return out
}

// habits are flags of other tools, and what they are called here.
var habits = map[string]string{
	"-i": "--stdin, or -t for a terminal", "--interactive": "--stdin, or -t for a terminal",
	"-it": "-t", "-ti": "-t",
	"-e": "--env K=V", "-v": "--in LOCAL:PATH, and --out PATH:LOCAL to bring files back", "--volume": "--in LOCAL:PATH, and --out PATH:LOCAL to bring files back",
	"--rm": "leave it out: nothing is ever left behind", "-m": "--memory 512m", "-c": "--code STRING --lang NAME",
	"--version": "berm version",
}

// late finds a flag of berm's among the arguments of a program, which gets it.
func (fs flags) late(file string, args []string) *fault {
	for _, a := range args {
		if a == "--" {
			break
		}
		name, _, has := strings.Cut(a, "=")
		i := slices.IndexFunc(fs, func(f flag) bool { return "--"+f.name == name })
		if i < 0 {
			continue
		}
		if fs[i].value != "" && !has {
			a += " " + fs[i].value
		}
		return &fault{name, "stands after " + file + ", so the program got it and berm did not", "berm run " + a + " " + file}
	}
	return nil
}

func (fs flags) unknown(shown, name string) error {
	f := &fault{what: "flag " + strings.SplitN(shown, "=", 2)[0], why: "is not known"} // and to try is the page of the verb
	if slices.ContainsFunc(fs, func(k flag) bool { return k.name == "code" }) {
		f.try = "berm help run"
		if habit, ok := habits[f.what[len("flag "):]]; ok {
			f.try = habit
			return f
		}
	}
	var known []string
	for _, k := range fs {
		known = append(known, k.name)
	}
	if near := nearest(name, known); near != "" {
		f.try = "--" + near
	}
	return f
}

// text, number, size and duration are setters.
func text(p *string) func(string) error {
	return func(s string) error {
		if s == "" {
			return errEmpty
		}
		*p = s
		return nil
	}
}

func toggle(p *bool) func(string) error {
	return func(s string) error { *p = s == "true"; return nil }
}

const unlimited = "unlimited"

func size(p *int64, mayBeUnlimited bool) func(string) error {
	return func(s string) (err error) {
		if s == unlimited {
			if !mayBeUnlimited {
				return errors.New("cannot be unlimited: every host can enforce it")
			}
			*p = api.Unlimited
			return nil
		}
		*p, err = parseSize(s)
		return err
	}
}

// parseSize reads a size that is more than nothing.
func parseSize(s string) (int64, error) {
	n, err := api.ParseSize(s)
	if err == nil && n < 1 {
		err = errors.New("is out of range")
	}
	return n, err
}

// duration is the time of one command, which may be unlimited.
func duration(p *float64) func(string) error {
	set := period("timeout", p)
	return func(s string) error {
		if s == unlimited {
			*p = api.Unlimited
			return nil
		}
		return set(s)
	}
}

func number(p *float64) func(string) error {
	return func(s string) error {
		if s == unlimited {
			*p = api.Unlimited
			return nil
		}
		f, err := strconv.ParseFloat(s, 64)
		if err != nil || f <= 0 || math.IsInf(f, 0) || math.IsNaN(f) {
			return errors.New("is not a number above zero, as in 2 or 0.5")
		}
		*p = f
		return nil
	}
}

func count(p *int64) func(string) error {
	return func(s string) error {
		if s == unlimited {
			*p = api.Unlimited
			return nil
		}
		n, err := strconv.ParseInt(s, 10, 32)
		if err != nil || n < 1 {
			return errors.New("is not a whole number above zero")
		}
		*p = n
		return nil
	}
}

// pairs collects K=V into a map.
func pairs(m map[string]string, hint string) func(string) error {
	return func(s string) error {
		k, v, ok := strings.Cut(s, "=")
		if !ok || k == "" {
			return errors.New("is not K=V; " + hint)
		}
		m[k] = v
		return nil
	}
}
