// Package cli is the command line: one file per verb, a table that lists them,
// and nothing below the public API. It is handed its world in an Env, so tests
// and the real binary run the same code.
//
// Its habits: what went wrong is one line that says what and why, then one line
// with what to try; results go to stdout and everything else to stderr; nothing
// from inside a sandbox is obeyed by the user's terminal unless they asked for
// a terminal.
package cli

import (
	"context"
	"os"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/client"
)

// Exit codes of berm itself; see the contract in `berm help run`.
const (
	exitOK       = 0
	exitKilled   = 137
	exitRefused  = 125
	exitUsage    = exitRefused
	exitNotFound = 127
)

// An Env is the world of one command line.
type Env struct {
	Args                  []string // without the program's own name
	Stdin, Stdout, Stderr *os.File

	// Open makes ready what a verb needs and returns a client for it.
	Open func(context.Context, OpenOptions) (*Session, error)
	// Rungs says what this host offers, without building or starting anything.
	// nil: only the names that this version knows are checked.
	Rungs func(context.Context) []api.Rung

	// Runtime returns the program that sandboxes run in, for `berm bench` to
	// compare with. nil: there is none.
	Runtime func(stateDir string) (path string, err error)

	Version api.Version

	StateDir string // from --state; "" for the default

	handled *atomic.Bool // a verb sees to signals itself
	took    func()       // called when somebody took a part of what berm says last
}

// OpenOptions say what a verb needs.
type OpenOptions struct {
	StateDir  string // "" for BERM_STATE or the default
	Template  string // "" for the host template, else a name, a folder or an archive
	Isolation string // "" for auto

	// The host template: what it takes beside its list, what it leaves out, and
	// how large it may be (bytes; 0 is the default).
	Include, Exclude []string
	MaxBytes         int64

	// Only says that one sandbox will be asked for, with at most these limits;
	// nil: any.
	Only *api.Limits

	NoTemplate bool // no sandbox will be made: build no image
	NoSweep    bool // leave what dead keepers left, to look at it

	// Progress is told how far a phase is, at any pace; total 0 is unknown.
	Progress func(phase string, done, total int64)
}

// A Session is an open way to a server.
type Session struct {
	Client   *client.Client
	Template string       // the name under which the server knows OpenOptions.Template
	StateDir string       // where the server keeps everything, absolute; "" if it is not on this host
	Close    func() error // ends what Open started; returns when nothing is left
}

// A verb is one thing that berm does.
type verb struct {
	name    string
	summary string // one line for `berm help`
	usage   string // what follows the name
	flags   func() flags
	about   string // the rest of `berm help VERB`
	run     func(ctx context.Context, env *Env, args []string) int
}

// verbs is the table of all verbs, in the order of `berm help`.
func verbs() []verb {
	return slices.Concat([]verb{runVerb()}, moreVerbs(), []verb{completionVerb(), versionVerb(), helpVerb()})
}

func find(name string) (verb, bool) {
	for _, v := range verbs() {
		if v.name == name {
			return v, true
		}
	}
	return verb{}, false
}

// Main runs one command line and returns the exit code.
func Main(ctx context.Context, env Env) int {
	defer env.quietQuit()()
	if len(env.Args) > 0 && env.Args[0] == "--version" { // as other tools have it
		env.Args = append([]string{"version"}, env.Args[1:]...)
	}
	rest, _, err := globalFlags(&env).parse(env.Args)
	if err == errHelp || err == nil && len(rest) == 0 {
		help(&env, env.Stdout, nil)
		return exitOK
	}
	if err != nil {
		return env.fail(err)
	}
	v, ok := find(rest[0])
	if !ok {
		f := fault{what: rest[0], why: "is not a verb of berm", try: "berm help"}
		if near := nearest(rest[0], names(verbs())); near != "" {
			f.try = strings.TrimSpace("berm " + near + " " + shellLine(rest[1:]))
		}
		return env.fail(&f)
	}
	for _, a := range rest[1:] {
		if a == "-h" || a == "--help" {
			help(&env, env.Stdout, []string{v.name})
			return exitOK
		}
		if !strings.HasPrefix(a, "-") || a == "-" || a == "--" {
			break
		}
	}
	return v.run(ctx, &env, rest[1:])
}

// globalFlags are those that may stand before the verb as well as after it.
func globalFlags(env *Env) flags {
	return flags{{name: "state", value: "DIR", help: "keep everything below DIR (default: BERM_STATE; else /var/lib/berm for root, ${XDG_STATE_HOME:-~/.local/state}/berm)", set: func(s string) error {
		if s == "" {
			return errEmpty
		}
		env.StateDir = s
		return nil
	}}}
}

func names(vs []verb) (out []string) {
	for _, v := range vs {
		out = append(out, v.name)
	}
	return out
}
