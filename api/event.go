package api

import "encoding/json"

// Event types, noun.verb.
const (
	EventSandboxCreated = "sandbox.created" // decided; nothing was started yet
	EventSandboxStarted = "sandbox.started"
	EventSandboxPaused  = "sandbox.paused"
	EventSandboxResumed = "sandbox.resumed"
	EventSandboxEnded   = "sandbox.ended"
	EventSandboxChanged = "sandbox.changed" // ttl, idle timeout, persistence or tags
	EventExecStarted    = "exec.started"    // decided; nothing was executed yet
	EventExecEnded      = "exec.ended"
	EventExecSignalled  = "exec.signalled" // decided: a signal, or KILL for all of it
	EventExecInput      = "exec.input"     // bytes that a caller sent to the standard input of a detached one
	EventPortOpened     = "port.opened"    // a connection to a port inside
	EventPortClosed     = "port.closed"    // with what it carried
	EventFileWritten    = "file.written"
	EventFileRead       = "file.read"
	EventEgressAllowed  = "egress.allowed"
	EventEgressDenied   = "egress.denied" // aggregated
	EventPolicyChanged  = "policy.changed"
	EventTokenCreated   = "token.created"
	EventTokenRevoked   = "token.revoked"
	EventCapHit         = "cap.hit"
	EventDenied         = "access.denied" // a request that a token may not make; aggregated
	EventHostDegraded   = "host.degraded"
	EventAuditSealed    = "audit.sealed"
	EventAuditRepaired  = "audit.repaired"
	EventAuditBroken    = "audit.broken"  // a damaged log was given up; this one begins after it
	EventAuditRemoved   = "audit.removed" // retention takes the oldest segments
	EventDaemonStarted  = "daemon.started"
	EventDaemonStopped  = "daemon.stopped"
)

// Event is one line of the audit log. Seq counts from 1 without a gap.
type Event struct {
	ID        string            `json:"id"`
	Seq       uint64            `json:"seq"`
	Time      string            `json:"time"` // RFC 3339 with nanoseconds, UTC
	Type      string            `json:"type"`
	Tenant    string            `json:"tenant"`
	Actor     string            `json:"actor"` // token id, "system", or "local" without a daemon
	SandboxID string            `json:"sandbox_id,omitempty"`
	RunID     string            `json:"run_id,omitempty"`
	Session   string            `json:"session,omitempty"`
	Tags      map[string]string `json:"tags"`
	Data      json.RawMessage   `json:"data"` // an object
}

// EventList is the answer to GET /v1/events.
type EventList struct {
	Events []Event `json:"events"`
	Next   uint64  `json:"next"` // what to send as after= to go on
}

// Head is where the audit log ends: whoever keeps one can prove later that
// nothing up to it was changed, moved or cut.
type Head struct {
	Seq  uint64 `json:"seq"`
	Hash string `json:"hash"` // hex
	Key  string `json:"key"`  // ed25519 public key that seals segments, hex
	Time string `json:"time"`
}

// Verification is what `audit verify` found.
type Verification struct {
	OK           bool   `json:"ok"`
	FirstSeq     uint64 `json:"first_seq"`
	LastSeq      uint64 `json:"last_seq"`
	Records      uint64 `json:"records"`
	Segments     int    `json:"segments"`
	Sealed       int    `json:"sealed"`
	TailUnproven bool   `json:"tail_unproven"` // no head is known that covers the end
	Problem      string `json:"problem,omitempty"`
	AtSeq        uint64 `json:"at_seq,omitempty"` // where the problem is
}
