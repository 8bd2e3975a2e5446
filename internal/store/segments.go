package store

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"hash/maphash"
	"path/filepath"
	"sync"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/audit"
)

const (
	// maxBatch is the most that is written before an fsync, so the most that a
	// crash can tear.
	maxBatch = 8 << 20
	maxTorn  = maxBatch + audit.MaxLine
	edge     = 4 << 10 // the first and the last line of a segment are shorter
)

// segments are the files of the log. One goroutine writes; mu guards what
// readers look at.
type segments struct {
	d    disk
	dir  string
	now  func() time.Time
	seed maphash.Seed
	key  ed25519.PrivateKey
	pub  string

	mu     sync.RWMutex
	list   []segment // in order, the last may be open
	off    int64     // bytes of the open one that are on disk for sure
	anchor []byte    // the line before a log without its first segments

	chain  audit.Chain // behind the last line that is on disk for sure
	start  audit.Chain // where the open segment begins
	tail   file        // of the open segment; nil: to be opened again first
	repair *repair     // what open cut off and nobody recorded yet
	known  *api.Head   // how far the log was at least; nil: there was none
	stale  []string    // what the anchor gave up before a crash
}

// segment is one file.
type segment struct {
	n      int
	first  uint64
	last   uint64 // first-1 while it is empty
	link   audit.Hash
	began  time.Time
	ended  time.Time
	size   int64 // of a sealed one
	sealed bool
	names  *sieve // nil: not made yet
}

// repair is a torn tail that was cut off.
type repair struct {
	Segment int    `json:"segment"`
	Offset  int64  `json:"offset"`
	Bytes   int64  `json:"bytes"`
	SHA256  string `json:"sha256"`
	Why     string `json:"why"`
}

func segmentName(n int) string { return fmt.Sprintf("%06d.log", n) }

func (g *segments) path(name string) string { return filepath.Join(g.dir, name) }

// ready makes sure that the open segment can be written. After a failed write or
// fsync it reads the file again: what the kernel says of such a file afterwards
// is worth nothing, only what was on disk before counts. The rest is cut off.
func (g *segments) ready() error {
	if g.tail != nil {
		return nil
	}
	if len(g.list) == 0 || g.list[len(g.list)-1].sealed {
		return g.begin()
	}
	f, err := g.d.open(g.path(segmentName(g.list[len(g.list)-1].n)))
	if err != nil {
		return err
	}
	c, off, _, bad, err := follow(f, g.off, g.start, nil)
	if err == nil && (bad != nil || off != g.off || c.Last != g.chain.Last) {
		err = errors.New("the log on disk is not what was written to it")
	}
	if err == nil {
		err = f.Truncate(g.off)
	}
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		f.Close()
		return err
	}
	g.tail = f
	return nil
}

// inPlace sees to it that nothing is written into a file that nobody will find.
func (g *segments) inPlace() error {
	if g.tail == nil {
		return nil
	}
	same, err := g.d.same(g.tail, g.path(segmentName(g.list[len(g.list)-1].n)))
	if err == nil && same {
		return nil
	}
	g.tail.Close()
	g.tail = nil
	if err == nil {
		err = errors.New("its file was moved, removed or replaced")
	}
	return err
}

// begin makes the next segment.
func (g *segments) begin() error {
	n := 1
	if len(g.list) > 0 {
		n = g.list[len(g.list)-1].n + 1
	}
	now := g.now().UTC()
	body, err := audit.Encode(audit.Segment{V: 1, N: n, FirstSeq: max(g.chain.NextSeq, 1), Key: g.pub, Time: stamp(now)})
	if err != nil {
		return err
	}
	line, _ := audit.Append(nil, g.chain.Last, audit.KindSegment, body)
	c := g.chain
	if _, err := c.Next(line); err != nil {
		return err
	}
	f, err := g.d.create(g.path(segmentName(n)))
	if err != nil {
		return err
	}
	if _, err = f.WriteAt(line, 0); err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = g.d.syncDir(g.dir)
	}
	if err != nil {
		f.Close()
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.list = append(g.list, segment{n: n, first: c.FirstSeq, last: c.FirstSeq - 1, link: g.chain.Last, began: now, names: new(sieve)})
	g.start, g.chain, g.tail, g.off = g.chain, c, f, int64(len(line))
	return nil
}

// write puts lines on disk, which bring the chain to next.
func (g *segments) write(lines []byte, next audit.Chain) error {
	_, err := g.tail.WriteAt(lines, g.off)
	if err == nil {
		err = g.tail.Sync()
	}
	if err != nil {
		g.tail.Close()
		g.tail = nil
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.off += int64(len(lines))
	g.chain = next
	g.list[len(g.list)-1].last = next.NextSeq - 1
	return nil
}

// seal ends the open segment with a signature.
func (g *segments) seal() (audit.Seal, error) {
	now := g.now().UTC()
	s := audit.Seal{N: g.chain.Segment, FirstSeq: g.chain.FirstSeq, LastSeq: g.chain.NextSeq - 1,
		Records: g.chain.NextSeq - g.chain.FirstSeq, Time: stamp(now)}
	s.Sign(g.key, g.chain.Last)
	body, err := audit.Encode(s)
	if err != nil {
		return s, err
	}
	line, _ := audit.Append(nil, g.chain.Last, audit.KindSeal, body)
	c := g.chain
	if _, err := c.Next(line); err != nil {
		return s, err
	}
	if err := g.write(line, c); err != nil {
		return s, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	last := &g.list[len(g.list)-1]
	last.sealed, last.ended, last.size = true, now, g.off
	err = g.tail.Close()
	g.tail = nil
	return s, err
}

func (g *segments) close() error {
	if g.tail == nil {
		return nil
	}
	err := g.tail.Close()
	g.tail = nil
	return err
}

// stamp is how times are written.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
