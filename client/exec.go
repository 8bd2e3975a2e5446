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
// ctx ends or when the program did not end by itself: see Unread.
func (c *Client) Exec(ctx context.Context, id string, req api.ExecRequest, sio Stdio) (api.ExecResult, error) {
	body, err := json.Marshal(req)
	if err != nil {
		return api.ExecResult{}, err
	}
	resp, err := c.do(ctx, http.MethodPost, sandboxPath(id, "/exec"), bytes.NewReader(body), http.Header{
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
	x := &execution{conn: conn, sio: sio, done: make(chan struct{}), acks: make(chan int, 1), out: newOutlet(func() { conn.Close() })}
	defer conn.Close()
	defer close(x.done)
	stop := context.AfterFunc(ctx, func() { conn.Close(); x.out.raise(0, true) })
	defer stop()
	defer x.out.watch(time.Duration(req.TimeoutSeconds * float64(time.Second)))()
	if req.Stdin || req.TTY {
		if sio.Stdin == nil {
			x.sio.Stdin = bytes.NewReader(nil)
		}
		go x.sendStdin()
	}
	if sio.Resize != nil || sio.Signal != nil {
		go x.sendEvents()
	}
	res, err := x.receive()
	patience := unreadAfter
	if err == nil && (res.Ending == api.EndExit || res.Ending == api.EndSignal) {
		patience = 0
	}
	lost, left, werr := x.out.drain(ctx, patience)
	switch {
	case ctx.Err() != nil && (err != nil || left):
		err = context.Cause(ctx)
	case werr != nil:
		err = fmt.Errorf("%w: %w", ErrOutput, werr)
	}
	if left || lost > 0 && werr == nil {
		err = &Unread{Lost: lost, Err: err}
	}
	return res, err
}

// An execution is the client's end of one upgraded connection.
type execution struct {
	conn io.ReadWriteCloser
	sio  Stdio
	done chan struct{}
	acks chan int
	out  *outlet

	mu sync.Mutex // one frame at a time
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
func (x *execution) receive() (api.ExecResult, error) {
	r := bufio.NewReaderSize(x.conn, 32<<10)
	buf := make([]byte, api.MaxFrame)
	var ahead int // acks that stdin has not taken yet
	for {
		var h [api.FrameHeader]byte
		if _, err := io.ReadFull(r, h[:]); err != nil {
			return api.ExecResult{}, fmt.Errorf("exec: the server broke off: %w", err)
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
			return api.ExecResult{}, fmt.Errorf("exec: the server broke off: %w", err)
		}
		switch kind {
		case api.FrameStdout:
			x.out.put(x.sio.Stdout, p)
		case api.FrameStderr:
			x.out.put(x.sio.Stderr, p)
		case api.FrameAck:
			if len(p) != 4 {
				return api.ExecResult{}, fmt.Errorf("exec: the server sent a short ack")
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
