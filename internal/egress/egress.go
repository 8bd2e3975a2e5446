// Package egress is the broker: what decides about every name, connection and
// request that a sandbox's gateway asks for, resolves and dials for it, and
// accounts for what went through. A gateway is hostile as soon as its guest is,
// so nothing it says is believed beyond what the sandbox's policy allows anyway.
package egress

import (
	"log/slog"
	"net"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/policy"
)

// Options adjust a Broker.
type Options struct {
	Log *slog.Logger // nil: nothing is logged
	// Files are the texts of /etc/hosts and /etc/resolv.conf, for a process
	// that cannot read them later; nil: they are read when they have changed.
	Files *Files
}

// Files are what names are resolved by.
type Files struct {
	Hosts, Resolv []byte
}

// A Broker holds the policies of sandboxes with a link and serves their
// gateways. It is safe for concurrent use.
type Broker struct {
	opt Options
}

// New returns a Broker. It does no I/O.
func New(o Options) *Broker { return &Broker{opt: o} }

// ReadFiles reads what Options.Files wants, before rights are given up.
func ReadFiles() *Files { return &Files{} }

// Link says what is known of one sandbox.
type Link struct {
	Policy *policy.Egress
	// Learn denies all, as Policy without rules does, and finds out what was
	// wanted: names resolve to made-up addresses, so that ports are tried.
	Learn bool
	// Sink gets what was decided. It must not block for long, and is called by
	// one goroutine at a time for one sandbox. nil: nobody wants it.
	Sink func(Event)

	// Used is what rules had used before a restart, by their text. Use is told
	// how often a rule with Uses has been used, this time included, before what
	// it is used for is dialled or forwarded; an error denies it. It may block as
	// long as a disk does, and is called by one goroutine at a time for one
	// sandbox. nil: nobody keeps it.
	Used map[string]int
	Use  func(rule string, uses int) error
}

// An Event is one decision, or several of the same kind counted together.
type Event struct {
	Allowed bool
	Data    api.EgressData
}

// Open makes a sandbox known, before its instance is started.
func (b *Broker) Open(id string, l Link) error { return nil }

// Change puts another policy in force, at once: open connections that it does
// not allow are cut. What rules of the same text have used stays used.
func (b *Broker) Change(id string, p *policy.Egress) error { return nil }

// Close cuts all connections of a sandbox, ends its gateway's service and
// forgets it. It returns what remains to be told.
func (b *Broker) Close(id string) Summary { return Summary{} }

// Summary is what went through a link so far.
func (b *Broker) Summary(id string) Summary { return Summary{} }

// A Summary is what went through a link. Lists are bounded.
type Summary struct {
	OutBytes, InBytes int64        // as the kernel counted them, of connections to the outside
	Hosts             []string     // reached: "name:port", or "address:port"
	Denied            []api.Denial // each once
	Wanted            []string     // with Learn: the smallest document, one target a line
	Truncated         bool
}

// Serve answers one gateway until it or the sandbox's link is gone, and then
// cuts what it has open. conn is its end of a SOCK_SEQPACKET pair.
func (b *Broker) Serve(id string, conn *net.UnixConn) error { return conn.Close() }
