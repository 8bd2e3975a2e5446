package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/bermhq/berm/api"
)

// A Stdio connects an exec with its caller. The zero value gives the program
// an empty stdin and drops its output.
type Stdio struct {
	Stdin          io.Reader // read only if the request says Stdin or TTY
	Stdout, Stderr io.Writer
	Resize         <-chan [2]uint16 // rows, columns
	Signal         <-chan int
	Lost           func(n int64) // told of output that is no longer kept; nil: nobody is
}

// ErrOutput is wrapped when the caller's own writer failed.
var ErrOutput = errors.New("exec: output could not be written")

// maxAnswer bounds the answer of a plain exec, output in two encodings included.
const maxAnswer = 128 << 20

// ExecPlain runs one command to its end and returns what it said. When ctx ends
// first, so does the command.
func (c *Client) ExecPlain(ctx context.Context, id string, req api.ExecRequest) (a api.ExecAnswer, err error) {
	body, err := json.Marshal(req)
	if err != nil {
		return a, err
	}
	path := sandboxPath(id, "/exec")
	resp, err := c.do(ctx, http.MethodPost, path, bytes.NewReader(body), http.Header{"Content-Type": {"application/json"}})
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	// What goes wrong once the answer has begun comes in its place.
	var got struct {
		api.ExecAnswer
		Code  string `json:"code"`
		Error string `json:"error"`
		Hint  string `json:"hint"`
	}
	if err := decode(resp, maxAnswer, &got, http.MethodPost, path); err != nil {
		return a, err
	}
	if got.Ending == "" {
		if got.Error == "" {
			got.Error = "the server failed without saying why"
		}
		return got.ExecAnswer, &api.Error{Code: got.Code, Message: got.Error, Hint: got.Hint}
	}
	return got.ExecAnswer, nil
}

// Exec runs one command to its end. When ctx ends first, so does the command,
// and the error is ctx's. A writer that takes nothing does not keep Exec when
// ctx ends or when the program did not end by itself: see Unread. A connection
// that breaks ends the command too: see Adrift.
func (c *Client) Exec(ctx context.Context, id string, req api.ExecRequest, sio Stdio) (api.ExecResult, error) {
	x, err := newExecution(req, sio)
	if err != nil {
		return api.ExecResult{}, err
	}
	return x.finish(ctx, func() (api.ExecResult, error) {
		res, err := x.once(ctx, c, id)
		if x.began && Broken(err) && ctx.Err() == nil && !x.out.failed() {
			err = &Adrift{ExecID: req.ExecID, Err: err}
		}
		return res, err
	})
}

// An execution is the client's end of one command.
type execution struct {
	req   api.ExecRequest
	body  []byte
	sio   Stdio
	done  chan struct{}
	acks  chan int
	out   *outlet
	began bool  // the server took it
	at    int64 // bytes of output that came, or are told to be lost

	mu      sync.Mutex // one frame at a time
	conn    io.Writer
	closing bool // all of stdin was sent
	fed     bool // and the program's side has it

	cmu    sync.Mutex
	hangUp func() // ends what brings output now
	stuck  bool   // whatever it is, it ends
}

func newExecution(req api.ExecRequest, sio Stdio) (*execution, error) {
	body, err := json.Marshal(req)
	if err != nil {
		return nil, err
	}
	x := &execution{req: req, body: body, sio: sio, done: make(chan struct{}), acks: make(chan int, 1), fed: !req.Stdin && !req.TTY}
	if x.sio.Stdin == nil {
		x.sio.Stdin = bytes.NewReader(nil)
	}
	x.out = newOutlet(x.cut)
	return x, nil
}

// cut ends what brings output now: nobody can take it.
func (x *execution) cut() {
	x.cmu.Lock()
	defer x.cmu.Unlock()
	x.stuck = true
	if x.hangUp != nil {
		x.hangUp()
	}
}

// onCut sets what cut does; nil is nothing.
func (x *execution) onCut(f func()) {
	x.cmu.Lock()
	defer x.cmu.Unlock()
	x.hangUp = f
	if x.stuck && f != nil {
		f()
	}
}

// finish sees to the output of what run brings.
func (x *execution) finish(ctx context.Context, run func() (api.ExecResult, error)) (api.ExecResult, error) {
	defer close(x.done)
	stop := context.AfterFunc(ctx, func() { x.out.raise(0, true) })
	defer stop()
	defer x.out.watch(time.Duration(x.req.TimeoutSeconds * float64(time.Second)))()
	res, err := run()
	patience := unreadAfter
	if err == nil && (res.Ending == api.EndExit || res.Ending == api.EndSignal) {
		patience = 0
	}
	lost, left, werr := x.out.drain(ctx, patience)
	switch {
	case ctx.Err() != nil && (err != nil || left) && !errors.As(err, new(*Adrift)):
		err = context.Cause(ctx)
	case werr != nil:
		err = fmt.Errorf("%w: %w", ErrOutput, werr)
	}
	if left || lost > 0 && werr == nil {
		err = &Unread{Lost: lost, Err: err}
	}
	return res, err
}

// once asks for the command and takes what comes on that connection.
func (x *execution) once(ctx context.Context, c *Client, id string) (api.ExecResult, error) {
	resp, err := c.do(ctx, http.MethodPost, sandboxPath(id, "/exec"), bytes.NewReader(x.body), http.Header{
		"Content-Type": {"application/json"}, "Connection": {"Upgrade"}, "Upgrade": {api.ExecProtocol},
	})
	if err != nil {
		return api.ExecResult{}, err
	}
	conn, ok := resp.Body.(io.ReadWriteCloser)
	if !ok || resp.StatusCode != http.StatusSwitchingProtocols {
		resp.Body.Close()
		return api.ExecResult{}, fmt.Errorf("exec: the server answered %d instead of upgrading", resp.StatusCode)
	}
	defer conn.Close()
	x.mu.Lock()
	x.conn = conn
	x.mu.Unlock()
	x.onCut(func() { conn.Close() })
	defer x.onCut(nil)
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if !x.began && (x.req.Stdin || x.req.TTY) {
		go x.sendStdin()
	}
	if !x.began && (x.sio.Resize != nil || x.sio.Signal != nil) {
		go x.sendEvents()
	}
	x.began = true
	return x.receive(conn)
}

func (x *execution) frame(kind byte, p []byte) error {
	b := make([]byte, api.FrameHeader, api.FrameHeader+len(p))
	api.PutFrameHeader((*[api.FrameHeader]byte)(b), kind, len(p))
	x.mu.Lock()
	defer x.mu.Unlock()
	_, err := x.conn.Write(append(b, p...))
	return err
}

// receive takes the server's frames until the last one.
func (x *execution) receive(conn io.Reader) (api.ExecResult, error) {
	r := bufio.NewReaderSize(conn, 32<<10)
	buf := make([]byte, api.MaxFrame)
	var ahead int // acks that stdin has not taken yet
	for {
		var h [api.FrameHeader]byte
		if _, err := io.ReadFull(r, h[:]); err != nil {
			return api.ExecResult{}, broken{fmt.Errorf("exec: the server broke off: %w", err)}
		}
		kind, size, ok := api.ParseFrameHeader(h)
		if !ok || kind < api.FrameStdout {
			return api.ExecResult{}, fmt.Errorf("exec: the server sent a frame that the protocol does not know (kind %d)", kind)
		}
		if size > len(buf) {
			buf = make([]byte, size)
		}
		p := buf[:size]
		if _, err := io.ReadFull(r, p); err != nil {
			return api.ExecResult{}, broken{fmt.Errorf("exec: the server broke off: %w", err)}
		}
		switch kind {
		case api.FrameStdout:
			x.put(x.sio.Stdout, p)
		case api.FrameStderr:
			x.put(x.sio.Stderr, p)
		case api.FrameLost:
			if len(p) != 8 {
				return api.ExecResult{}, fmt.Errorf("exec: the server sent a short count of lost output")
			}
			n := binary.BigEndian.Uint64(p)
			if n > math.MaxInt64/2 {
				return api.ExecResult{}, fmt.Errorf("exec: the server sent an impossible count of lost output")
			}
			x.lost(int64(n))
		case api.FrameAck:
			if len(p) != 4 {
				return api.ExecResult{}, fmt.Errorf("exec: the server sent a short ack")
			}
			if binary.BigEndian.Uint32(p) == 0 {
				x.mu.Lock()
				x.fed = x.fed || x.closing
				x.mu.Unlock()
			}
			select {
			case more := <-x.acks:
				ahead += more
			default:
			}
			ahead = min(ahead+int(binary.BigEndian.Uint32(p)), api.StdinWindow)
			x.acks <- ahead // there is room: receive is the only sender
			ahead = 0
		case api.FrameResult:
			var res api.ExecResult
			if err := json.Unmarshal(p, &res); err != nil {
				return api.ExecResult{}, fmt.Errorf("exec: result: %w", err)
			}
			return res, nil
		case api.FrameError:
			e := &api.Error{}
			if err := json.Unmarshal(p, e); err != nil || e.Message == "" {
				return api.ExecResult{}, fmt.Errorf("exec: the server failed without saying why")
			}
			return api.ExecResult{}, e
		}
	}
}

func (x *execution) put(w io.Writer, p []byte) {
	x.at += int64(len(p))
	x.out.put(w, p)
}

// lost notes output that is no longer kept.
func (x *execution) lost(n int64) {
	x.at = min(x.at, math.MaxInt64/2) + n
	if x.sio.Lost != nil && n > 0 {
		x.sio.Lost(n)
	}
}

// sendStdin copies stdin, never more ahead of the acks than the window.
func (x *execution) sendStdin() {
	window := api.StdinWindow
	buf := make([]byte, 32<<10)
	for {
		for window <= 0 {
			select {
			case n := <-x.acks:
				window = min(window+n, api.StdinWindow)
			case <-x.done:
				return
			}
		}
		n, err := x.sio.Stdin.Read(buf[:min(len(buf), window)])
		select {
		case <-x.done:
			return
		case a := <-x.acks:
			window = min(window+a, api.StdinWindow)
		default:
		}
		if n > 0 {
			window -= n
			if x.frame(api.FrameStdin, buf[:n]) != nil {
				return
			}
		}
		if err != nil {
			x.mu.Lock()
			x.closing = true
			x.mu.Unlock()
			x.frame(api.FrameStdinClose, nil)
			return
		}
	}
}

// sendEvents passes resizes and signals on.
func (x *execution) sendEvents() {
	for {
		select {
		case <-x.done:
			return
		case s, ok := <-x.sio.Resize:
			if !ok {
				x.sio.Resize = nil
				continue
			}
			x.frame(api.FrameResize, binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, s[0]), s[1]))
		case sig, ok := <-x.sio.Signal:
			if !ok {
				x.sio.Signal = nil
				continue
			}
			x.frame(api.FrameSignal, []byte{byte(sig)})
		}
	}
}
