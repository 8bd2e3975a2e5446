package policy

import (
	"net/netip"
	"time"
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
	Text   string // as the document has it, in one way of writing it, for people and events
}

// Rate is a number of uses in a time.
type Rate struct {
	N   int
	Per time.Duration
}

// A Preset is what one client program needs to reach its registry.
type Preset struct {
	Hosts []string `json:"hosts"` // "name:port" or "address:port"
	// Found are hosts that nobody configured: a registry has pointed to them.
	// They are reached by their name, and where that is a public address.
	Found []string `json:"found,omitempty"`
	// What tells the client inside about it, without any credential. Paths are
	// absolute, inside.
	Files map[string]string `json:"files,omitempty"`
	Env   map[string]string `json:"env,omitempty"`
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
	Open  int   // connections now, without the one that is asked about
	Bytes int64 // both ways
	Busy  bool  // its rate is used up for now
}

// A Decision is the answer to one attempt. The zero value denies.
type Decision struct {
	Allow   bool
	Rule    int    // index of the rule that decided; -1: none did
	Name    string // that it was allowed for, of Flow.Names or Claim; "" where an address was
	Inspect bool   // Accept only: the first bytes must be seen before anything is dialled
	Reason  string // one of the Deny words; with Allow, what it will be denied by (Accept only)
	Text    string // Reason for people: one line
	Fix     string // the rule to add, as a line for --allow or the document; "" if none would help

	port uint16 // of the rule that would have allowed it
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
