package jail

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestLower: a limit that is lower already, which only root could raise, is no
// failure.
func TestLower(t *testing.T) {
	var was, now unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &was); err != nil {
		t.Fatal(err)
	}
	for _, want := range []uint64{min(was.Max, 1<<20), 0} {
		if err := lower(unix.RLIMIT_CORE, want); err != nil {
			t.Fatal(err)
		}
	}
	if err := lower(unix.RLIMIT_CORE, 1<<20); err != nil {
		t.Fatal(err)
	}
	if unix.Getrlimit(unix.RLIMIT_CORE, &now); now.Cur != 0 || now.Max != 0 {
		t.Errorf("%+v", now)
	}
}
