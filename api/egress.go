package api

import (
	"cmp"
	"encoding/json"
	"strings"
)

// An EgressRule is one rule of an egress document: what the members are called,
// and how Berm writes one. In a document that is read, bytes may also be a size
// such as "10m".
type EgressRule struct {
	Allow       string   `json:"allow,omitempty"` // host[:port], *.suffix[:port], CIDR[:port] or preset:NAME
	Deny        string   `json:"deny,omitempty"`
	Methods     []string `json:"methods,omitempty"`
	Paths       []string `json:"paths,omitempty"`
	SNI         string   `json:"sni,omitempty"`
	QUIC        bool     `json:"quic,omitempty"`
	Rate        string   `json:"rate,omitempty"`
	Bytes       int64    `json:"bytes,omitempty"`
	Connections int      `json:"connections,omitempty"`
	Uses        int      `json:"uses,omitempty"`
	Expires     string   `json:"expires,omitempty"`
}

// EgressChange puts another egress document in force while a sandbox runs. Its
// user may only narrow it; an operator may widen it within the ceiling.
type EgressChange struct {
	Egress json.RawMessage `json:"egress"` // an array of rules; [] denies all
}

// EgressState is what a sandbox may reach, and what it has.
type EgressState struct {
	Link   bool            `json:"link"` // false: there is no link at all, and none can be added
	Egress json.RawMessage `json:"egress,omitempty"`
	Learn  bool            `json:"learn,omitempty"`

	EgressBytes  int64    `json:"egress_bytes"` // out of the sandbox
	IngressBytes int64    `json:"ingress_bytes"`
	Hosts        []string `json:"hosts"`            // reached
	Denied       []Denial `json:"denied"`           // each once
	Faults       []string `json:"faults,omitempty"` // allowed, and not to be had: "target: why", each once
	// Wanted is, with learn, the smallest document that would have let all
	// attempts through: one target a line, as --allow takes them.
	Wanted    []string `json:"wanted,omitempty"`
	Truncated bool     `json:"truncated"` // lists were cut at their bound
}

// EgressData is what the events egress.allowed and egress.denied say: one
// decision, or Count of the same kind since Since.
type EgressData struct {
	Kind    string `json:"kind"`    // dns, tcp, tls, http, udp, icmp
	Target  string `json:"target"`  // name, name:port or address:port
	Verdict string `json:"verdict"` // allowed or denied
	Name    string `json:"name,omitempty"`
	Address string `json:"address,omitempty"`
	Port    uint16 `json:"port,omitempty"`
	SNI     string `json:"sni,omitempty"` // or the Host of a request
	Method  string `json:"method,omitempty"`
	Path    string `json:"path,omitempty"`
	Rule    string `json:"rule,omitempty"` // as the document has it
	Reason  string `json:"reason,omitempty"`
	Text    string `json:"text,omitempty"` // the reason, for people
	Fix     string `json:"fix,omitempty"`  // the rule to add
	// Fault says of what is allowed that it could not be had: unresolved,
	// refused, timeout or unreachable. Text is that for people.
	Fault string `json:"fault,omitempty"`

	EgressBytes  int64  `json:"egress_bytes,omitempty"`
	IngressBytes int64  `json:"ingress_bytes,omitempty"`
	Count        int    `json:"count,omitempty"`
	Since        string `json:"since,omitempty"`
}

// FaultText is a fault as reports tell it.
func (d EgressData) FaultText() string {
	return d.Target + ": " + strings.TrimPrefix(d.Text, "allowed, but ")
}

// Denial is a refusal as reports tell it: the reason is the one for people, and
// "end" is the rule where none decided.
func (d EgressData) Denial() Denial {
	return Denial{Kind: "egress", Target: d.Target, Rule: cmp.Or(d.Rule, "end"), Reason: cmp.Or(d.Text, d.Reason), Code: d.Reason, Fix: d.Fix}
}
