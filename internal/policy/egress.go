package policy

import (
	"encoding/json"
	"net/netip"
	"time"

	"github.com/bermhq/berm/api"
)

// Egress is a parsed egress document: what a sandbox with a link may reach. A
// nil *Egress is no link at all; one without rules is a link on which all is
// denied and seen. It is never changed once it is parsed.
type Egress struct {
	Rules []EgressRule
}

// An EgressRule is one line of the document. The first that matches wins.
type EgressRule struct {
	Allow  bool
	Host   string       // exact name, lower case, no dot at the end; "" for another kind
	Suffix string       // of "*.suffix": every name below it, not itself
	Prefix netip.Prefix // of a CIDR or an address; the zero value for another kind
	Port   uint16       // 0: every port

	Methods []string // of HTTP requests, upper case; nil: any
	Paths   []string // prefixes of the path of HTTP requests; nil: any
	AnySNI  bool     // sni: any; the names that a connection carries are not looked at
	QUIC    bool     // UDP too, to the same port; only with AnySNI or a Prefix, for nobody looks into it

	Rate        Rate      // of connections, or of requests where they can be seen; the zero value: any
	Bytes       int64     // both ways together; 0: any number
	Connections int       // open at one time; 0: any number
	Uses        int       // connections, or requests where they can be seen, in all; 0: any number
	Expires     time.Time // the zero time: never

	Preset string // the preset that it came from; it may reach private addresses then
	Text   string // as the document has it, for people and events
}

// Rate is a number of uses in a time.
type Rate struct {
	N   int
	Per time.Duration
}

// A Preset is what one client program needs to reach its registry.
type Preset struct {
	Hosts []string `json:"hosts"` // "name:port" or "address:port"
	// What tells the client inside about it, without any credential. Paths are
	// absolute, inside.
	Files map[string]string `json:"files,omitempty"`
	Env   map[string]string `json:"env,omitempty"`
}

// ParseEgress reads the egress part of a policy document: a JSON array. Times
// that are durations count from now. presets finds a preset by its name; nil:
// there are none. Errors are *api.Error with a hint that says what to write.
func ParseEgress(raw json.RawMessage, now time.Time, presets func(name string) (Preset, error)) (*Egress, error) {
	return nil, &api.Error{Code: api.CodeEgressUnavailable, Message: "egress: not built yet"}
}

// Seen is what the first bytes of a connection were.
type Seen string

// What a connection can look like.
const (
	SeenNothing Seen = ""     // the client has said nothing yet
	SeenTLS     Seen = "tls"  // Claim is the SNI, "" for none
	SeenHTTP    Seen = "http" // Claim is the host of one request, Method and Path are its
	SeenRaw     Seen = "raw"  // neither, or nothing came for a while
	SeenUDP     Seen = "udp"
)

// A Flow is a connection, or one HTTP request of one, as it is held against
// the rules.
type Flow struct {
	Now    time.Time
	To     netip.AddrPort
	Names  []string // that were handed out with this address, in this sandbox
	Own    bool     // the address is one of the host's own
	Seen   Seen
	Claim  string // the name that the client showed, lower case, no port; "" for none
	Hidden bool   // the client hello is encrypted (ECH), or pretends to be
	Method string
	Path   string
	// Spent says what a rule, by its index, has been used for so far; nil:
	// nothing.
	Spent func(rule int) Spent
}

// Spent is what one rule has been used for.
type Spent struct {
	Uses  int
	Open  int   // connections now
	Bytes int64 // both ways
	Busy  bool  // its rate is used up for now
}

// A Decision is the answer to one attempt. The zero value denies.
type Decision struct {
	Allow   bool
	Rule    int    // index of the rule that decided; -1: none did
	Name    string // that it was allowed for, of Flow.Names or Claim; "" where an address was
	Inspect bool   // Accept only: the first bytes must be seen before anything is dialled
	Reason  string // one of the Deny words
	Text    string // Reason for people: one line
	Fix     string // the rule to add, as a line for --allow or the document; "" if none would help
}

// Reasons of denials, as events have them.
const (
	DenyNoRule     = "no-rule"         // nothing allows it
	DenyRule       = "rule"            // a deny rule
	DenyAddress    = "address"         // loopback, private, link-local, ... or the host's own
	DenyUnresolved = "not-resolved"    // the address was not handed out for an allowed name
	DenyName       = "name-mismatch"   // SNI or Host is not what the rule allows
	DenyNoName     = "no-name"         // TLS without SNI, HTTP without Host
	DenyHidden     = "encrypted-hello" // ECH
	DenyProtocol   = "protocol"        // neither TLS nor HTTP, and nothing says sni: any
	DenyMethod     = "method"
	DenyPath       = "path"
	DenyUnseen     = "request-unseen" // a rule about methods or paths, and the connection is TLS
	DenyRate       = "rate"
	DenyBytes      = "bytes"
	DenyBusy       = "connections"
	DenyUsed       = "used-up"
	DenyExpired    = "expired"
	DenyQuery      = "query-type" // DNS: neither A nor AAAA nor HTTPS
	DenyStuffing   = "dns-rate"   // too many or too long names below one suffix
	DenyUDP        = "udp"
	DenyICMP       = "icmp"
	DenyGateway    = "gateway" // the gateway's own addresses
	DenyHTTP       = "http"    // a request that is not clearly one: smuggling, CONNECT
	DenyBudget     = "budget"  // too many at one time
)

// Name decides whether a name may be resolved: some rule could allow it.
func (e *Egress) Name(name string, now time.Time, spent func(rule int) Spent) Decision {
	return Decision{Rule: -1, Reason: DenyNoRule}
}

// Accept decides about a connection of which nothing was seen yet: whether a
// rule could allow it, whatever it will turn out to be, and whether its first
// bytes must be seen before that is known.
func (e *Egress) Accept(f Flow) Decision { return Decision{Rule: -1, Reason: DenyNoRule} }

// Connect decides about a connection that was seen, or one HTTP request.
func (e *Egress) Connect(f Flow) Decision { return Decision{Rule: -1, Reason: DenyNoRule} }

// Address says whether an address that a name resolves to may be handed out
// and dialled for that name: it is public, or a rule names its range.
func (e *Egress) Address(name string, a netip.Addr, own bool, now time.Time) Decision {
	return Decision{Rule: -1, Reason: DenyAddress}
}

// Covers says whether everything that inner allows is allowed by e, too. It may
// say no where that is hard to tell, and never yes where it is not so.
func (e *Egress) Covers(inner *Egress) Decision { return Decision{Rule: -1, Reason: DenyNoRule} }
