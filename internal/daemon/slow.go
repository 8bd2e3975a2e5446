package daemon

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/bermhq/berm/internal/image"
)

const (
	slowAfter = time.Second     // nothing is said about a start that is shorter
	slowEvery = 3 * time.Second // how often it is said how far the template is
)

// A slow tells on standard error why a start takes long, in whole lines: it
// may be a journal.
type slow struct {
	w     io.Writer
	timer *time.Timer

	mu   sync.Mutex
	last time.Time // zero: nothing was said yet
	over bool
}

func newSlow(w io.Writer) *slow {
	s := &slow{w: w}
	s.timer = time.AfterFunc(slowAfter, func() { s.say("berm: getting ready; the first start makes the template from the tools of this host\n") })
	return s
}

func (s *slow) say(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		s.last = time.Now()
		io.WriteString(s.w, line)
	}
}

// image says how far the template is.
func (s *slow) image(p image.Progress) {
	s.mu.Lock()
	due := !s.last.IsZero() && time.Since(s.last) >= slowEvery
	s.mu.Unlock()
	if !due {
		return
	}
	line := "berm: template: " + p.Phase
	if p.Total > 0 {
		line += fmt.Sprintf(" %d of %d MiB", p.Done>>20, p.Total>>20)
	}
	s.say(line + "\n")
}

// end is when the start goes on to what is quick.
func (s *slow) end() {
	s.timer.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
}
