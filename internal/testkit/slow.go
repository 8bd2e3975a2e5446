package testkit

import (
	"os"
	"strconv"
	"testing"
	"time"
)

// slowly is a bound for a machine that is slower than others by the factor in
// BERM_SLOW, as an emulated one is.
func slowly(d time.Duration) time.Duration { return d * time.Duration(slowness()) }

// slowness is the factor, 1 for an ordinary machine.
func slowness() int {
	if n, err := strconv.Atoi(os.Getenv("BERM_SLOW")); err == nil && n > 1 {
		return n
	}
	return 1
}

// either is a number for ordinary machines, or the one for slow ones.
func either[T any](usual, slow T) T {
	if slowness() > 1 {
		return slow
	}
	return usual
}

// skipSlow counts what is left out on a slow machine, by name and reason.
func skipSlow(t *testing.T, name, why string) {
	if slowness() > 1 {
		t.Run(name, func(t *testing.T) { t.Skip("this machine is emulated (BERM_SLOW): " + why) })
	}
}
