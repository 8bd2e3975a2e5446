// Package api is Berm's vocabulary: the nouns, wire types and error codes that
// the server, the clients, the command line and the engine all speak. It has
// no behaviour beyond small lookups on its own tables.
//
// Units are in the names: bytes are bytes, seconds and milliseconds are
// fractions where a fraction makes sense. A limit of 0 means "the default", a
// limit of Unlimited means that the caller accepts that nothing enforces it.
package api

// Unlimited, in any field of Limits, switches that cap off by name.
const Unlimited = -1

// Defaults of one run, in the units of Limits.
const (
	DefaultTimeoutSeconds = 30
	DefaultMemoryBytes    = 512 << 20
	DefaultCPUs           = 1
	DefaultPids           = 128
	DefaultDiskBytes      = 512 << 20
	DefaultOutputBytes    = 1 << 20

	// FloodFactor times the output limit is where output ends an exec.
	FloodFactor = 64
)

// Limits are the caps around a sandbox and each exec in it.
type Limits struct {
	TimeoutSeconds float64 `json:"timeout_seconds"` // wall clock of one exec
	MemoryBytes    int64   `json:"memory_bytes"`    // everything in memory, the guest's kernel included
	CPUs           float64 `json:"cpus"`            // cores' worth of time
	Pids           int64   `json:"pids"`            // tasks (processes and threads) of the guest
	DiskBytes      int64   `json:"disk_bytes"`      // the one writable layer
	OutputBytes    int64   `json:"output_bytes"`    // kept per stream of one exec
}

// WithDefaults returns l with each zero field at its default.
func (l Limits) WithDefaults() Limits {
	if l.TimeoutSeconds == 0 {
		l.TimeoutSeconds = DefaultTimeoutSeconds
	}
	if l.MemoryBytes == 0 {
		l.MemoryBytes = DefaultMemoryBytes
	}
	if l.CPUs == 0 {
		l.CPUs = DefaultCPUs
	}
	if l.Pids == 0 {
		l.Pids = DefaultPids
	}
	if l.DiskBytes == 0 {
		l.DiskBytes = DefaultDiskBytes
	}
	if l.OutputBytes == 0 {
		l.OutputBytes = DefaultOutputBytes
	}
	return l
}

// Endings: why a run or a sandbox stopped. Exactly one is ever true.
const (
	EndExit        = "exit"
	EndSignal      = "signal"
	EndTimeout     = "timeout"
	EndTTL         = "ttl"
	EndIdle        = "idle"
	EndMemory      = "memory"
	EndProcesses   = "processes"
	EndOutput      = "output"
	EndPolicy      = "policy"
	EndKilled      = "killed"
	EndHostFailure = "host-failure"
)

// Caps, as caps_hit names them.
const (
	CapMemory    = "memory"
	CapProcesses = "processes"
	CapDisk      = "disk"
	CapOutput    = "output"
	CapTimeout   = "timeout"
	CapTTL       = "ttl"
	CapIdle      = "idle"
	CapEgress    = "egress" // bytes, rate, uses or connections of an egress rule
)

// Isolation kinds (rungs) and the boundary class of each.
const (
	IsolationAuto   = "auto"
	IsolationGVisor = "gvisor"
	// IsolationMicroVM is no kind that Berm has yet; as a floor it can be named.
	IsolationMicroVM = "microvm"

	BoundaryUserKernel = "user-kernel"
)

// Strength orders what min_isolation may name, from the weakest boundary on; 0
// is no name of one.
func Strength(isolation string) int {
	switch isolation {
	case IsolationGVisor:
		return 1
	case IsolationMicroVM:
		return 2
	}
	return 0
}

// Inside every sandbox: who runs, and where.
const (
	GuestUID  = 1000
	GuestGID  = 1000
	GuestUser = "agent"
	GuestHome = "/home/agent"
	Workspace = "/workspace"
)

// ExecResult is how one exec ended.
type ExecResult struct {
	ExecID   string   `json:"exec_id"`
	ExitCode int      `json:"exit_code"`
	Ending   string   `json:"ending"`
	CapsHit  []string `json:"caps_hit"`
	// NotStarted says that nothing was executed: exit code 126 or 127, as in shells.
	NotStarted string             `json:"not_started,omitempty"`
	Reason     string             `json:"reason,omitempty"` // of a host-failure, or that output is missing; for people
	TimingsMS  map[string]float64 `json:"timings_ms"`
}

// Usage is what a sandbox took, measured from outside where the host can.
type Usage struct {
	CPUSeconds      float64 `json:"cpu_seconds"`
	MemoryPeakBytes int64   `json:"memory_peak_bytes"`
	PidsPeak        int64   `json:"pids_peak"`
	DiskPeakBytes   int64   `json:"disk_peak_bytes"`
	EgressBytes     int64   `json:"egress_bytes"`
	IngressBytes    int64   `json:"ingress_bytes"`
}

// EndReport is what remains of a sandbox: how it ended and what it used.
type EndReport struct {
	SandboxID       string             `json:"sandbox_id"`
	Ending          string             `json:"ending"`
	CapsHit         []string           `json:"caps_hit"`
	Usage           Usage              `json:"usage"`
	TimingsMS       map[string]float64 `json:"timings_ms"`
	Hosts           []string           `json:"hosts"`            // reached
	Denied          []Denial           `json:"denied"`           // by the wire
	DeniedTruncated bool               `json:"denied_truncated"` // there were more than the list holds
	Faults          []string           `json:"faults,omitempty"` // see EgressState
	Wanted          []string           `json:"wanted,omitempty"` // see EgressState
}

// Truncated says what an answer leaves out of the output.
type Truncated struct {
	Stdout       bool  `json:"stdout"`
	Stderr       bool  `json:"stderr"`
	DroppedBytes int64 `json:"dropped_bytes"`
}

// Artifact is one file brought out of a sandbox.
type Artifact struct {
	Path   string `json:"path"`  // inside
	Local  string `json:"local"` // on the host
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// Denial is one thing a wall refused, with the way to allow it.
type Denial struct {
	Kind   string `json:"kind"`
	Target string `json:"target"`
	Rule   string `json:"rule"`
	Reason string `json:"reason"`
	// Code is the reason as a word, of what the wire refused: no-rule, address,
	// name-mismatch, ... (docs/egress.md).
	Code string `json:"code,omitempty"`
	Fix  string `json:"fix"`
}

// RunReport is the one object that `berm run --json` prints.
type RunReport struct {
	RunID              string             `json:"run_id"`
	SandboxID          string             `json:"sandbox_id"`
	ExitCode           int                `json:"exit_code"`
	Ending             string             `json:"ending"`
	Reason             string             `json:"reason,omitempty"` // of an ending that has one, and of a command that could not start
	CapsHit            []string           `json:"caps_hit"`
	Stdout             string             `json:"stdout"`
	Stderr             string             `json:"stderr"`
	StdoutBase64       string             `json:"stdout_base64,omitempty"`
	StderrBase64       string             `json:"stderr_base64,omitempty"`
	Truncated          Truncated          `json:"truncated"`
	Isolation          string             `json:"isolation"`
	Boundary           string             `json:"boundary"`
	HostFactsWeakening []string           `json:"host_facts_weakening"`
	Template           string             `json:"template"`
	Limits             Limits             `json:"limits"`
	Usage              Usage              `json:"usage"`
	TimingsMS          map[string]float64 `json:"timings_ms"`
	Artifacts          []Artifact         `json:"artifacts"`
	Denied             []Denial           `json:"denied"`
	DeniedTruncated    bool               `json:"denied_truncated"` // the wire denied more than the list holds
	Hosts              []string           `json:"hosts"`            // reached
	Faults             []string           `json:"faults,omitempty"` // allowed, and not to be had: "target: why"
	Wanted             []string           `json:"wanted,omitempty"` // with --learn: targets for --allow
	Tags               map[string]string  `json:"tags"`
	Here               *HereReport        `json:"here,omitempty"` // with --here
}

// FileList is the answer to a glob.
type FileList struct {
	Files []FileInfo `json:"files"`
	More  bool       `json:"more"` // the list was cut at its bound
}

// Version is what `berm version --json` prints.
type Version struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
}

// FileInfo is one entry inside a sandbox.
type FileInfo struct {
	Path  string `json:"path"` // absolute, inside
	Kind  string `json:"kind"` // file, dir, symlink, other
	Size  int64  `json:"size"`
	Mode  uint32 `json:"mode"`  // permission bits only
	MTime int64  `json:"mtime"` // Unix seconds
}

// Doctor is what `berm doctor` says of this host.
type Doctor struct {
	Host  map[string]any `json:"host"`
	Rungs []Rung         `json:"rungs"`
	Walls []Wall         `json:"walls"`
}

// Rung is one isolation kind and whether this host offers it.
type Rung struct {
	Name      string `json:"name"`
	Boundary  string `json:"boundary"`
	Available bool   `json:"available"`
	Reason    string `json:"reason"`
	Fix       string `json:"fix"`
}

// Wall is one promise and whether this host can keep it.
type Wall struct {
	Name   string `json:"name"`
	Holds  bool   `json:"holds"`
	Reason string `json:"reason"`
	Fix    string `json:"fix"`
}

// LeakList is the answer of `berm doctor --leaks`.
type LeakList struct {
	Leaks []Leak `json:"leaks"`
}

// Leak is something of an ended sandbox that is still on the host.
type Leak struct {
	Kind       string  `json:"kind"`
	ID         string  `json:"id"`
	Owner      string  `json:"owner"`
	AgeSeconds float64 `json:"age_seconds"`
}

// FileEvent is one change below a watched directory.
type FileEvent struct {
	Path string `json:"path"`
	Op   string `json:"op"` // create, write, remove, rename, attrib; lost: some were missed, look again
}
