package api

import "encoding/json"

// Roles, from the least to the most.
const (
	RoleAgent    = "agent"    // creates, uses, narrows and ends its own tenant's sandboxes
	RoleOperator = "operator" // widens policies, binds secrets, answers approvals
	RoleAdmin    = "admin"    // makes tokens
)

// DefaultTenant is the tenant of tokens that name none.
const DefaultTenant = "default"

// Token is what is known of a token; never the token itself.
type Token struct {
	TokenID   string  `json:"token_id"`
	Prefix    string  `json:"prefix"` // its first 12 characters
	Label     string  `json:"label,omitempty"`
	Role      string  `json:"role"`
	Tenant    string  `json:"tenant"`
	CreatedAt string  `json:"created_at"`
	ExpiresAt string  `json:"expires_at,omitempty"`
	Revoked   bool    `json:"revoked,omitempty"`
	Ceiling   *Policy `json:"ceiling,omitempty"` // nil: the daemon's own bounds only
	Default   *Policy `json:"default,omitempty"` // nil: closed
}

// TokenRequest makes a token.
type TokenRequest struct {
	Role       string  `json:"role"`
	Tenant     string  `json:"tenant,omitempty"`
	Label      string  `json:"label,omitempty"`
	TTLSeconds float64 `json:"ttl_seconds,omitempty"` // 0: until revoked
	Ceiling    *Policy `json:"ceiling,omitempty"`
	Default    *Policy `json:"default,omitempty"`
}

// NewToken is the answer to TokenRequest, the only time the token is shown.
type NewToken struct {
	Token string `json:"token"`
	Info  Token  `json:"info"`
}

// TokenList is the answer to GET /v1/tokens.
type TokenList struct {
	Items []Token `json:"items"`
}

// Policy is the one policy document: what a sandbox may use and reach. In a
// ceiling each field is the most; in a default, what the client gets that says
// nothing.
type Policy struct {
	Limits             Limits          `json:"limits,omitzero"`
	MinIsolation       string          `json:"min_isolation,omitempty"`
	TTLSeconds         float64         `json:"ttl_seconds,omitempty"`
	IdleTimeoutSeconds float64         `json:"idle_timeout_seconds,omitempty"`
	Templates          []string        `json:"templates,omitempty"` // in a ceiling: only these; nil: any
	Egress             json.RawMessage `json:"egress,omitempty"`    // an array of rules; see docs/egress.md
}
