package keeper

import (
	"os"
	"testing"
	"time"
)

// TestWatchDisk: a file that grows behind gVisor's back ends its sandbox, one
// that stays within what a layer takes does not.
func TestWatchDisk(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "upper")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := &sandbox{upper: f, gone: make(chan struct{})}
	defer close(s.gone)
	cause := func() string {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.cause
	}
	const most = 1 << 20
	go s.watchDisk(most, time.Millisecond)
	f.Write(make([]byte, most/2))
	f.Truncate(1 << 30) // a hole takes nothing
	time.Sleep(30 * time.Millisecond)
	if c := cause(); c != "" {
		t.Errorf("ended by %q with half of what it may have", c)
	}
	f.WriteAt(make([]byte, 2*most), 4<<20)
	f.Sync()
	for end := time.Now().Add(2 * time.Second); cause() == "" && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	if c := cause(); c != CauseDisk {
		t.Errorf("ended by %q with twice of what it may have", c)
	}
	blind := &sandbox{gone: make(chan struct{})}
	defer close(blind.gone)
	go blind.watchDisk(most, time.Millisecond)
	for end := time.Now().Add(2 * time.Second); ; time.Sleep(time.Millisecond) {
		blind.mu.Lock()
		c := blind.cause
		blind.mu.Unlock()
		if c == CauseDisk {
			break
		}
		if time.Now().After(end) {
			t.Fatal("a layer that cannot be looked at is taken for a small one")
		}
	}
	if n := int64(512 << 20); overfull(n) <= n {
		t.Error("a full layer is taken for an overfull one")
	}
}
