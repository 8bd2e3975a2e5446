//go:build !linux

package client

import (
	"errors"
	"os"
)

// unnamed is no flag here: each new file has a name from the start.
const unnamed = 0

func link(*os.File, *os.Root, string) error { return errors.ErrUnsupported }
