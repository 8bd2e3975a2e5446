package guest

import (
	"context"
	"io"
	"sync"
	"syscall"
	"time"
)

// A Process runs in the guest. One goroutine reads it; the other methods may be
// called from anywhere.
type Process struct {
	ca    *call
	op    string
	id    string
	stdin bool
	kept  bool
	pos   int64      // output up to here was read; the reader's own
	gap   int64      // and so much after it is not kept
	wmu   sync.Mutex // writes stay whole and in order
	input *Input     // of a kept process, once it was written to; under wmu
	life  context.Context
	end   context.CancelFunc // ends life: nobody uses it any more
	ended bool               // stdin, under wmu
}

// Start asks for a process and does not wait for the answer: what came of it is
// in Exit, after the last Read. ctx bounds the call, not the process.
func (c *Client) Start(ctx context.Context, s Start) (*Process, error) {
	if len(s.Args) == 0 || s.Args[0] == "" || s.ID == "" {
		return nil, &Error{Op: "start", Errno: int(syscall.EINVAL), Text: "a process needs an id and a command"}
	}
	ca, err := c.openAs(ctx, MethodStart, s.Keep > 0, s.Append(nil))
	if err != nil {
		return nil, err
	}
	p := &Process{ca: ca, op: "start", id: s.ID, stdin: s.Stdin || s.TTY, kept: s.Keep > 0}
	p.life, p.end = context.WithCancel(context.Background())
	return p, nil
}

// Read returns the next piece of output, in the order in which the guest sent
// it. The bytes are valid until the next Read, which also lets the guest send
// that much more. After the process has ended it returns io.EOF.
func (p *Process) Read(ctx context.Context) (Stream, []byte, error) {
	for {
		c, err := p.Chunk(ctx)
		if err != nil || len(c.Data) > 0 {
			return c.Stream, c.Data, err
		}
	}
}

// Chunk is Read with the place of what was read. A gap at the very end comes
// with no data.
func (p *Process) Chunk(ctx context.Context) (Chunk, error) {
	for {
		kind, b, err := p.ca.next(ctx)
		if err == io.EOF {
			if err := p.ca.err(p.op, p.id); err != nil {
				return Chunk{}, err
			}
			if p.gap > 0 {
				return p.chunk(Stdout, nil), nil
			}
		}
		switch {
		case err != nil:
			return Chunk{}, err
		case kind == KindGap:
			for len(b) > 0 { // several may have come at once
				v, n := consumeVarint(b)
				if n == 0 || v == 0 || v > maxOffset || p.pos+p.gap+int64(v) > maxOffset {
					return Chunk{}, p.ca.c.lie("impossible gap")
				}
				p.gap += int64(v)
				b = b[n:]
			}
		case len(b) == 0:
		case kind == KindDataErr:
			return p.chunk(Stderr, b), nil
		default:
			return p.chunk(Stdout, b), nil
		}
	}
}

// maxOffset is beyond all output that will ever be.
const maxOffset = 1 << 60

func (p *Process) chunk(s Stream, b []byte) Chunk {
	c := Chunk{Stream: s, Offset: p.pos + p.gap, Gap: p.gap, Data: b}
	p.pos, p.gap = c.Offset+int64(len(b)), 0
	return c
}

// Exit is how the process ended; it holds after Read returned io.EOF.
func (p *Process) Exit() Exit {
	select {
	case <-p.ca.replied:
		return p.ca.exit
	default:
		return Exit{}
	}
}

// Seen is the latest that the guest said of caps and peaks, and nothing else;
// it may be asked for at any time, and also holds after the stream broke.
func (p *Process) Seen() Exit {
	e := p.Exit()
	select {
	case <-p.ca.replied:
	default:
		if s := p.ca.seen.Load(); s != nil {
			e = *s
		}
	}
	return Exit{Caps: e.Caps, PidsPeak: e.PidsPeak, MemoryPeak: e.MemoryPeak, DiskPeak: e.DiskPeak}
}

// Write sends to the standard input. It waits while the process does not read,
// and fails with EPIPE once nothing will read it any more.
func (p *Process) Write(b []byte) (int, error) {
	p.wmu.Lock()
	defer p.wmu.Unlock()
	if !p.stdin || p.ended {
		return 0, io.ErrClosedPipe
	}
	if p.kept {
		if p.input == nil {
			in, err := p.ca.c.Stdin(p.life, p.id)
			if err != nil {
				return 0, err
			}
			p.input = in
		}
		return p.input.Write(b)
	}
	n, err := p.ca.put(context.Background(), b)
	if err == nil && n < len(b) {
		err = syscall.EPIPE
	}
	return n, err
}

// CloseStdin ends the standard input; on a terminal it types the end of file.
func (p *Process) CloseStdin() error {
	p.wmu.Lock()
	defer p.wmu.Unlock()
	if !p.stdin || p.ended {
		return nil
	}
	p.ended = true
	select {
	case <-p.ca.replied:
		return nil
	default:
	}
	if p.input != nil {
		return p.input.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if p.kept {
		return p.ca.c.tell(ctx, "close stdin", ProcessRequest{ID: p.id, CloseStdin: true})
	}
	return p.ca.end(ctx)
}

// Resize sets the size of the terminal.
func (p *Process) Resize(rows, cols uint16) error { return p.note(Note{Rows: rows, Cols: cols}) }

// Signal sends sig to the process's group: of a terminal, the foreground one.
func (p *Process) Signal(sig int) error { return p.note(Note{Signal: sig}) }

func (p *Process) note(n Note) error {
	select {
	case <-p.ca.replied:
		return syscall.ESRCH
	default:
	}
	b := AppendFrame(nil, p.ca.c.epoch, p.ca.id, KindNote, n.Append(nil))
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return p.ca.c.queue(ctx, outFrame{b: b})
}

// patience is how long a small message waits for a guest that does not read.
const patience = 5 * time.Second

// Kill ends every descendant of the process, whatever session or group it moved
// to, and returns when the guest says that none is left. It also works after
// the exit, for what was left in the background.
func (p *Process) Kill(ctx context.Context) error { return p.ca.c.Kill(ctx, p.id) }

// Close gives up on the process: it is killed, its output dropped. A process
// with Keep goes on, and so does one that was come to by Attach or Wait. After
// the exit Close does nothing.
func (p *Process) Close() error {
	p.ca.cancel()
	if p.end != nil {
		p.end()
	}
	return nil
}

// Kill does what Process.Kill does, for the process started with that ID in
// this or an earlier attachment.
func (c *Client) Kill(ctx context.Context, id string) error {
	k := ProcessRequest{ID: id}
	ca, err := c.open(ctx, MethodKill, k.Append(nil))
	if err != nil {
		return err
	}
	if err := ca.wait(ctx); err != nil {
		return err
	}
	if err := ca.err("kill", id); err != nil {
		return err
	}
	var r KillReply
	if !r.Decode(ca.reply.Body) {
		return c.lie("malformed answer to kill")
	}
	if r.Left > 0 {
		return &Error{Op: "kill", Path: id, Errno: int(syscall.EBUSY), Text: "processes are left"}
	}
	return nil
}

// lie ends the stream for a message that no agent sends.
func (c *Client) lie(what string) error {
	err := protocolError(what)
	c.fail(err)
	return err
}
