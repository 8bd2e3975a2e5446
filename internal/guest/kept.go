package guest

import (
	"context"
	"io"
	"sync"
	"syscall"
	"time"
)

// Attach reads the kept output of a process from offset on, which counts the
// bytes of both streams; with follow until it has ended, else up to what there
// is. While whoever follows is behind and reads on, the process waits rather
// than have output dropped. Only Chunk, Read, Exit and Close of what is
// returned are of use here.
func (c *Client) Attach(ctx context.Context, id string, offset int64, follow bool) (*Process, error) {
	if offset < 0 || offset > maxOffset {
		return nil, &Error{Op: "attach", Path: id, Errno: int(syscall.EINVAL), Text: "no such offset"}
	}
	r := ProcessRequest{ID: id, Offset: offset, Follow: follow}
	ca, err := c.begin(ctx, MethodAttach, "attach", id, r.Append(nil))
	if err != nil {
		return nil, err
	}
	return &Process{ca: ca, op: "attach", id: id, pos: offset}, nil
}

// Info is what the guest said of an attached process when Chunk had returned
// io.EOF; before that, and of other processes, it is empty.
func (p *Process) Info() ProcessInfo {
	select {
	case <-p.ca.replied:
		return p.ca.info
	default:
		return ProcessInfo{}
	}
}

// Wait is Start for a process that was started before, in this attachment or an
// earlier one: it has no output, but what is seen of it, and its exit.
func (c *Client) Wait(ctx context.Context, id string) (*Process, error) {
	r := ProcessRequest{ID: id}
	ca, err := c.begin(ctx, MethodWait, "wait", id, r.Append(nil))
	if err != nil {
		return nil, err
	}
	return &Process{ca: ca, op: "wait", id: id}, nil
}

// Processes lists what runs of all that was started, whoever started it, and of
// what was started with Keep also the latest that have ended.
func (c *Client) Processes(ctx context.Context) ([]ProcessInfo, error) {
	ca, err := c.open(ctx, MethodProcs, nil)
	if err != nil {
		return nil, err
	}
	defer ca.cancel()
	var out []ProcessInfo
	room := 4 << 20
	for es := (entries{ca: ca}); ; {
		b, err := es.next(ctx)
		if err == io.EOF {
			return out, ca.err("list processes", "")
		}
		if err != nil {
			return nil, err
		}
		var p ProcessInfo
		if room -= len(b); room < 0 || len(out) >= maxProcesses || !p.Decode(b) {
			return nil, c.lie("malformed list of processes")
		}
		out = append(out, p)
	}
}

// Signal does what Process.Signal does, for the process of that ID.
func (c *Client) Signal(ctx context.Context, id string, sig int) error {
	return c.tell(ctx, "signal", ProcessRequest{ID: id, Signal: sig})
}

// Resize does what Process.Resize does, for the process of that ID.
func (c *Client) Resize(ctx context.Context, id string, rows, cols uint16) error {
	return c.tell(ctx, "resize", ProcessRequest{ID: id, Rows: rows, Cols: cols})
}

func (c *Client) tell(ctx context.Context, op string, r ProcessRequest) error {
	_, err := c.simple(ctx, MethodTell, op, r.ID, r.Append(nil))
	return err
}

// An Input writes to the standard input of a kept process.
type Input struct {
	ca   *call
	ctx  context.Context
	id   string
	free func() bool // of the watch over ctx

	mu   sync.Mutex
	over bool
}

// Stdin opens the standard input of a process that was started with Keep and
// Stdin, or with a terminal. Several may be open; what one writes stays
// in order. ctx bounds all of its use: when it ends, what was written and not yet
// taken may be lost.
func (c *Client) Stdin(ctx context.Context, id string) (*Input, error) {
	r := ProcessRequest{ID: id}
	ca, err := c.begin(ctx, MethodStdin, "stdin", id, r.Append(nil))
	if err != nil {
		return nil, err
	}
	return &Input{ca: ca, ctx: ctx, id: id, free: context.AfterFunc(ctx, ca.cancel)}, nil
}

// Write sends b. It waits while the process does not read, and fails with EPIPE
// once nothing will read it any more.
func (in *Input) Write(b []byte) (int, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.over {
		return 0, io.ErrClosedPipe
	}
	n, err := in.ca.put(in.ctx, b)
	if err == nil && n < len(b) {
		err = syscall.EPIPE
	}
	return n, err
}

// Leave waits until the process, or its pipe, has taken everything that was
// written, and leaves the standard input open for others.
func (in *Input) Leave() error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.over {
		return nil
	}
	in.over = true
	defer in.free()
	if err := in.ca.end(in.ctx); err != nil {
		in.ca.cancel()
		return err
	}
	if err := in.ca.wait(in.ctx); err != nil {
		return err
	}
	return in.ca.err("stdin", in.id)
}

// Close does what Leave does and then ends the standard input; on a terminal it
// types the end of file.
func (in *Input) Close() error {
	if err := in.Leave(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(in.ctx, patience+5*time.Second)
	defer cancel()
	return in.ca.c.tell(ctx, "close stdin", ProcessRequest{ID: in.id, CloseStdin: true})
}
