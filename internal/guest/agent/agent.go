// Package agent is the server end of the guest protocol: it runs as the first
// process of a sandbox and does what the host asks over one byte stream.
package agent

import (
	"context"
	"io"
)

// A Host is the machine that an agent serves.
type Host interface{ Root() string }

// Serve answers the host at the other end of rw until the stream ends.
func Serve(ctx context.Context, rw io.ReadWriteCloser, h Host) error { return nil }

// NewLocal returns a Host for tests: built-in commands and files below dir.
func NewLocal(dir string) Host { return nil }
