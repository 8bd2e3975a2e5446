package gateway

import (
	"os"
	"runtime"
	"testing"
	"time"
)

func openFiles(t testing.TB) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	return len(list)
}

func goroutines() int { return runtime.NumGoroutine() }

// eventually waits for a condition.
func eventually(t testing.TB, ok func() bool, what func() string) {
	t.Helper()
	for end := time.Now().Add(patienceInTests); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after %v: %s", patienceInTests, what())
		}
	}
}

// settle waits until n connections are open.
func settle(t testing.TB, w *world, n int64) {
	t.Helper()
	eventually(t, func() bool {
		w.fake.mu.Lock()
		defer w.fake.mu.Unlock()
		return w.g.conns.Load() == n && len(w.fake.socks) == int(n)
	}, func() string { return "connections are left" })
}
