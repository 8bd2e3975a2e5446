package cli

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// patience is how long a phase may take before anything is said about it.
const patience = 500 * time.Millisecond

// A progress shows on a terminal what takes long. The zero value shows nothing.
type progress struct {
	w io.Writer

	mu    sync.Mutex
	name  string
	item  string
	since time.Time
	timer *time.Timer
	shown int // length of the line on the screen
	last  time.Time
	done  int64
	total int64
}

// phase begins a phase; an empty name ends the last.
func (p *progress) phase(name string) { p.update(name, 0, 0) }

// update says how far a phase is. It is cheap, however often it is called.
func (p *progress) update(name string, done, total int64) { p.detail(name, "", done, total) }

// maxItem bounds what is shown of what a phase is at.
const maxItem = 40

// say writes a line that stays, above the one that changes.
func (p *progress) say(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	fmt.Fprintln(p.w, line)
	if p.name != "" && time.Since(p.since) >= patience {
		p.draw()
	}
}

// detail is update with what the phase is at.
func (p *progress) detail(name, item string, done, total int64) {
	if p.w == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if name != p.name {
		p.clear()
		p.name, p.since = name, time.Now()
		if p.timer != nil {
			p.timer.Stop()
			p.timer = nil
		}
		if name != "" {
			p.timer = time.AfterFunc(patience, func() {
				p.mu.Lock()
				defer p.mu.Unlock()
				if p.name == name {
					p.draw()
				}
			})
		}
	}
	p.item, p.done, p.total = clipped(item, maxItem), done, total
	if name != "" && time.Since(p.since) >= patience && time.Since(p.last) >= 100*time.Millisecond {
		p.draw()
	}
}

func (p *progress) draw() {
	p.last = time.Now()
	line := "berm: " + oneLine(p.name)
	if p.total > 0 {
		const width = 24
		done := min(max(p.done, 0), p.total)
		full := int(float64(done) / float64(p.total) * width)
		line += fmt.Sprintf(" [%s%s] %3.0f%%", strings.Repeat("=", full), strings.Repeat(" ", width-full), float64(done)/float64(p.total)*100)
	}
	if p.item != "" {
		line += " " + oneLine(p.item)
	}
	pad := max(0, p.shown-len(line))
	fmt.Fprintf(p.w, "\r%s%s", line, strings.Repeat(" ", pad))
	p.shown = len(line)
}

func (p *progress) clear() {
	if p.shown > 0 {
		fmt.Fprintf(p.w, "\r%s\r", strings.Repeat(" ", p.shown))
		p.shown = 0
	}
}
