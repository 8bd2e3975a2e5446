package cli

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
)

// Without a terminal a phase that does not move is told of once, and again after
// a while, so that a log shows that something goes on.
func TestTellerSparse(t *testing.T) {
	out, err := os.Create(filepath.Join(t.TempDir(), "err"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	tell := (&Env{Stderr: out}).teller()
	say := func(done int64) {
		tell.at = time.Now().Add(-time.Hour)
		tell.tell(api.TemplateProgress{Phase: "download", Done: done, Total: 100})
	}
	say(0) // the phase begins
	for _, done := range []int64{50, 100, 100, 100} {
		say(done)
	}
	tell.told = time.Now().Add(-time.Hour)
	say(100)
	const want = "berm: downloading: 50%\nberm: downloading: 100%\nberm: downloading: 100%\n"
	if got, err := os.ReadFile(out.Name()); err != nil || string(got) != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}
