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
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bermhq/berm/audit"
)

func (g *segments) load() error {
	if err := g.d.mkdir(g.dir); err != nil {
		return err
	}
	if err := g.d.syncDir(filepath.Dir(g.dir)); err != nil {
		return err
	}
	names, err := g.d.list(g.dir)
	if err != nil {
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
	slices.Sort(numbers)
	if err := g.loadKey(len(numbers) == 0); err != nil {
		return err
	}
	if numbers, err = g.loadAnchor(numbers); err != nil {
		return err
	}
	for i, n := range numbers {
		if n != numbers[0]+i {
			return fmt.Errorf("%s is missing", segmentName(numbers[0]+i))
		}
		if i < len(numbers)-1 {
			err = g.skim(n)
		} else {
			err = g.scan(n)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", segmentName(n), err)
		}
	}
	if g.chain.Key != nil && !g.chain.Key.Equal(g.key.Public()) {
		return errors.New("the key is not the one of this log")
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
			return errors.New("the key that seals segments is missing")
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
		return errors.New("the key that seals segments is not a key")
	}
	g.key = ed25519.NewKeyFromSeed(seed)
	g.pub = hex.EncodeToString(g.key.Public().(ed25519.PublicKey))
	return nil
}

func (g *segments) loadAnchor(numbers []int) ([]int, error) {
	line, err := contents(g.d, g.path("anchor"))
	if err != nil || line == nil {
		return numbers, err
	}
	l, err := g.chain.Next(line)
	if err != nil {
		return nil, fmt.Errorf("anchor: %w", err)
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
		} else if err := g.d.remove(g.path(segmentName(n))); err != nil {
			return nil, err
		}
	}
	if len(kept) == 0 {
		return nil, fmt.Errorf("segment %d, which the anchor names, is missing", a.N)
	}
	return kept, nil
}

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
	link := g.chain.Last
	if err := g.chain.Skip(first, last); err != nil {
		return err
	}
	g.list = append(g.list, segment{n: n, first: g.chain.FirstSeq, last: g.chain.LastSeq, link: linkOf(first, link),
		began: timeOf(first), ended: timeOf(last), size: size, sealed: true})
	return nil
}

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

func (g *segments) scan(n int) error {
	f, err := g.d.open(g.path(segmentName(n)))
	if err != nil {
		return err
	}
	size, err := f.Size()
	if err != nil {
		f.Close()
		return err
	}
	start := g.chain
	c, off, seg, bad, err := follow(f, size, start)
	if err != nil {
		f.Close()
		return err
	}
	if bad != nil && (size-off > maxTorn || off == 0 && size > edge) {
		f.Close()
		return fmt.Errorf("damaged at byte %d, and that is not the end that a crash tears: %w", off, bad)
	}
	if bad != nil {
		r := &repair{Segment: n, Offset: off, Bytes: size - off, Why: bad.Error()}
		torn := make([]byte, size-off)
		if k, err := f.ReadAt(torn, off); k < len(torn) {
			f.Close()
			return err
		}
		sum := sha256.Sum256(torn)
		r.SHA256 = hex.EncodeToString(sum[:])
		// What was cut is kept beside the log, the newest only: evidence, if it
		// was not a crash. A full disk is no reason to stop here.
		_ = replace(g.d, g.dir, "cut", torn)
		if err := f.Truncate(off); err != nil {
			f.Close()
			return err
		}
		g.repair = r
	}
	// A process that was killed may have written what no fsync followed.
	if err := errors.Join(f.Sync(), g.d.syncDir(g.dir)); err != nil {
		f.Close()
		return err
	}
	if off == 0 { // its first line never came to be: begin it again
		return f.Close()
	}
	g.chain, g.start = c, start
	seg.n, seg.first, seg.last = n, c.FirstSeq, c.NextSeq-1
	if seg.sealed = !c.Open; seg.sealed {
		seg.size = off
		g.list = append(g.list, seg)
		return f.Close()
	}
	g.list = append(g.list, seg)
	g.tail, g.off = f, off
	return nil
}

func follow(f io.ReaderAt, size int64, c audit.Chain) (end audit.Chain, off int64, seg segment, bad, err error) {
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
		l, err := c.Next(line)
		if err != nil {
			return c, off, seg, err, nil
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
