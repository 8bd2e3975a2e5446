package keeper

import (
	"errors"
	"fmt"
	"net"
	"time"
)

// up is what a keeper says to its owner when it can launch.
const up = "up"

// maxUp bounds what it says when it cannot.
const maxUp = 4 << 10

// Up waits until the keeper at the other end of owner, which runs Run, can
// launch, and says why if it cannot.
func Up(owner *net.UnixConn, timeout time.Duration) error {
	owner.SetReadDeadline(time.Now().Add(timeout))
	defer owner.SetReadDeadline(time.Time{})
	b := make([]byte, maxUp)
	n, err := owner.Read(b)
	switch {
	case n == 0 && err != nil:
		return fmt.Errorf("the keeper did not come up: %w", err)
	case string(b[:n]) != up:
		return errors.New(string(b[:n]))
	}
	return nil
}
