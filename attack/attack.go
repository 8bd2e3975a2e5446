// Package attack measures containment on the running system. It starts hostile
// programs in sandboxes of their own and judges what became of them by evidence
// from outside: canaries that were planted before the sandbox was there, the
// host's own counters before, during and after, canary servers that count who
// calls, and the endings that the contract names.
//
// What a program says about itself is never evidence. It proves only that the
// program ran: it has to print a number that was drawn for that one case, and
// a case whose number is missing is inconclusive, never contained.
//
// The package speaks to Berm through the public API alone, so it can be pointed
// at anything that speaks it, a build with a wall taken out included.
package attack

import (
	"context"
	"os/exec"

	"github.com/bermhq/berm/client"
)

// Verdicts of a case.
const (
	Contained     = "contained"
	Breached      = "breached"
	NotApplicable = "not-applicable"
	Inconclusive  = "inconclusive"
)

// A Session is an open way to a server that nothing else uses meanwhile.
type Session struct {
	Client   *client.Client
	Template string
	StateDir string // where the server keeps everything
	Close    func() error

	// Extract brings files out; nil is client.Extract.
	Extract client.Extractor
}

// Options say what to attack.
type Options struct {
	// Open makes a server ready. It is called after the canaries are planted,
	// once before the first case and once per case. link says that sandboxes
	// get one.
	Open func(ctx context.Context, link bool) (*Session, error)

	// StandIn is Open with a hostile program in the place of a part, one of
	// StandIns, of every sandbox; nil: there is none.
	StandIn func(ctx context.Context, part string, link bool) (*Session, error)

	// OpenTemplate is Open for sandboxes that start from a template of that name;
	// nil: there are none.
	OpenTemplate func(ctx context.Context, name string) (*Session, error)
	Tools        string // the folder of tools that are in no template; "": none are given

	Target    string // what is attacked, for the report
	Command   string // what repeats this run, for the report
	Build     Build  // what attacks, for the report
	Isolation string // as in api.CreateRequest
	Only      []string
	Short     bool   // without the cases that take long
	Absent    string // why this rung is not here: then nothing is attacked

	// Against is somebody else's sandbox to attack in place of Berm's; nil: none.
	// Open is not called then.
	Against External

	// Again is a command that attacks in the same way with those cases only, and
	// does not print; its attributes and files are set here. It is for the family
	// egress, which needs network namespaces of its own. nil: that is left out.
	Again func(ctx context.Context, only []string) *exec.Cmd

	// Berm is the program that is attacked, called as a person would; nil: it has
	// no command line.
	Berm func(ctx context.Context, args ...string) *exec.Cmd

	// Serve starts a daemon to be attacked, with this environment and what is
	// unpacked in another state directory; nil: there is none. See Daemon.
	Serve func(ctx context.Context, stateDir string, environ []string) (*Daemon, error)

	// Began and Ended are told of each case as it goes; nil: nobody listens.
	Began func(c Case)
	Ended func(r Result)

	// Worked is told what became of each work; nil: nobody listens.
	Worked func(b Benign)
}
