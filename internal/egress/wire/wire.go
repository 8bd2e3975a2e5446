// Package wire is what a gateway and its broker say to each other, and the
// numbers that both know. It is messages of JSON over a SOCK_SEQPACKET pair;
// an answer may carry one connected descriptor. Every message from a gateway is
// hostile: bounded, decoded strictly, and answered or ignored.
package wire

import (
	"net/netip"
)

// The link: addresses at both ends of every sandbox's only wire. They are in
// ranges that no rule reaches by default, and they exist nowhere else.
var (
	Gateway4 = netip.MustParseAddr("192.0.0.1")
	Guest4   = netip.MustParseAddr("192.0.0.2")
	Gateway6 = netip.MustParseAddr("fd62:6572:6d00::1")
	Guest6   = netip.MustParseAddr("fd62:6572:6d00::2")
)

// More of the link.
const (
	Bits4 = 29
	Bits6 = 64
	MTU   = 60000 // bytes of IP in a frame; the link never leaves the host
	// MaxFrame is the longest frame: Ethernet's header and MTU.
	MaxFrame = MTU + 14

	GatewayMAC = "\x02\x62\x65\x72\x6d\x01"
	GuestMAC   = "\x02\x62\x65\x72\x6d\x02"

	MaxMessage = 64 << 10 // room for the longest path with every byte escaped
	MaxAsks    = 128      // that a gateway may have open; the next is not read before
)

// What a gateway asks.
const (
	OpName    = "name"    // may Name be resolved, and to what: Type is the query's
	OpAccept  = "accept"  // a connection to To begins: Flow is its number. Without Inspect it is dialled at once
	OpConnect = "connect" // Flow was seen: dial it. The answer that it was carries the descriptor, as that to accept
	OpRequest = "request" // one more HTTP request on Flow
	OpClose   = "close"   // Flow is over; no answer
	OpDenied  = "denied"  // the gateway refused something by itself: Reason, Kind, To or Name; no answer
)

// CloseReset is the Reason of an OpClose after the guest cut the connection off:
// the broker's end is to be closed with a reset, too.
const CloseReset = "reset"

// An Ask is a message from a gateway. Flow numbers are the gateway's own, from 1
// on, never used twice. accept gives a flow its number and its To, and what says
// another To later is refused; UDP has no accept: its connect does both.
type Ask struct {
	Seq    uint64         `json:"seq,omitempty"` // of what is answered; from 1 on
	Op     string         `json:"op"`
	Flow   uint64         `json:"flow,omitempty"`
	Name   string         `json:"name,omitempty"`
	Type   uint16         `json:"type,omitempty"` // DNS query type
	To     netip.AddrPort `json:"to,omitzero"`
	Seen   string         `json:"seen,omitempty"` // policy.Seen
	Claim  string         `json:"claim,omitempty"`
	Hidden bool           `json:"hidden,omitempty"`
	Method string         `json:"method,omitempty"`
	Path   string         `json:"path,omitempty"`
	Kind   string         `json:"kind,omitempty"`   // denied: udp, icmp, dns, http, tcp
	Reason string         `json:"reason,omitempty"` // denied: policy.Deny word
	Text   string         `json:"text,omitempty"`   // denied: the reason for people, if there is more to it
	Count  int            `json:"count,omitempty"`  // denied: how many, at least 1
}

// An Answer is a message to a gateway. One without Seq is the first of all: from
// then on the gateway may look at its link.
type Answer struct {
	Seq     uint64       `json:"seq,omitempty"`
	Allow   bool         `json:"allow,omitempty"`
	Inspect bool         `json:"inspect,omitempty"` // accept: see the first bytes, then connect
	Addrs   []netip.Addr `json:"addrs,omitempty"`   // name: of the asked type, may be none
	TTL     uint32       `json:"ttl,omitempty"`     // name: seconds
	NXName  bool         `json:"nx,omitempty"`      // name: it does not exist
	// Fault says, with neither Allow nor a Reason, why what is allowed could not
	// be had: refused, unreachable, timeout, or unresolved for a name.
	Fault  string `json:"fault,omitempty"`
	Reason string `json:"reason,omitempty"` // of a denial, as policy has it
	Text   string `json:"text,omitempty"`
	Fix    string `json:"fix,omitempty"`
}
