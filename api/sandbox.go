package api

import "encoding/json"

// PandaStack's names for what a sandbox is doing, as Sandbox.Status has them.
const (
	StatusCreating = "creating"
	StatusRunning  = "running"
	StatusPaused   = "paused"
	StatusStopping = "stopping"
	StatusDeleted  = "deleted"
	StatusFailed   = "failed"
)

// Bounds of the times of a sandbox, in seconds.
const (
	DefaultTTLSeconds  = 3600       // wall clock from creation
	PersistentTTL      = 24 * 3600  // the same where the caller said persistent
	MaxTTLSeconds      = 30 * 86400 // of any sandbox; a token's ceiling may say less
	DefaultIdleSeconds = 300
	MaxIdempotencyKey  = 255 // bytes of the Idempotency-Key header
)

// CreateRequest asks for a sandbox. The zero value is the safe default.
//
// Tags and Metadata are two names of one map; a key that is in both must have
// one value. CPU, MemoryMB and DiskGB are PandaStack's names for three limits.
type CreateRequest struct {
	Template     string            `json:"template,omitempty"`      // "" is "host"
	Isolation    string            `json:"isolation,omitempty"`     // "" is "auto"
	MinIsolation string            `json:"min_isolation,omitempty"` // the weakest boundary that will do: gvisor or microvm
	Limits       Limits            `json:"limits,omitzero"`
	Env          map[string]string `json:"env,omitempty"` // of every command in it
	Tags         map[string]string `json:"tags,omitempty"`
	Metadata     map[string]string `json:"metadata,omitempty"`
	Session      string            `json:"session,omitempty"` // also the tag of that name; never changes
	RunID        string            `json:"run_id,omitempty"`  // set by `berm run`; "" for none

	// Bound is the server's to set: a connection holds the sandbox (see
	// BoundProtocol), so it must not outlive the daemon either.
	Bound bool `json:"-"`
	// Key is the server's to set: digests of an Idempotency-Key and of the
	// request that came with it.
	Key string `json:"-"`

	TTLSeconds         float64 `json:"ttl_seconds,omitempty"`          // hard wall clock from creation; 0: the default
	IdleTimeoutSeconds float64 `json:"idle_timeout_seconds,omitempty"` // without a request or a running exec; 0: the default
	TimeoutSeconds     float64 `json:"timeout_seconds,omitempty"`      // of each exec; the same as limits.timeout_seconds
	Persistent         bool    `json:"persistent,omitempty"`           // no idle reaper; every cap stays

	// Egress absent means no link at all; an array of rules, [] too, is a link
	// on which the rest is denied and seen.
	Egress json.RawMessage `json:"egress,omitempty"`
	// Learn denies all and finds out what would have been needed; with no rules only.
	Learn bool `json:"learn,omitempty"`

	// Workspace puts an uploaded tree into /workspace; see WorkTree.
	Workspace string `json:"workspace,omitempty"`
	// Track keeps what is written apart from what was there, so that GET
	// /v1/sandboxes/{id}/changes can say it. A Workspace implies it.
	Track bool `json:"track,omitempty"`

	CPU          float64         `json:"cpu,omitempty"`
	MemoryMB     float64         `json:"memory_mb,omitempty"`
	DiskGB       float64         `json:"disk_gb,omitempty"`
	FromSnapshot string          `json:"from_snapshot,omitempty"` // feature.unavailable until snapshots exist
	Volumes      json.RawMessage `json:"volumes,omitempty"`       // feature.unavailable
}

// Sandbox is one disposable environment as its owner sees it. It holds
// PandaStack's field names beside our own; guest_ip, host_tap, mac and
// vsock_cid are always empty: there is nothing to connect to.
type Sandbox struct {
	SandboxID string `json:"sandbox_id"`
	RunID     string `json:"run_id,omitempty"`
	State     string `json:"state"` // creating, running, paused, ending, ended, failed
	Tenant    string `json:"tenant,omitempty"`
	Session   string `json:"session,omitempty"`
	Template  string `json:"template"` // as asked for
	// TemplateResolved is what it was made from: another name where Template is
	// an alias.
	TemplateResolved   string             `json:"template_resolved"`
	Isolation          string             `json:"isolation"`
	Boundary           string             `json:"boundary"`
	HostFactsWeakening []string           `json:"host_facts_weakening"`
	Limits             Limits             `json:"limits"`
	Tags               map[string]string  `json:"tags"`
	TimingsMS          map[string]float64 `json:"timings_ms"`
	Egress             json.RawMessage    `json:"egress,omitempty"` // in force; absent: no link at all

	TTLSeconds         float64 `json:"ttl_seconds"`
	IdleTimeoutSeconds float64 `json:"idle_timeout_seconds"` // 0: no idle reaper
	Persistent         bool    `json:"persistent"`
	CreatedAt          string  `json:"created_at"`           // RFC 3339, UTC
	ExpiresAt          string  `json:"expires_at,omitempty"` // when the ttl ends it; "" for a run without one
	EndedAt            string  `json:"ended_at,omitempty"`
	Ending             string  `json:"ending,omitempty"` // once it has ended

	ID       string            `json:"id"` // the same as sandbox_id
	Status   string            `json:"status"`
	CPU      int               `json:"cpu"`
	MemoryMB int64             `json:"memory_mb"`
	GuestIP  string            `json:"guest_ip"`
	HostTap  string            `json:"host_tap"`
	MAC      string            `json:"mac"`
	VsockCID int               `json:"vsock_cid"`
	Metadata map[string]string `json:"metadata"` // the same as tags
	BootMS   float64           `json:"boot_ms"`
	BootMode string            `json:"boot_mode"` // "cold"
}

// Lifecycle is what ends a sandbox by time.
type Lifecycle struct {
	TTLSeconds         float64 `json:"ttl_seconds"` // from creation
	Persistent         bool    `json:"persistent"`
	IdleSeconds        float64 `json:"idle_seconds"` // how long it has been idle now
	IdleTimeoutSeconds float64 `json:"idle_timeout_seconds"`
	ExpiresAt          string  `json:"expires_at,omitempty"`
}

// LifecycleChange changes what is not nil.
type LifecycleChange struct {
	TTLSeconds         *float64 `json:"ttl_seconds,omitempty"` // from creation, as at create
	Persistent         *bool    `json:"persistent,omitempty"`
	IdleTimeoutSeconds *float64 `json:"idle_timeout_seconds,omitempty"`
}

// MetadataChange sets tags; a nil value removes one. `session` cannot change.
type MetadataChange struct {
	Tags map[string]*string `json:"tags"`
}

// Metrics are what one sandbox uses now, seen from outside.
type Metrics struct {
	SandboxID      string  `json:"sandbox_id"`
	State          string  `json:"state"`
	UptimeSeconds  float64 `json:"uptime_seconds"`
	CPUSeconds     float64 `json:"cpu_seconds"`
	MemoryBytes    int64   `json:"memory_bytes"`
	MemoryPeak     int64   `json:"memory_peak_bytes"`
	HostTasks      int64   `json:"host_tasks"`
	DiskBytes      int64   `json:"disk_bytes"`
	RunningExecs   int     `json:"running_execs"`
	HostCPUPercent float64 `json:"host_cpu_percent"` // since the last look, or since the start
	HostRSSBytes   int64   `json:"host_rss_bytes"`   // PandaStack's name for memory_bytes
}

// Report is what remains of a sandbox: what was done in it and how it ended. It
// is kept for a day after the end, and can be asked for before.
type Report struct {
	Sandbox   Sandbox     `json:"sandbox"`
	Ending    string      `json:"ending,omitempty"`
	CapsHit   []string    `json:"caps_hit"`
	Usage     Usage       `json:"usage"`
	Commands  []Exec      `json:"commands"`
	FilesIn   []FileMoved `json:"files_in"`
	FilesOut  []FileMoved `json:"files_out"`
	Hosts     []string    `json:"hosts"` // reached: name:port, or address:port
	Denied    []Denial    `json:"denied"`
	Events    int         `json:"events"` // in the audit log
	FirstSeq  uint64      `json:"first_seq"`
	LastSeq   uint64      `json:"last_seq"`
	Truncated bool        `json:"truncated"` // lists were cut at their bound
}

// FileMoved is one file (or archive) that went in or came out.
type FileMoved struct {
	Path   string `json:"path"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256,omitempty"`
	Actor  string `json:"actor"`
	Time   string `json:"time"`
}
