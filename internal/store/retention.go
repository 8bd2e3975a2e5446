package store

import (
	"errors"
	"os"
	"time"

	"github.com/bermhq/berm/audit"
)

// surplus is how many of the oldest segments are too old or too much. Only
// sealed ones count, and the last of them stays until there is an open one
// behind it.
func (g *segments) surplus(now time.Time, keep time.Duration, most int64) int {
	total := g.off
	for _, s := range g.list {
		total += s.size
	}
	n := 0
	for n < len(g.list)-1 {
		s := g.list[n]
		if !s.sealed || now.Sub(s.ended) < keep && total <= most {
			break
		}
		total -= s.size
		n++
	}
	return n
}

// keeps says whether retention has left a segment.
func (g *segments) keeps(n int) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return len(g.list) > 0 && n >= g.list[0].n
}

// drop removes the n oldest segments. The anchor goes first: it makes what is
// left a log that verifies, and after a crash says what else to remove.
func (g *segments) drop(n int) error {
	first := g.list[n]
	a := audit.Anchor{V: 1, N: first.n, FirstSeq: first.first, Link: first.link.String(), Key: g.pub, Time: stamp(g.now())}
	a.Sign(g.key)
	body, err := audit.Encode(a)
	if err != nil {
		return err
	}
	line, _ := audit.Append(nil, audit.Hash{}, audit.KindAnchor, body)
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := replace(g.d, g.dir, "anchor", line); err != nil {
		return err
	}
	g.anchor = line
	for _, s := range g.list[:n] {
		if err := g.d.remove(g.path(segmentName(s.n))); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		g.list = g.list[1:]
	}
	return g.d.syncDir(g.dir)
}
