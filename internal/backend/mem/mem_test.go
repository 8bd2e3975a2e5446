package mem_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/bermhq/berm/internal/backend"
	"github.com/bermhq/berm/internal/backend/mem"
	"github.com/bermhq/berm/internal/testkit"
)

func TestSuite(t *testing.T) {
	dir := t.TempDir()
	testkit.Backends(t, testkit.Suite{
		New: func(*testing.T) backend.Backend { return mem.New(mem.Options{Dir: dir}) },
		Leaks: func(t *testing.T) []string {
			left, err := filepath.Glob(dir + "/*")
			if err != nil {
				t.Error(err)
			}
			return left
		},
		Restart:  func(_ *testing.T, b backend.Backend) backend.Backend { return b.(*mem.Backend).Restart() },
		Commands: map[string][]string{"exit3": {"exit", "3"}, "spin": {}, "tree": {}, "threads": {}},
		UID:      uint32(os.Getuid()), GID: uint32(os.Getgid()),
	})
}
