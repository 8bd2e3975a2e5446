package here

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// bigTree makes a tree like a repository with its dependencies: BERM_HERE_FILES
// files, or n.
func bigTree(t testing.TB, n int) string {
	if s, err := strconv.Atoi(os.Getenv("BERM_HERE_FILES")); err == nil {
		n = s
	}
	dir := t.TempDir()
	text := make([]byte, 2000)
	for i := range text {
		text[i] = byte(' ' + i%90)
	}
	for i := range n {
		p := filepath.Join(dir, fmt.Sprintf("node_modules/pkg%d/lib/mod%d", i/200, i/20%10))
		if i%20 == 0 {
			if err := os.MkdirAll(p, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(p, fmt.Sprintf("file%d.js", i)), append(text[:i%2000], fmt.Sprint(i)...), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// BenchmarkUnchanged is what a run pays for a tree that did not change.
func BenchmarkUnchanged(b *testing.B) {
	dir, state, srv := bigTree(b, 5000), b.TempDir(), newFake()
	began := time.Now()
	syncTree(b, dir, state, srv, Options{})
	b.ReportMetric(float64(time.Since(began).Milliseconds()), "ms-first")
	time.Sleep(2100 * time.Millisecond)
	syncTree(b, dir, state, srv, Options{})
	for b.Loop() {
		syncTree(b, dir, state, srv, Options{})
	}
	if srv.puts > 2 {
		b.Errorf("%d uploads", srv.puts)
	}
}
