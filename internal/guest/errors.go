package guest

import (
	"errors"
	"syscall"
)

// ErrProtocol is wrapped by the error of a Client whose guest broke the rules.
var ErrProtocol = errors.New("guest broke the protocol")

// ErrClosed is the error of a Client that was closed by its owner.
var ErrClosed = errors.New("guest connection closed")

// ErrGone is wrapped when the guest's end of the stream went away.
var ErrGone = errors.New("guest is gone")

// ErrBusy says that too many calls are open at once.
var ErrBusy = errors.New("too many calls open to this guest")

// An Error is a refusal by the guest. It matches io/fs errors by its Errno.
type Error struct {
	Op    string
	Path  string
	Errno int // 0 when no errno fits
	Text  string
}

func (e *Error) Error() string {
	s := e.Op
	if e.Path != "" {
		s += " " + e.Path
	}
	return s + ": " + e.Text
}

// Unwrap gives the errno, so errors.Is(err, fs.ErrNotExist) holds.
func (e *Error) Unwrap() error {
	if e.Errno == 0 {
		return nil
	}
	return syscall.Errno(e.Errno)
}

// A protocolError says which rule was broken.
type protocolError string

func (e protocolError) Error() string { return ErrProtocol.Error() + ": " + string(e) }
func (e protocolError) Unwrap() error { return ErrProtocol }
