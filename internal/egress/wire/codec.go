package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
)

// Bounds of what an Ask may hold. A gateway refuses what is longer by itself; it
// never cuts: of a path that was cut nobody knows where it leads.
const (
	MaxName   = 253
	MaxMethod = 32
	MaxPath   = 8 << 10 // a request line is no longer
	MaxWord   = 32      // of Seen, Kind and Reason
	MaxText   = 200
	MaxCount  = 1 << 20
	MaxAddrs  = 32 // in an Answer
)

// ErrMessage is wrapped by every error about a message itself: it is too long,
// not strict JSON, or says what no message says. Whoever gets it hangs up.
var ErrMessage = errors.New("not a message of the wire")

// A Conn is one end of the pair. Messages are whole, so any number of goroutines
// may send; one receives.
type Conn struct {
	c        *net.UnixConn
	buf, oob []byte
}

// NewConn is c, a SOCK_SEQPACKET, as messages.
func NewConn(c *net.UnixConn) *Conn {
	return &Conn{
		c:   c,
		buf: make([]byte, MaxMessage+1),
		oob: make([]byte, syscall.CmsgSpace(8*4)), // more than the one that may come, so that it is seen
	}
}

// Close ends both directions.
func (c *Conn) Close() error { return c.c.Close() }

// SendAsk sends one ask, with write(2): a gateway has no other call to send by.
func (c *Conn) SendAsk(a Ask) error {
	data, err := encode(a)
	if err != nil {
		return err
	}
	_, err = c.c.Write(data)
	return err
}

// SendAnswer sends one answer. fd goes with it unless it is negative; the
// caller's own stays open and is the caller's to close.
func (c *Conn) SendAnswer(a Answer, fd int) error {
	data, err := encode(a)
	if err != nil {
		return err
	}
	if fd < 0 {
		_, err = c.c.Write(data)
		return err
	}
	_, _, err = c.c.WriteMsgUnix(data, syscall.UnixRights(fd), nil)
	return err
}

// ReceiveAsk waits for the next ask. io.EOF is the end; an ask with a
// descriptor is none.
func (c *Conn) ReceiveAsk() (Ask, error) {
	data, fds, err := c.receive()
	if err != nil {
		return Ask{}, err
	}
	if len(fds) > 0 {
		closeAll(fds)
		return Ask{}, fmt.Errorf("an ask with a descriptor: %w", ErrMessage)
	}
	return DecodeAsk(data)
}

// ReceiveAnswer waits for the next answer. fd is negative where none came; else
// it is the caller's, and non-blocking if it was made by Go's net package.
func (c *Conn) ReceiveAnswer() (a Answer, fd int, err error) {
	data, fds, err := c.receive()
	if err != nil {
		return Answer{}, -1, err
	}
	if len(fds) > 1 {
		closeAll(fds)
		return Answer{}, -1, fmt.Errorf("%d descriptors: %w", len(fds), ErrMessage)
	}
	if a, err = DecodeAnswer(data); err != nil {
		closeAll(fds)
		return Answer{}, -1, err
	}
	if len(fds) == 1 {
		return a, fds[0], nil
	}
	return a, -1, nil
}

// receive returns the next message, which is good until the next call.
func (c *Conn) receive() (data []byte, fds []int, err error) {
	n, oobn, flags, _, err := c.c.ReadMsgUnix(c.buf, c.oob)
	if errors.Is(err, io.EOF) {
		return nil, nil, io.EOF // the net package dresses it up
	} else if err != nil {
		return nil, nil, err
	}
	if oobn > 0 {
		list, perr := syscall.ParseSocketControlMessage(c.oob[:oobn])
		for i := range list {
			got, rerr := syscall.ParseUnixRights(&list[i])
			fds, err = append(fds, got...), errors.Join(err, rerr)
		}
		if err = errors.Join(err, perr); err != nil {
			closeAll(fds)
			return nil, nil, fmt.Errorf("%v: %w", err, ErrMessage)
		}
	}
	switch {
	case flags&(syscall.MSG_TRUNC|syscall.MSG_CTRUNC) != 0 || n > MaxMessage:
		closeAll(fds)
		return nil, nil, fmt.Errorf("too long: %w", ErrMessage)
	case n == 0:
		closeAll(fds)
		return nil, nil, io.EOF
	}
	return c.buf[:n], fds, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		syscall.Close(fd)
	}
}

func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	if b.Len() > MaxMessage {
		return nil, fmt.Errorf("%d bytes: %w", b.Len(), ErrMessage)
	}
	return b.Bytes(), nil
}

// strict reads one JSON object without fields that v has not, and nothing after it.
func strict(data []byte, v any) error {
	if len(data) > MaxMessage {
		return fmt.Errorf("%d bytes: %w", len(data), ErrMessage)
	}
	if t := bytes.TrimLeft(data, " \t\r\n"); len(t) == 0 || t[0] != '{' {
		return fmt.Errorf("not an object: %w", ErrMessage) // null would leave v as it is
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return fmt.Errorf("%v: %w", err, ErrMessage)
	}
	if _, err := dec.Token(); err != io.EOF {
		return fmt.Errorf("something after the end: %w", ErrMessage)
	}
	return nil
}

// DecodeAsk reads an ask strictly. What it accepts is an ask in form; whether it
// makes sense is for the broker.
func DecodeAsk(data []byte) (Ask, error) {
	var a Ask
	if err := strict(data, &a); err != nil {
		return Ask{}, err
	}
	answered, known := map[string]bool{
		OpName: true, OpAccept: true, OpConnect: true, OpRequest: true, OpClose: false, OpDenied: false,
	}[a.Op]
	switch {
	case !known:
		return Ask{}, fmt.Errorf("unknown op: %w", ErrMessage)
	case answered != (a.Seq != 0):
		return Ask{}, fmt.Errorf("%s with seq %d: %w", a.Op, a.Seq, ErrMessage)
	case len(a.Name) > MaxName, len(a.Claim) > MaxName, len(a.Method) > MaxMethod, len(a.Path) > MaxPath,
		len(a.Seen) > MaxWord, len(a.Kind) > MaxWord, len(a.Reason) > MaxWord, len(a.Text) > MaxText:
		return Ask{}, fmt.Errorf("too long a text: %w", ErrMessage)
	case a.Count < 0 || a.Count > MaxCount:
		return Ask{}, fmt.Errorf("count %d: %w", a.Count, ErrMessage)
	}
	return a, nil
}

// DecodeAnswer reads an answer strictly.
func DecodeAnswer(data []byte) (Answer, error) {
	var a Answer
	if err := strict(data, &a); err != nil {
		return Answer{}, err
	}
	if len(a.Addrs) > MaxAddrs {
		return Answer{}, fmt.Errorf("%d addresses: %w", len(a.Addrs), ErrMessage)
	}
	return a, nil
}
