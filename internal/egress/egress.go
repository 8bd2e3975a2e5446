// Package egress is the broker: what decides about every name, connection and
// request that a sandbox's gateway asks for, resolves and dials for it, and
// accounts for what went through. A gateway is hostile as soon as its guest is,
// so nothing it says is believed beyond what the sandbox's policy allows anyway.
package egress

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"

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
	log      *slog.Logger
	resolver *resolver
	room     *room

	mu    sync.Mutex
	links map[string]*link
}

// ErrUnknown is the answer about a sandbox that was not opened, or is closed.
var ErrUnknown = errors.New("egress: no such link")

// New returns a Broker. It does no I/O.
func New(o Options) *Broker {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Broker{log: o.Log, resolver: newResolver(o.Files), room: newRoom(), links: map[string]*link{}}
}

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
func (b *Broker) Open(id string, l Link) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.links[id] != nil {
		return fmt.Errorf("egress: link of %s: it is open already", id)
	}
	b.links[id] = newLink(l, b.resolver, b.room)
	return nil
}

func (b *Broker) link(id string) *link {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.links[id]
}

// Change puts another policy in force, at once: open connections that it does
// not allow are cut. What rules of the same text have used stays used.
func (b *Broker) Change(id string, p *policy.Egress) error {
	l := b.link(id)
	if l == nil {
		return ErrUnknown
	}
	l.change(p)
	return nil
}

// Close cuts all connections of a sandbox, ends its gateway's service and
// forgets it. It returns what remains to be told, once the sink has it; the sink
// has a few seconds. Closing what is not open does nothing.
func (b *Broker) Close(id string) Summary {
	b.mu.Lock()
	l := b.links[id]
	delete(b.links, id)
	b.mu.Unlock()
	if l == nil {
		return Summary{}
	}
	return l.close()
}

// Summary is what went through a link so far.
func (b *Broker) Summary(id string) Summary {
	l := b.link(id)
	if l == nil {
		return Summary{}
	}
	return l.summary()
}

// A Summary is what went through a link. Lists are bounded.
type Summary struct {
	OutBytes, InBytes int64        // as the kernel counted them, of TCP to the outside
	Hosts             []string     // reached: "name:port", or "address:port"
	Denied            []api.Denial // each once
	Faults            []string     // allowed, and not to be had: "target: why", each once
	Wanted            []string     // with Learn: the smallest document, one target a line
	Truncated         bool         // some list was cut
	DeniedTruncated   bool         // Denied was
}

// Serve answers one gateway until it or the sandbox's link is gone, and then
// cuts what it has open. conn is its end of a SOCK_SEQPACKET pair. The error says
// what was wrong with the gateway; its going is none.
func (b *Broker) Serve(id string, conn *net.UnixConn) error {
	l := b.link(id)
	if l == nil {
		conn.Close()
		return ErrUnknown
	}
	err := l.serve(conn)
	if err != nil {
		b.log.Warn("egress: a gateway's service ended", "sandbox", id, "error", err)
	}
	return err
}
