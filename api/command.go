package api

// ExecRequest starts one command in a sandbox. Exactly one of Args and Cmd is
// set; Cmd runs under `sh -c`.
type ExecRequest struct {
	Args           []string          `json:"args,omitempty"`
	Cmd            string            `json:"cmd,omitempty"`
	Env            map[string]string `json:"env,omitempty"`   // added to the sandbox's own
	Dir            string            `json:"cwd,omitempty"`   // "" is /workspace
	User           string            `json:"user,omitempty"`  // "", agent, or root where the template grants it
	Stdin          bool              `json:"stdin,omitempty"` // standard input stays open for the caller
	Input          string            `json:"input,omitempty"` // standard input of a plain exec, as text
	TTY            bool              `json:"tty,omitempty"`
	Rows           uint16            `json:"rows,omitempty"`
	Cols           uint16            `json:"cols,omitempty"`
	TimeoutSeconds float64           `json:"timeout_seconds,omitempty"` // 0: the sandbox's limit
	// EndAll ends what the command left in the background as well, before the
	// answer comes.
	EndAll bool `json:"end_all,omitempty"`
	// Session, if set, must be the sandbox's own; another gets 409.
	Session string `json:"session,omitempty"`
	// ExecID lets a caller ask again without running the command twice: an id
	// that the sandbox knows is answered from that exec. "" makes a new one.
	ExecID string `json:"exec_id,omitempty"`
	// Detach answers as soon as the command runs; it goes on without its caller.
	Detach bool `json:"detach,omitempty"`
}

// States of an Exec.
const (
	ExecRunning = "running"
	ExecEnded   = "ended"
)

// Exec is one command of a sandbox, running or not.
type Exec struct {
	ExecID         string      `json:"exec_id"`
	SandboxID      string      `json:"sandbox_id"`
	Args           []string    `json:"args"`
	Dir            string      `json:"cwd,omitempty"`
	User           string      `json:"user,omitempty"`
	Actor          string      `json:"actor,omitempty"`
	State          string      `json:"state"`
	Detached       bool        `json:"detached"` // goes on without its caller
	Kept           bool        `json:"kept"`     // its output can be read from the start, and again
	TTY            bool        `json:"tty,omitempty"`
	TimeoutSeconds float64     `json:"timeout_seconds"`
	StartedAt      string      `json:"started_at"`
	OutputBytes    int64       `json:"output_bytes"`     // written so far, both streams
	Result         *ExecResult `json:"result,omitempty"` // once it has ended
}

// ExecAnswer is the answer of a plain exec: the result and the output, with
// PandaStack's names beside ours.
type ExecAnswer struct {
	ExecResult
	Stdout       string    `json:"stdout"` // invalid UTF-8 replaced
	Stderr       string    `json:"stderr"`
	StdoutBase64 string    `json:"stdout_base64,omitempty"` // only when replaced
	StderrBase64 string    `json:"stderr_base64,omitempty"`
	Truncated    Truncated `json:"truncated"`
	TimedOut     bool      `json:"timed_out"`
	DurationMS   int64     `json:"duration_ms"`
}

// A Chunk is a piece of an exec's output. Offset counts the bytes of both
// streams before it, so a reader can come back to where it was.
type Chunk struct {
	Stream string `json:"stream"` // stdout, stderr
	Offset int64  `json:"offset"`
	Data   []byte `json:"data"`
	// Gap is how many bytes before this piece are no longer kept.
	Gap int64 `json:"gap,omitempty"`
}

// SignalRequest sends a signal to a command: a name (TERM, SIGTERM) or a number.
type SignalRequest struct {
	Signal string `json:"signal"`
}

// ExecList is the answer to a list of execs, newest first.
type ExecList struct {
	Execs []Exec `json:"execs"`
}
