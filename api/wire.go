package api

// What the routes take and give where a type alone does not say it:
//
//	GET  /v1/sandboxes                tag=K=V (repeat), state=, session=, run_id=, ended=1; a bare array
//	POST /v1/sandboxes                Upgrade: berm-bound holds it, see BoundProtocol
//	DELETE /v1/sandboxes/{id}         204; report=1: 200 and an EndReport
//	GET  .../logs                     tail=N, stream=stdout|stderr|both; text; follow=1: SSE, `line` with LogLine
//	POST .../exec                     an ExecAnswer; with detach: 202 and an Exec
//	POST .../exec/stream              SSE as PandaStack has it: `stdout` and `stderr` with {"chunk"}, at last `exit` or `error`;
//	                                  (a timeout is an error event, as they expect); X-Exec-Id names the command, which goes on for
//	                                  10 s after its stream broke: .../output or the same exec_id comes back to it.
//	                                  With detach what .../output gives with follow=1, and a broken stream ends nothing
//	GET  .../exec/ws                  WebSocket, text: {"id","cmd"|"args",...} or {"id","cancel":true}; {"id","stream","data"},
//	                                  {"id","exit",...}, {"id","error","code"}
//	GET  .../exec/pty                 WebSocket: cmd=, rows=, cols=, cwd=, user=, session=, timeout_seconds=; binary is the terminal's;
//	                                  text {"resize":{"rows","cols"}} or {"stdin"}, at last {"exit",...}
//	GET  .../execs/{exec}/output      offset=N, follow=1; SSE: `chunk` with a Chunk, at last `exit` with the Exec
//	POST .../execs/{exec}/stdin       the body as it is; end=1 closes it; a Written
//	GET  .../fs?path=                 the bytes
//	PUT  .../fs?path=&mode=0644       the bytes; a Written
//	GET  .../fs/dir?path=             a DirList
//	POST .../fs/dir?path=             204, parents made
//	GET  .../fs/stat?path=            a DirEntry
//	POST .../fs/move                  a MoveRequest; 204
//	GET  .../fs/watch?path=           recursive=1; SSE: `ready`, then `change` with a FileEvent
//	GET  .../archive?path=            name=N (repeat) below path; tar
//	GET  .../ports                    a bare array of Port
//	GET  /v1/events                   after=, limit=, type= (repeat), sandbox_id=, run_id=, session=, wait=SECONDS; an EventList;
//	                                  follow=1 or Accept: text/event-stream: SSE, the type as event name, an Event, seq as id
//
// Switches are 1 or true, 0 or false. Every SSE stream sends a comment at least
// every 10 s, and ends with `error` and an Error where it fails.

// BoundProtocol is the upgrade of a create: after "101 Switching Protocols" the
// server writes the Sandbox as one line of JSON, and deletes the sandbox when
// this connection ends, however it ends. What the client sends is ignored.
const BoundProtocol = "berm-bound"

// A DirEntry is one entry inside a sandbox, with PandaStack's names beside ours.
type DirEntry struct {
	Name  string `json:"name"`
	Path  string `json:"path"`   // absolute
	IsDir bool   `json:"is_dir"` // false for a link to a directory
	Size  int64  `json:"size"`
	Mode  string `json:"mode"`  // one letter, as find's %y: f, d, l, ...
	MTime int64  `json:"mtime"` // Unix seconds
	Kind  string `json:"kind"`  // file, dir, symlink, other
	Perm  uint32 `json:"perm"`  // permission bits only
}

// DirList is one directory.
type DirList struct {
	Path    string     `json:"path"`
	Entries []DirEntry `json:"entries"`
	More    bool       `json:"more,omitempty"` // the list was cut at its bound
}

// Written says how much of a body was taken.
type Written struct {
	Path  string `json:"path,omitempty"`
	Bytes int64  `json:"bytes"`
}

// MoveRequest renames.
type MoveRequest struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// LogLine is a piece of a sandbox's log.
type LogLine struct {
	Line   string `json:"line"` // with its newline
	Stream string `json:"stream,omitempty"`
	ExecID string `json:"exec_id,omitempty"`
}

// Port is a TCP port that something listens on inside.
type Port struct {
	Port      int    `json:"port"`
	Listening bool   `json:"listening"`
	Source    string `json:"source"` // detected
	ProxyURL  string `json:"proxy_url"`
}

// Top is one look at a daemon: its sandboxes, those of the caller's tenant.
type Top struct {
	Time         string   `json:"time"`
	Sandboxes    []TopRow `json:"sandboxes"`
	Running      int      `json:"running"`
	RunningExecs int      `json:"running_execs"`
	MemoryBytes  int64    `json:"memory_bytes"` // of all of them now
	CPUPercent   float64  `json:"cpu_percent"`
	Creates      int64    `json:"creates"` // since the daemon started
	Degraded     string   `json:"degraded,omitempty"`
}

// TopRow is one sandbox in it.
type TopRow struct {
	Sandbox
	Metrics Metrics `json:"metrics"`
}

// Me is who a token is.
type Me struct {
	TokenID string `json:"token_id"`
	Tenant  string `json:"tenant"`
	Role    string `json:"role"`
}
