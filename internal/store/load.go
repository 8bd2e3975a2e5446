package store

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bermhq/berm/audit"
)

// load reads what is there, finishes what a crash left half done, and cuts off a
// last record that is not whole. Anything else that is wrong is a *DamageError,
// and then every file is as it was.
func (g *segments) load() error {
	names, err := g.d.list(g.dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	var numbers []int
	for _, name := range names {
		if base, ok := strings.CutSuffix(name, ".log"); ok {
			if n, err := strconv.Atoi(base); err == nil && n > 0 && segmentName(n) == name {
				numbers = append(numbers, n)
			}
		}
	}
	if len(numbers) == 0 && g.known != nil && g.known.Seq > 0 {
		return g.damaged("", fmt.Errorf("it is gone, and was at event %d at least", g.known.Seq))
	}
	if err := g.d.mkdir(g.dir); err != nil {
		return err
	}
	if err := g.d.syncDir(filepath.Dir(g.dir)); err != nil {
		return err
	}
	slices.Sort(numbers)
	if err := g.loadKey(len(numbers) == 0); err != nil {
		return err
	}
	if numbers, err = g.loadAnchor(numbers); err != nil {
		return err
	}
	for i, n := range numbers {
		if n != numbers[0]+i {
			return g.damaged(segmentName(numbers[0]+i), errors.New("it is missing"))
		}
		if i < len(numbers)-1 {
			err = g.skim(n)
		} else {
			err = g.scan(n)
		}
		if err != nil {
			return err
		}
	}
	for _, name := range g.stale {
		if err := g.d.remove(g.path(name)); err != nil {
			return err
		}
	}
	return nil
}

func (g *segments) damaged(name string, why error) error {
	d := &DamageError{File: filepath.Join("audit", name), Seq: max(g.chain.NextSeq, 1), Why: why.Error()}
	if g.known != nil {
		d.end = g.known.Seq
	}
	return d
}

// reaches says what is wrong with a log that ends like this, from what is known
// of it.
func (g *segments) reaches(c *audit.Chain) error {
	switch {
	case g.known == nil && c.LastSeq > 0:
		return errors.New("the state of this daemon (state.db) knows of no log, so it is not the one that was here")
	case g.known == nil || g.known.Seq == 0:
		return nil
	case g.known.Key != g.pub:
		return errors.New("it has another key than the log that was here")
	case g.known.Seq > c.LastSeq:
		return fmt.Errorf("it ends at event %d, and was at %d at least", c.LastSeq, g.known.Seq)
	}
	return nil
}

// meet compares the event that is known with the one that is there.
func (g *segments) meet(c *audit.Chain) error {
	if g.known != nil && g.known.Seq > 0 && c.LastSeq == g.known.Seq && c.LastHash.String() != g.known.Hash {
		return fmt.Errorf("event %d is another than it was", c.LastSeq)
	}
	return nil
}

func (g *segments) loadKey(fresh bool) error {
	text, err := contents(g.d, g.path("key"))
	if err != nil {
		return err
	}
	if text == nil {
		if !fresh {
			return g.damaged("key", errors.New("the key that seals segments is missing"))
		}
		seed := make([]byte, ed25519.SeedSize)
		rand.Read(seed)
		text = append(hex.AppendEncode(nil, seed), '\n')
		if err := replace(g.d, g.dir, "key", text); err != nil {
			return err
		}
	}
	seed, err := hex.DecodeString(string(bytes.TrimSuffix(text, []byte("\n"))))
	if err != nil || len(seed) != ed25519.SeedSize {
		return g.damaged("key", errors.New("it is not a key"))
	}
	g.key = ed25519.NewKeyFromSeed(seed)
	g.pub = hex.EncodeToString(g.key.Public().(ed25519.PublicKey))
	return nil
}

// loadAnchor also finds the segments that the anchor gave up before a crash.
func (g *segments) loadAnchor(numbers []int) ([]int, error) {
	line, err := contents(g.d, g.path("anchor"))
	if err != nil || line == nil {
		return numbers, err
	}
	l, err := g.chain.Next(line)
	if err != nil {
		return nil, g.damaged("anchor", err)
	}
	if !g.chain.Key.Equal(g.key.Public()) {
		return nil, g.damaged("anchor", errors.New("it is signed with another key"))
	}
	var a audit.Anchor
	if err := json.Unmarshal(l.Body, &a); err != nil {
		return nil, err
	}
	g.anchor = line
	kept := numbers[:0]
	for _, n := range numbers {
		if n >= a.N {
			kept = append(kept, n)
		} else {
			g.stale = append(g.stale, segmentName(n))
		}
	}
	if len(kept) == 0 {
		return nil, g.damaged(segmentName(a.N), errors.New("it is missing, and the anchor names it"))
	}
	return kept, nil
}

// skim takes in a sealed segment by its first and its last line. What is between
// is read by whoever verifies the log, and here if the known event is there.
func (g *segments) skim(n int) error {
	f, err := g.d.open(g.path(segmentName(n)))
	if err != nil {
		return err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return err
	}
	head := make([]byte, min(size, edge))
	if k, err := f.ReadAt(head, 0); k < len(head) {
		return err
	}
	tail := make([]byte, min(size, edge))
	if k, err := f.ReadAt(tail, size-int64(len(tail))); k < len(tail) {
		return err
	}
	first := head[:bytes.IndexByte(head, '\n')+1]
	last := tail
	if i := bytes.LastIndexByte(bytes.TrimSuffix(tail, []byte("\n")), '\n'); i >= 0 {
		last = tail[i+1:]
	}
	start := g.chain
	if err := g.chain.Skip(first, last); err != nil {
		return g.damaged(segmentName(n), err)
	}
	if !g.chain.Key.Equal(g.key.Public()) {
		return g.damaged(segmentName(n), errors.New("it has another key than the file key"))
	}
	if g.known != nil && g.known.Seq >= g.chain.FirstSeq && g.known.Seq <= g.chain.LastSeq {
		c, _, _, bad, err := follow(f, size, start, g.meet)
		if err != nil {
			return err
		}
		if bad != nil {
			g.chain = c
			return g.damaged(segmentName(n), bad)
		}
	}
	g.list = append(g.list, segment{n: n, first: g.chain.FirstSeq, last: g.chain.LastSeq, link: linkOf(first, start.Last),
		began: timeOf(first), ended: timeOf(last), size: size, sealed: true})
	return nil
}

// linkOf is the hash that a segment's first line gives for the line before it.
// The first segment behind an anchor has it from nowhere else.
func linkOf(first []byte, otherwise audit.Hash) audit.Hash {
	if l, err := audit.Parse(first); err == nil {
		return l.Prev
	}
	return otherwise
}

func timeOf(line []byte) time.Time {
	var at struct {
		Time time.Time `json:"time"`
	}
	if l, err := audit.Parse(line); err == nil {
		_ = json.Unmarshal(l.Body, &at)
	}
	return at.Time
}

// scan takes in the last segment line by line.
func (g *segments) scan(n int) error {
	f, err := g.d.open(g.path(segmentName(n)))
	if err != nil {
		return err
	}
	if err := g.scanFile(f, n); err != nil {
		f.Close()
		return err
	}
	if g.tail == nil {
		return f.Close()
	}
	return nil
}

// scanFile keeps f as the tail if it is open.
func (g *segments) scanFile(f file, n int) error {
	size, err := f.Size()
	if err != nil {
		return err
	}
	start := g.chain
	c, off, seg, bad, err := follow(f, size, start, g.meet)
	if err != nil {
		return err
	}
	whole := bad
	if bad != nil {
		if whole, err = tornOnly(f, off, size, bad); err != nil {
			return err
		}
	}
	if whole == nil && c.Key != nil && !c.Key.Equal(g.key.Public()) {
		whole = errors.New("it has another key than the file key")
	}
	if whole == nil {
		whole = g.reaches(&c)
	}
	if whole != nil {
		g.chain = c
		return g.damaged(segmentName(n), whole)
	}
	if bad != nil {
		if err := g.cut(f, n, off, size, bad); err != nil {
			return err
		}
	}
	// A process that was killed may have written what no fsync followed.
	if err := errors.Join(f.Sync(), g.d.syncDir(g.dir)); err != nil {
		return err
	}
	if off == 0 { // its first line never came to be: begin it again
		return nil
	}
	g.chain, g.start = c, start
	seg.n, seg.first, seg.last = n, c.FirstSeq, c.NextSeq-1
	if seg.sealed = !c.Open; seg.sealed {
		seg.size = off
		g.list = append(g.list, seg)
		return nil
	}
	g.list = append(g.list, seg)
	g.tail, g.off = f, off
	return nil
}

// tornOnly says nil if all that is wrong from off on is a last record that is not
// whole. A batch is written in order and the next one only after its fsync, so a
// crash leaves no end of a line behind the place that it tore: where there is
// one, somebody changed what had been written, and it must not be cut off.
func tornOnly(f io.ReaderAt, off, size int64, bad error) (wrong, err error) {
	if size-off > maxTorn || off == 0 && size > edge { // a first line is short
		return fmt.Errorf("at byte %d: %w", off, bad), nil
	}
	buf := make([]byte, 64<<10)
	for at := off; at < size; {
		n, err := f.ReadAt(buf[:min(int64(len(buf)), size-at)], at)
		if n == 0 {
			return nil, err
		}
		if bytes.IndexByte(buf[:n], '\n') >= 0 {
			return fmt.Errorf("at byte %d: %w", off, bad), nil
		}
		at += int64(n)
	}
	return nil, nil
}

// cut takes a torn record off.
func (g *segments) cut(f file, n int, off, size int64, why error) error {
	r := &repair{Segment: n, Offset: off, Bytes: size - off, Why: why.Error()}
	torn := make([]byte, size-off)
	if k, err := f.ReadAt(torn, off); k < len(torn) {
		return err
	}
	sum := sha256.Sum256(torn)
	r.SHA256 = hex.EncodeToString(sum[:])
	// What was cut is kept beside the log, the newest only: evidence, if it
	// was not a crash. A full disk is no reason to stop here.
	_ = replace(g.d, g.dir, "cut", torn)
	if err := f.Truncate(off); err != nil {
		return err
	}
	g.repair = r
	return nil
}

// follow runs a chain over the first size bytes of f. see, if there is one, looks
// at each line too. bad is what is wrong with the line at off, where it stopped;
// err that f could not be read.
func follow(f io.ReaderAt, size int64, c audit.Chain, see func(*audit.Chain) error) (end audit.Chain, off int64, seg segment, bad, err error) {
	lines := audit.NewReader(io.NewSectionReader(f, 0, size))
	for {
		line, err := lines.Next()
		if errors.Is(err, io.EOF) {
			return c, off, seg, nil, nil
		}
		if errors.Is(err, audit.ErrTorn) || errors.Is(err, audit.ErrTooLong) {
			return c, off, seg, err, nil
		}
		if err != nil {
			return c, off, seg, nil, err
		}
		if off > 0 && !c.Open {
			return c, off, seg, errors.New("a line behind the seal"), nil
		}
		was := c
		l, err := c.Next(line)
		if err == nil && see != nil {
			err = see(&c)
		}
		if err != nil {
			return was, off, seg, err, nil
		}
		switch l.Kind {
		case audit.KindSegment:
			seg.began, seg.link = timeOf(line), l.Prev
		case audit.KindSeal:
			seg.ended = timeOf(line)
		}
		off += int64(len(line))
	}
}
