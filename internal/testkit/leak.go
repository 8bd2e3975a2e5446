package testkit

import (
	"runtime"
	"strings"
	"testing"
	"time"
)

// NoLeak fails a test that leaves goroutines of this module behind. Call it
// first: it checks when the test is over.
func NoLeak(t testing.TB) {
	t.Helper()
	before := len(stacks())
	t.Cleanup(func() {
		var after []string
		for range 100 {
			if after = stacks(); len(after) <= before {
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
		t.Errorf("%d goroutines before, %d after:\n%s", before, len(after), strings.Join(after, "\n\n"))
	})
}

// stacks are the goroutines that run code of this module outside of tests.
func stacks() (out []string) {
	buf := make([]byte, 1<<20)
	buf = buf[:runtime.Stack(buf, true)]
	for s := range strings.SplitSeq(string(buf), "\n\n") {
		if strings.Contains(s, "bermhq/berm/") && !strings.Contains(s, "testing.tRunner") {
			out = append(out, s)
		}
	}
	return out
}
