package testkit

import (
	"os"
	"strconv"
	"time"
)

// slowly is a bound for a machine that is slower than others by the factor in
// BERM_SLOW, as an emulated one is.
func slowly(d time.Duration) time.Duration {
	if n, err := strconv.Atoi(os.Getenv("BERM_SLOW")); err == nil && n > 1 {
		return d * time.Duration(n)
	}
	return d
}
