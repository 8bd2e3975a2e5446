package audit

import (
	"crypto/ed25519"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"github.com/bermhq/berm/api"
)

// Chain follows a log line by line and holds where it is. The zero value is
// before the first line. A copy of a Chain goes on from the same place.
type Chain struct {
	Segment  int    // number of the file, 0 before the first
	FirstSeq uint64 // of the file
	NextSeq  uint64
	Last     Hash // of the last line
	LastSeq  uint64
	LastHash Hash // of the last event
	Records  uint64
	Segments int
	Sealed   int
	First    uint64 // first seq of all
	Key      ed25519.PublicKey
	Open     bool // a file was begun and not sealed

	anchor *Anchor
}

// Next takes the next line, newline included. An error says what is wrong with
// it; the chain stays where it was.
func (c *Chain) Next(line []byte) (Line, error) {
	l, err := Parse(line)
	if err != nil {
		return l, err
	}
	switch l.Kind {
	case KindAnchor:
		return l, c.anchored(l)
	case KindSegment:
		return l, c.begun(l)
	}
	if !c.Open {
		return l, errors.New("a line outside of any segment")
	}
	if l.Prev != c.Last {
		return l, errors.New("the line does not follow the one before it")
	}
	if l.Kind == KindSeal {
		return l, c.sealed(l)
	}
	seq, ok := EventSeq(l.Body)
	if !ok {
		return l, errors.New("the event is not spelled as an event is")
	}
	if seq != c.NextSeq {
		return l, fmt.Errorf("event %d where %d belongs", seq, c.NextSeq)
	}
	if c.First == 0 {
		c.First = seq
	}
	c.Last, c.LastHash, c.LastSeq = l.Hash, l.Hash, seq
	c.NextSeq++
	c.Records++
	return l, nil
}

func (c *Chain) anchored(l Line) error {
	var a Anchor
	if c.Segment != 0 || c.anchor != nil {
		return errors.New("an anchor in the middle of a log")
	}
	if !decode(l.Body, &a) || a.V != 1 || a.N < 2 || a.FirstSeq == 0 || l.Prev != (Hash{}) {
		return errors.New("the anchor is not spelled as an anchor is")
	}
	key, err := publicKey(a.Key)
	if err != nil || !signedBy(key, a.signed(), a.Signature) {
		return errors.New("the anchor's signature is not of its key")
	}
	c.Key, c.anchor = key, &a
	return nil
}

func (c *Chain) begun(l Line) error {
	var s Segment
	if !decode(l.Body, &s) || s.V != 1 || s.N < 1 || s.FirstSeq == 0 {
		return errors.New("the segment's first line is not spelled as one")
	}
	key, err := publicKey(s.Key)
	switch {
	case err != nil:
		return err
	case c.Key != nil && !c.Key.Equal(key):
		return fmt.Errorf("segment %d names another key than the log before it", s.N)
	case c.Open:
		return fmt.Errorf("segment %d begins before segment %d is sealed", s.N, c.Segment)
	case c.Segment > 0 && s.N != c.Segment+1:
		return fmt.Errorf("segment %d where %d belongs", s.N, c.Segment+1)
	case c.Segment > 0 && (l.Prev != c.Last || s.FirstSeq != c.NextSeq):
		return fmt.Errorf("segment %d does not follow the one before it", s.N)
	case c.Segment == 0 && c.anchor == nil && s.N != 1:
		return fmt.Errorf("the log begins with segment %d, and no anchor says why", s.N)
	case c.Segment == 0 && c.anchor != nil && s.N > c.anchor.N:
		return fmt.Errorf("the log begins with segment %d; only those before %d were removed", s.N, c.anchor.N)
	case s.N == 1 && (l.Prev != (Hash{}) || s.FirstSeq != 1):
		return errors.New("the first segment does not begin at the beginning")
	case c.anchor != nil && s.N == c.anchor.N && (l.Prev.String() != c.anchor.Link || s.FirstSeq != c.anchor.FirstSeq):
		return fmt.Errorf("segment %d is not the one that the anchor names", s.N)
	}
	c.Segment, c.FirstSeq, c.NextSeq = s.N, s.FirstSeq, s.FirstSeq
	c.Last, c.Key, c.Open = l.Hash, key, true
	c.Segments++
	return nil
}

func (c *Chain) sealed(l Line) error {
	var s Seal
	switch {
	case !decode(l.Body, &s):
		return errors.New("the seal is not spelled as a seal is")
	case s.N != c.Segment || s.FirstSeq != c.FirstSeq || s.LastSeq != c.NextSeq-1 || s.Records != c.NextSeq-c.FirstSeq:
		return fmt.Errorf("the seal of segment %d is of another segment", c.Segment)
	case !signedBy(c.Key, s.signed(l.Prev), s.Signature):
		return fmt.Errorf("the signature under segment %d is not of the log's key", c.Segment)
	}
	c.Last, c.Open = l.Hash, false
	c.Sealed++
	return nil
}

// Add writes the next event to dst and moves the chain over it. The body must
// begin with an id and c.NextSeq.
func (c *Chain) Add(dst, body []byte) []byte {
	dst, h := Append(dst, c.Last, KindEvent, body)
	c.Last, c.LastHash, c.LastSeq = h, h, c.NextSeq
	if c.First == 0 {
		c.First = c.NextSeq
	}
	c.NextSeq++
	c.Records++
	return dst
}

// Skip moves the chain over a whole sealed segment of which only the first and
// the last line were read.
func (c *Chain) Skip(first, last []byte) error {
	at := *c
	if l, err := at.Next(first); err != nil {
		return err
	} else if l.Kind != KindSegment {
		return errors.New("a segment does not begin with its first line")
	}
	l, err := Parse(last)
	if err != nil {
		return err
	}
	var s Seal
	if l.Kind != KindSeal || !decode(l.Body, &s) || s.LastSeq+1 < s.FirstSeq {
		return fmt.Errorf("segment %d does not end with a seal", at.Segment)
	}
	at.NextSeq, at.LastSeq, at.Last = s.LastSeq+1, s.LastSeq, l.Prev
	at.Records += s.Records
	if s.Records > 0 {
		at.LastHash = l.Prev
	}
	if at.First == 0 {
		at.First = s.FirstSeq
	}
	if err := at.sealed(l); err != nil {
		return err
	}
	*c = at
	return nil
}

func publicKey(s string) (ed25519.PublicKey, error) {
	k, err := hex.DecodeString(s)
	if err != nil || len(k) != ed25519.PublicKeySize || hex.EncodeToString(k) != s {
		return nil, errors.New("not an ed25519 key")
	}
	return k, nil
}

// Verify reads a log, all segments one after the other and an anchor before
// them where there is one, and says whether it is what was written. With a head
// that was kept elsewhere it proves everything up to there: a log that was cut
// before it fails. An error means that r could not be read.
func Verify(r io.Reader, head *api.Head) (api.Verification, error) {
	v, _, err := Check(r, head)
	return v, err
}

// Check is Verify, and answers the hash of the last event too.
func Check(r io.Reader, head *api.Head) (api.Verification, Hash, error) {
	var c Chain
	v, err := check(&c, r, head)
	return v, c.LastHash, err
}

func check(c *Chain, r io.Reader, head *api.Head) (api.Verification, error) {
	var (
		reached bool // the head's record was found, and it is the same
		lines   = NewReader(r)
	)
	result := func(problem string, at uint64) api.Verification {
		return api.Verification{
			OK: problem == "", FirstSeq: c.First, LastSeq: c.LastSeq, Records: c.Records,
			Segments: c.Segments, Sealed: c.Sealed, Problem: problem, AtSeq: at,
			TailUnproven: problem != "" || !reached || c.LastSeq != head.Seq,
		}
	}
	for {
		line, err := lines.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if errors.Is(err, ErrTorn) || errors.Is(err, ErrTooLong) {
			return result(err.Error(), c.NextSeq), nil
		}
		if err != nil {
			return result("the log could not be read to its end", c.NextSeq), err
		}
		l, err := c.Next(line)
		if err != nil {
			return result(err.Error(), c.NextSeq), nil
		}
		if head == nil {
			continue
		}
		if l.Kind == KindSegment && head.Key != "" && head.Key != hex.EncodeToString(c.Key) {
			return result("the log has another key than the saved head", c.NextSeq), nil
		}
		if l.Kind == KindEvent && c.LastSeq == head.Seq {
			if l.Hash.String() != head.Hash {
				return result("the event is not the one of the saved head", head.Seq), nil
			}
			reached = true
		}
	}
	switch {
	case c.Segment == 0:
		return result("there is no segment in this log", 0), nil
	case c.anchor != nil && c.Segment < c.anchor.N:
		return result(fmt.Sprintf("the log ends before segment %d, which its anchor names", c.anchor.N), c.NextSeq), nil
	case head != nil && head.Seq > c.LastSeq:
		return result(fmt.Sprintf("the log ends at %d; the saved head is %d", c.LastSeq, head.Seq), c.NextSeq), nil
	case head != nil && head.Seq > 0 && !reached:
		return result("the saved head is older than the first event that is kept; keep a newer one", head.Seq), nil
	}
	return result("", 0), nil
}
