package daemon

import (
	"strings"
	"testing"
	"time"

	"github.com/bermhq/berm/internal/image"
)

func TestSlow(t *testing.T) {
	var out strings.Builder
	s := newSlow(&out)
	s.timer.Stop()
	s.image(image.Progress{Phase: image.PhaseScan}) // a start that is quick says nothing
	if out.Len() > 0 {
		t.Fatalf("said %q too early", &out)
	}
	s.last = time.Now().Add(-slowEvery)
	s.image(image.Progress{Phase: image.PhaseCopy, Done: 3 << 20, Total: 9 << 20})
	s.image(image.Progress{Phase: image.PhaseCopy, Done: 4 << 20, Total: 9 << 20}) // too soon
	if want := "berm: template: copy 3 of 9 MiB\n"; out.String() != want {
		t.Errorf("said %q, want %q", &out, want)
	}
	s.end()
	s.say("more\n")
	if strings.Contains(out.String(), "more") {
		t.Error("spoke after the end")
	}
}
