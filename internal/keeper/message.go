package keeper

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bermhq/berm/internal/jail"
)

// Launch asks for one sandbox. Args may name descriptors that the keeper makes:
// {image0}, {image1}, ... (Images in order, read-only), {spec} (the descriptor
// that came with the request), {upper} (the scratch file of the writable
// layer), {control} (listening socket), {sync} (one byte when up), {agent}
// and {agent2} (the guest end of the agent stream, twice), {null}.
type Launch struct {
	ID         string      `json:"id"`
	Args       []string    `json:"args"`
	Images     []string    `json:"images"` // names in the template store
	Limits     jail.Limits `json:"limits"`
	NProc      uint64      `json:"nproc,omitempty"`       // see jail.Child
	DiskBytes  int64       `json:"disk_bytes,omitempty"`  // of the writable layer, see overfull; 0: from an engine that does not say
	DeadlineMS int64       `json:"deadline_ms,omitempty"` // Unix milliseconds; 0: none
	// Extend allows that the deadline is moved later than it was launched with.
	Extend bool `json:"extend,omitempty"`
	// Bound has it end with the connection that it was launched over, where
	// others outlive that: nobody else has a use for it.
	Bound bool `json:"bound,omitempty"`
	// Runtime names the program to run, below runtimes/; "" is the keeper's own.
	// So a daemon of another build than the keeper runs the program it came with.
	Runtime string `json:"runtime,omitempty"`
	// Link gives it a wire. The far end is a gateway's, which the keeper starts
	// in the sandbox's group when the first frame comes; the engine hears of each
	// by an event. See Client.OnGateway.
	Link bool `json:"link,omitempty"`
	// PauseCall and ResumeCall are what to write to its control socket to have
	// it stop by itself before it is stopped, and go on after. The keeper waits
	// for an answer and does not look at it.
	PauseCall  string `json:"pause_call,omitempty"`
	ResumeCall string `json:"resume_call,omitempty"`
}

// Held is a sandbox that runs.
type Held struct {
	ID         string    `json:"id"`
	PID        int       `json:"pid"`
	Started    time.Time `json:"started"`
	DeadlineMS int64     `json:"deadline_ms,omitempty"` // 0: none
	Paused     bool      `json:"paused,omitempty"`
	Runtime    string    `json:"runtime,omitempty"`
}

// Exited says how a sandbox ended. It is sent when nothing of it is left.
type Exited struct {
	ID     string    `json:"id"`
	Cause  string    `json:"cause"` // "", memory, processes, disk, stopped, deadline, owner
	Code   int       `json:"code"`  // exit status, or 128+signal
	Stat   jail.Stat `json:"stat"`  // last figures of its cgroup
	Upper  int64     `json:"upper"` // bytes that the writable layer held at the end
	Unkept string    `json:"unkept,omitempty"`
	// Unix milliseconds: when it ended, and the deadline that it had then.
	EndedMS    int64 `json:"ended_ms,omitempty"`
	DeadlineMS int64 `json:"deadline_ms,omitempty"`
}

// Causes, as in Exited.
const (
	CauseMemory    = "memory"
	CauseProcesses = "processes"
	CauseStopped   = "stopped"
	CauseDeadline  = "deadline"
	CauseOwner     = "owner"
	CauseDisk      = "disk" // the writable layer took what it could not have been given
)

// Facts are what the keeper knows of this host. The second half is only there
// when it was asked to try things out.
type Facts struct {
	Rootless  bool              `json:"rootless"`
	CgroupV2  bool              `json:"cgroup_v2"`
	Missing   map[string]string `json:"missing,omitempty"` // controller -> why it cannot be used
	StateFree int64             `json:"state_free"`        // bytes left where writable layers lie
	CPU       []string          `json:"cpu,omitempty"`     // holes of the processor that nothing here closes
	Notes     []string          `json:"notes,omitempty"`   // what else of this host weakens a promise
	Obstacle  *Obstacle         `json:"obstacle,omitempty"`

	Groups  string `json:"groups,omitempty"`   // why no group could be made, "" if one was
	OwnUIDs string `json:"own_uids,omitempty"` // why sandboxes cannot have host uids of their own
	State   string `json:"state,omitempty"`    // why the state directory cannot be written
	WayOut  string `json:"way_out,omitempty"`  // how to get cgroups here
	Leaks   []Leak `json:"leaks,omitempty"`
}

// An Obstacle is why no sandbox can start on this host, and the command that
// mends it.
type Obstacle struct {
	Why string `json:"why"`
	Fix string `json:"fix"`
}

// Refusal is an error with a code of the api table and a way out.
type Refusal struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Hint    string `json:"hint"`
}

func (r *Refusal) Error() string { return r.Message }

type request struct {
	Seq    uint64  `json:"seq"`
	Op     string  `json:"op"` // see Keeper.do
	Launch *Launch `json:"launch,omitempty"`
	ID     string  `json:"id,omitempty"` // list, ended: what comes behind it

	DeadlineMS int64 `json:"deadline_ms,omitempty"` // deadline
	Probe      bool  `json:"probe,omitempty"`       // facts: try things out
	Version    int   `json:"version,omitempty"`     // hello: the newest protocol spoken
	Oldest     int   `json:"oldest,omitempty"`      // hello: the oldest
	// Gateway names the runtime, below runtimes/, that holds the gateways of the
	// engine that says hello; "" is that of each sandbox. See Client.HelloAs.
	Gateway string `json:"gateway,omitempty"`
}

// A reply to launch and attach carries control (if Control says so), agent,
// upper, the guest's end of the link (if Link says so, never to attach) and the
// files of the gauge; one to control carries that. The event of a gateway
// carries the broker's end of its socket.
type reply struct {
	Seq     uint64             `json:"seq,omitempty"` // 0: an event
	Err     *Refusal           `json:"err,omitempty"`
	PID     int                `json:"pid,omitempty"`
	Control bool               `json:"control,omitempty"`
	Link    bool               `json:"link,omitempty"`
	Gateway string             `json:"gateway,omitempty"` // an event: the sandbox that has a new one
	Gauge   []string           `json:"gauge,omitempty"`   // names of the files of the gauge
	V2      bool               `json:"v2,omitempty"`
	Facts   *Facts             `json:"facts,omitempty"`
	Exited  *Exited            `json:"exited,omitempty"` // an event, or the answer to attach
	Parts   map[string]float64 `json:"parts,omitempty"`  // milliseconds of each step of a launch
	Hello   *Hello             `json:"hello,omitempty"`
	Held    []Held             `json:"held,omitempty"`
	Past    []Exited           `json:"past,omitempty"`
	More    bool               `json:"more,omitempty"` // of Held or Past
	Gone    bool               `json:"gone,omitempty"` // no such sandbox
}

const (
	maxMessage = 64 << 10
	maxFiles   = 16
)

var (
	idShape    = regexp.MustCompile(`^[a-z0-9]{24,40}$`)
	imageShape = regexp.MustCompile(`^[a-z0-9]{16,64}$`)
)

func send(c *net.UnixConn, v any, files ...*os.File) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(b) > maxMessage {
		return fmt.Errorf("message of %d bytes is over %d", len(b), maxMessage)
	}
	var oob []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			fds[i] = int(f.Fd())
		}
		oob = unix.UnixRights(fds...)
	}
	_, _, err = c.WriteMsgUnix(b, oob, nil)
	return err
}

func receive(c *net.UnixConn, buf []byte, v any) ([]*os.File, error) {
	oob := make([]byte, unix.CmsgSpace(maxFiles*4))
	n, oobn, flags, _, err := c.ReadMsgUnix(buf, oob)
	if err != nil {
		return nil, err
	}
	files := jail.Rights(oob[:oobn])
	if n == 0 {
		closeAll(files)
		return nil, io.EOF
	}
	if flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		closeAll(files)
		return nil, errors.New("message cut short")
	}
	if err := json.Unmarshal(buf[:n], v); err != nil {
		closeAll(files)
		return nil, err
	}
	return files, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}
