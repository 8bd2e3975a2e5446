package guest

import "time"

// Options bound a Client. The zero value is the documented default.
type Options struct {
	MaxFrame   int // longest frame body accepted from the guest; 0 means 256 KiB, which is also the most
	Window     int // bytes a guest may send on one stream ahead of its reader; 0 means 512 KiB
	MaxStreams int // calls open at once; 0 means 64
	MaxSkip    int // bytes of older epochs to skip while attaching; 0 means 64 MiB

	// Epoch names this attachment, in the bits of MaxEpoch; 0 picks one at
	// random. Every attachment to one guest needs a new one.
	Epoch uint32
}

// Hello is what the guest says of itself.
type Hello struct {
	Version int    // of the protocol
	Agent   string // version of the agent
	Boot    Boot
}

// Boot holds facts about the booted guest, as it claims them.
type Boot struct {
	Hostname   string
	Kernel     string
	StartNanos int64 // guest clock when the agent started
	PID        int   // of the agent; 1 in a sandbox
}

// Start asks for one process.
type Start struct {
	ID         string // the caller's name for it; Kill finds it by this
	Args, Env  []string
	Dir        string
	UID, GID   uint32
	Stdin, TTY bool
	Rows, Cols uint16
	// Pids and MemoryBytes are the caps the agent watches from inside; 0 means no watch.
	Pids, MemoryBytes int64

	// Keep is how many bytes of output the agent keeps, the first and the last
	// half, to be read with Attach, now and after the process has ended; the
	// process outlives the attachment and its Start carries no output. 0 keeps
	// none and sends the output along.
	Keep int64
	// TimeoutMS and Flood are when the agent itself ends everything of this
	// Start: after so long, and with Keep at more output than this. 0 is never.
	TimeoutMS, Flood int64
	// Hold says that somebody will follow, from the start and again when that
	// breaks: for a while the process waits for them rather than lose output.
	Hold bool
}

// Stream tells the two outputs of a process apart.
type Stream int

// The outputs of a process. A terminal has only Stdout.
const (
	Stdout Stream = 1
	Stderr Stream = 2
)

func (s Stream) String() string {
	if s == Stderr {
		return "stderr"
	}
	return "stdout"
}

// Who ended a process before its time, and the names of caps, as Exit has them.
const (
	EndedMemory    = "memory"
	EndedProcesses = "processes"
	EndedKilled    = "killed"
	EndedTimeout   = "timeout"
	EndedOutput    = "output"
	CapMemory      = "memory"
	CapProcesses   = "processes"
	CapDisk        = "disk"
)

// Exit is how a process ended.
type Exit struct {
	NotStarted string // "" or why nothing was executed; Errno says the same as a number
	Errno      int
	Code       int      // exit status; 0 when Signal is set
	Signal     int      // signal that ended it, or 0
	Caps       []string // caps that a sample saw touched: "memory", "processes", "disk"
	EndedBy    string   // "", "memory", "processes", "killed", "timeout", "output"
	Background bool     // descendants were left running

	PidsPeak, MemoryPeak, DiskPeak int64

	ElapsedNanos int64 // from the request to the end, by the guest's clock
}

// A Chunk is a piece of output and where it belongs.
type Chunk struct {
	Stream Stream
	Offset int64  // bytes of both outputs before Data
	Gap    int64  // how many of those, right before Data, are no longer kept
	Data   []byte // valid until the next is read
}

// ProcessInfo is a process that a Start began.
type ProcessInfo struct {
	ID           string
	PID          int
	Args         []string // cut short if they are long
	StartedNanos int64    // guest clock
	Running      bool
	Kept         bool  // started with Keep
	OutputBytes  int64 // written so far; only known of a kept one
	Exit         Exit  // while it runs only what was seen
}

// Operations of a FileEvent. After OpLost some events are missing.
const (
	OpCreate = "create"
	OpWrite  = "write"
	OpRemove = "remove"
	OpRename = "rename"
	OpAttrib = "attrib"
	OpLost   = "lost"
)

// A FileEvent is a change below a watched directory.
type FileEvent struct {
	Path string // as the watch was asked for, "" if Op is OpLost
	Op   string
}

// Kinds of FileInfo.
const (
	KindFile    = "file"
	KindDir     = "dir"
	KindSymlink = "symlink"
	KindOther   = "other"
)

// FileInfo is one entry of the guest's file tree; a symlink is not followed.
type FileInfo struct {
	Path       string
	Kind       string // file, dir, symlink, other
	Size       int64
	Mode       uint32 // permission bits
	ModTime    time.Time
	Nlink      uint64
	LinkTarget string
	UID, GID   uint32
}

// Usage is what the guest says it uses now.
type Usage struct {
	Tasks       int64 // without the agent's own
	AgentTasks  int64
	MemoryBytes int64
	MemoryTotal int64
	DiskBytes   int64
	DiskTotal   int64
	Processes   int64 // started by Start and not yet ended
}

// Identity is what a guest becomes after a restore: a name, the time, fresh randomness.
type Identity struct {
	Hostname  string   // "" leaves it
	Env       []string // added below the Env of every later Start
	UnixNanos int64    // 0 leaves the clock
	Seed      []byte   // stirred into the guest's random pool
}
