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
	exitLost     = 123 // it ran, and its end was not seen
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
	// Connect returns a client for the daemon in force. It starts nothing; the
	// error is a *client.NoDaemon if there is none. nil: this build knows none.
	Connect func(context.Context, ConnectOptions) (*Session, error)
	// Serve is the daemon; it returns when it has ended. nil: not in this build.
	Serve func(context.Context, ServeOptions) error
	// Rungs says what this host offers, without building or starting anything.
	// nil: only the names that this version knows are checked.
	Rungs func(context.Context) []api.Rung

	// Runtime returns the program that sandboxes run in, for `berm bench` to
	// compare with. nil: there is none.
	Runtime func(stateDir string) (path string, err error)

	// StateFor makes the state directory that --state names, "" for the default,
	// and returns where it is. nil: this build keeps nothing.
	StateFor func(dir string) (string, error)

	Version api.Version

	StateDir  string // from --state; "" for the default
	URL       string // from --url; "" for BERM_URL, or the socket of the state directory
	TokenFile string // from --token-file; "" for BERM_TOKEN, or the token of the state directory

	handled *atomic.Bool // a verb sees to signals itself
	took    func()       // called when somebody took a part of what berm says last
}

// ConnectOptions say which daemon.
type ConnectOptions struct {
	URL       string // "" for BERM_URL, or the socket of the state directory
	TokenFile string // "" for BERM_TOKEN, or the token of the state directory
	StateDir  string // "" for BERM_STATE or the default
}

// ServeOptions are the flags of `berm serve`. The zero value is a daemon for
// this host's own users.
type ServeOptions struct {
	StateDir string   // "" for BERM_STATE or the default
	Config   string   // a file; "" for none
	Listen   []string // HOST:PORT; nil is 127.0.0.1:7070, port 0 picks one, "none" is the socket only
	Hosts    []string // names by which clients may call it, beside what it listens on
	TLSCert  string   // files, both or none
	TLSKey   string
	Debug    bool // log more
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

	// Link says that sandboxes may get a link to the outside, and Presets which
	// presets their rules name; what those stand for is in PresetsFile, or, if
	// that is "", is asked of this host's own package managers.
	Link        bool
	Presets     []string
	PresetsFile string

	// Only says that one sandbox will be asked for, with at most these limits;
	// nil: any.
	Only *api.Limits

	// StandIn names a part of a sandbox, one of attack.StandIns, that a hostile
	// program is put in the place of; "": none.
	StandIn string

	NoTemplate bool // build no image of the host: none is named
	Templates  bool // templates are listed, made or removed; with Link their steps may reach what they name
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

	Extract client.Extractor // brings files out where berm is attacked; nil is client.Extract
}

// A verb is one thing that berm does.
type verb struct {
	name    string
	summary string // one line for `berm help`
	usage   string // what follows the name
	flags   func() flags
	about   string // the rest of `berm help VERB`
	own     bool   // it is or starts what it needs: no daemon to name
	run     func(ctx context.Context, env *Env, args []string) int
	subs    []verb // of a group of verbs, which does nothing itself if it has no run
}

// verbs is the table of all verbs, in the order of `berm help`.
func verbs() []verb {
	return slices.Concat([]verb{runVerb(), diffVerb(), applyVerb()}, daemonVerbs(), moreVerbs(), []verb{completionVerb(), versionVerb(), helpVerb()})
}

// group says whether what follows a verb is one of its own.
func (v verb) group(rest []string) bool {
	if v.run == nil || len(rest) == 0 {
		return v.run == nil
	}
	_, is := findIn(v.subs, rest[0])
	return is
}

func find(name string) (verb, bool) { return findIn(verbs(), name) }

func findIn(vs []verb, name string) (verb, bool) {
	for _, v := range vs {
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
		return env.fail(noVerb("berm", verbs(), rest))
	}
	path := rest[:1]
	if v.group(rest[1:]) {
		if len(rest) == 1 || slices.Contains([]string{"-h", "--help", "help"}, rest[1]) {
			return help(&env, env.Stdout, path)
		}
		if v, ok = findIn(v.subs, rest[1]); !ok {
			return env.fail(noVerb("berm "+rest[0], mustFind(rest[0]).subs, rest[1:]))
		}
		path, rest = rest[:2], rest[1:]
	}
	for _, a := range rest[1:] {
		if a == "-h" || a == "--help" {
			return help(&env, env.Stdout, path)
		}
		if !strings.HasPrefix(a, "-") || a == "-" || a == "--" {
			break
		}
	}
	return v.run(ctx, &env, rest[1:])
}

func mustFind(name string) verb {
	v, _ := find(name)
	return v
}

// noVerb says that args start with none of vs, and which one was meant.
func noVerb(of string, vs []verb, args []string) *fault {
	f := &fault{what: args[0], why: "is not a verb of " + of, try: "berm help" + strings.TrimPrefix(of, "berm")}
	if near := nearest(args[0], names(vs)); near != "" {
		f.try = strings.TrimSpace(of + " " + near + " " + shellLine(args[1:]))
	}
	return f
}

// globalFlags are those that may stand before the verb as well as after it.
func globalFlags(env *Env) flags {
	return flags{
		{name: "state", value: "DIR", help: "keep everything below DIR (default: BERM_STATE; else /var/lib/berm for root, ${XDG_STATE_HOME:-~/.local/state}/berm)", set: text(&env.StateDir)},
		{name: "url", value: "URL", help: "the daemon to ask (default: BERM_URL, else the socket of the state directory)", set: text(&env.URL)},
		{name: "token-file", value: "FILE", help: "what to show it (default: BERM_TOKEN, else DIR/token)", set: text(&env.TokenFile)},
	}
}

func names(vs []verb) (out []string) {
	for _, v := range vs {
		out = append(out, v.name)
	}
	return out
}
