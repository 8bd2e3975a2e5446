package template

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/image"
	"github.com/bermhq/berm/internal/jail"
)

// A Client has one socket to the process that serves it. For each call it asks
// for a socket of its own (one byte, and the answer is a descriptor): a call is
// one request, whatever progress there is, and one answer; the end of its socket
// is the end of the call, on either side. Bytes in and out go through
// descriptors that come with the request.

// A request is the first message of a call.
type request struct {
	Call   string `json:"call"` // resolve, list, get, remove, cached, do, export
	Name   string `json:"name,omitempty"`
	Format string `json:"format,omitempty"`
	Job    *Job   `json:"job,omitempty"`
	In     bool   `json:"in,omitempty"` // a descriptor to read from came along; export: one to write to
}

// An answer is what a call ends with.
type answer struct {
	Error     *api.Error     `json:"error,omitempty"`
	Cancelled bool           `json:"cancelled,omitempty"`
	Root      *image.Root    `json:"root,omitempty"`
	Templates []api.Template `json:"templates,omitempty"`
	Template  *api.Template  `json:"template,omitempty"`
	OK        bool           `json:"ok,omitempty"`
	Made      *Made          `json:"made,omitempty"`
}

// Bounds on what goes over the wire, in bytes.
const (
	maxRequest = 160 << 10 // one message
	maxPart    = 64 << 10  // of an answer, in one message
	maxAnswer  = 32 << 20
)

// Kinds of the messages of an answer: their first byte.
const (
	msgProgress = 'p' // a TemplateProgress
	msgPart     = 'a' // a part of the answer
	msgEnd      = 'e' // its last one
)

// sendAnswer sends an answer in parts.
func sendAnswer(c *net.UnixConn, a answer) error {
	b, err := json.Marshal(a)
	if err != nil {
		return err
	}
	for {
		kind, part := byte(msgEnd), b
		if len(b) > maxPart {
			kind, part = msgPart, b[:maxPart]
		}
		b = b[len(part):]
		if _, err := c.Write(append([]byte{kind}, part...)); err != nil || kind == msgEnd {
			return err
		}
	}
}

// hearAnswer reads messages up to the end of an answer.
func hearAnswer(c *net.UnixConn, progress func(api.TemplateProgress)) (a answer, err error) {
	var all []byte
	b := make([]byte, maxPart+1)
	for {
		n, err := c.Read(b)
		if err == nil && n == 0 {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return a, err
		}
		switch msg := b[1:n]; b[0] {
		case msgProgress:
			var p api.TemplateProgress
			if err := json.Unmarshal(msg, &p); err != nil {
				return a, err
			}
			if progress != nil {
				progress(p)
			}
		case msgPart, msgEnd:
			if all = append(all, msg...); len(all) > maxAnswer {
				return a, errors.New("the answer is too long")
			}
			if b[0] == msgEnd {
				return a, json.Unmarshal(all, &a)
			}
		default:
			return a, fmt.Errorf("a message of kind %q", b[0])
		}
	}
}

// sendFile sends a message with a descriptor, or without one.
func sendFile(c *net.UnixConn, b []byte, f *os.File) error {
	var oob []byte
	if f != nil {
		oob = unix.UnixRights(int(f.Fd()))
	}
	_, _, err := c.WriteMsgUnix(b, oob, nil)
	return err
}

// hearFile reads a message and the descriptor that came with it, if one did.
func hearFile(c *net.UnixConn, b []byte) (int, *os.File, error) {
	oob := make([]byte, unix.CmsgSpace(4))
	n, oobn, flags, _, err := c.ReadMsgUnix(b, oob)
	fs := jail.Rights(oob[:oobn])
	if err == nil && flags&unix.MSG_TRUNC != 0 {
		err = errors.New("a message is too long")
	}
	if err == nil && n == 0 {
		err = io.EOF
	}
	if err != nil || len(fs) != 1 {
		for _, f := range fs {
			f.Close()
		}
		return n, nil, err
	}
	return n, fs[0], nil
}
