package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bermhq/berm/api"
)

// A cap is worth a line only where it may explain something.
func TestTellsOfProcesses(t *testing.T) {
	for _, tt := range []struct {
		ending string
		code   int
		want   int // lines that name the cap
	}{
		{api.EndExit, 0, 0}, {api.EndExit, 1, 1}, {api.EndSignal, 139, 1}, {api.EndProcesses, 123, 1}, {api.EndTimeout, 124, 1},
	} {
		f, err := os.Create(filepath.Join(t.TempDir(), "err"))
		if err != nil {
			t.Fatal(err)
		}
		r := &runner{env: &Env{Stderr: f}, report: api.RunReport{
			Ending: tt.ending, ExitCode: tt.code, CapsHit: []string{api.CapProcesses}, Limits: api.Limits{Pids: 7},
		}}
		r.tell()
		f.Close()
		b, _ := os.ReadFile(f.Name())
		if n := strings.Count(string(b), "cap of 7"); n != tt.want {
			t.Errorf("%s %d: %q", tt.ending, tt.code, b)
		}
	}
}
