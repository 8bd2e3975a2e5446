package agent_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/bermhq/berm/internal/guest"
)

// A source that breaks off is no end, whatever it calls its error.
func TestBrokenSource(t *testing.T) {
	c, dir := local(t, guest.Options{})
	ctx := ctxFor(t, 20*time.Second)
	os.MkdirAll(filepath.Join(dir, "w"), 0o755)
	for _, broken := range []error{io.ErrUnexpectedEOF, io.ErrClosedPipe} {
		r := io.MultiReader(strings.NewReader("part"), iotest.ErrReader(broken))
		if err := c.WriteFile(ctx, "/w/f", 0o644, 0, 0, r); !errors.Is(err, broken) {
			t.Errorf("%v: WriteFile = %v", broken, err)
		}
	}
	if err := c.WriteFile(ctx, "/w/g", 0o644, 0, 0, strings.NewReader("whole")); err != nil {
		t.Error(err)
	}
	left, _ := filepath.Glob(filepath.Join(dir, "w/*"))
	for end := time.Now().Add(5 * time.Second); len(left) != 1 && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		left, _ = filepath.Glob(filepath.Join(dir, "w/*"))
	}
	if len(left) != 1 || filepath.Base(left[0]) != "g" {
		t.Errorf("left: %q", left)
	}
}
