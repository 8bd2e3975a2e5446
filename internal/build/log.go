package build

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"unicode/utf8"
)

// Bounds of a build's log.
const (
	maxHead = 1 << 20 // bytes that are kept of its beginning
	maxTail = 1 << 20 // and of its end
	maxLine = 4 << 10
)

// A logbook is what a build has said, line by line, in a bounded space: the
// beginning and the end of it. Lines are made harmless before they are kept.
type logbook struct {
	mu     sync.Mutex
	head   []string
	room   int // of head, in bytes
	tail   []string
	held   int // bytes in tail
	lost   int // lines between them
	over   bool
	change chan struct{} // closed and replaced when there is more
}

func newLogbook() *logbook { return &logbook{room: maxHead, change: make(chan struct{})} }

func (l *logbook) wake() {
	close(l.change)
	l.change = make(chan struct{})
}

// add takes lines; text may hold several.
func (l *logbook) add(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.SplitSeq(text, "\n") {
		line = harmless(line)
		if l.room > 0 {
			l.head = append(l.head, line)
			l.room -= len(line) + 1
			continue
		}
		l.tail = append(l.tail, line)
		for l.held += len(line) + 1; l.held > maxTail; l.lost++ {
			l.held -= len(l.tail[0]) + 1
			l.tail = l.tail[1:]
		}
	}
	l.wake()
}

// close says that no more comes.
func (l *logbook) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	l.wake()
}

// after is what follows the first n lines, how many lines that is with the lost
// ones, and whether that is all there will be.
func (l *logbook) after(n int) (lines []string, next int, over bool, change <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	next = len(l.head) + l.lost + len(l.tail)
	if n < len(l.head) {
		lines = append(lines, l.head[n:]...)
		n = len(l.head)
	}
	skip := n - len(l.head) // of what follows the head
	if skip < l.lost {
		lines = append(lines, fmt.Sprintf("... %d lines left out ...", l.lost-skip))
		skip = l.lost
	}
	if rest := l.tail[min(skip-l.lost, len(l.tail)):]; len(rest) > 0 {
		lines = append(lines, rest...)
	}
	return lines, next, l.over, l.change
}

// lines tells f each line, and with follow those that are still to come.
func (l *logbook) lines(ctx context.Context, follow bool, f func(string) error) error {
	for n := 0; ; {
		lines, next, over, change := l.after(n)
		for _, line := range lines {
			if err := f(line); err != nil {
				return err
			}
		}
		if n = next; over || !follow {
			return nil
		}
		select {
		case <-change:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// harmless is a line without anything that a terminal would obey.
func harmless(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		if b.Len() > maxLine {
			fmt.Fprintf(&b, "... (%d bytes more)", len(s)-i)
			break
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case r == '\t':
			b.WriteByte('\t')
		case r < 0x20 || r == 0x7f:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r >= 0x80 && r < 0xa0 || r == 0x200e || r == 0x200f || r >= 0x2028 && r <= 0x202e || r >= 0x2066 && r <= 0x2069 || r == 0xfeff:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteString(s[i : i+n])
		}
		i += n
	}
	return b.String()
}

// An outlet turns what a program writes into lines of a log. A carriage return
// begins a line anew, as it does on a terminal: progress bars leave their end.
type outlet struct {
	log    *logbook
	prefix string
	line   []byte
	cut    int // bytes of line that were not kept
	last   []string
}

func (o *outlet) write(p []byte) {
	for i, c := range p {
		switch {
		case c == '\n':
			o.flush()
		case c == '\r':
			if i+1 < len(p) && p[i+1] != '\n' {
				o.line, o.cut = o.line[:0], 0
			}
		case len(o.line) < maxLine:
			o.line = append(o.line, c)
		default:
			o.cut++
		}
	}
}

func (o *outlet) flush() {
	text := string(o.line)
	if o.cut > 0 {
		text += fmt.Sprintf("... (%d bytes more)", o.cut)
	}
	o.line, o.cut = o.line[:0], 0
	o.log.add(o.prefix + strings.ReplaceAll(text, "\n", " "))
	if strings.TrimSpace(text) != "" {
		if o.last = append(o.last, harmless(text)); len(o.last) > 5 {
			o.last = o.last[1:]
		}
	}
}

// end keeps a last line that has no end.
func (o *outlet) end() {
	if len(o.line) > 0 {
		o.flush()
	}
}
