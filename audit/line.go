// Package audit is the form of the audit log and the proof that a log is what
// was written. It does no I/O of its own and knows no clock: whoever has a copy
// of a log can check it without the daemon that wrote it.
//
// A log is lines of JSON, each with the hash of the one before and its own:
//
//	{"prev":"HASH","KIND":{...},"hash":"HASH"}
//
// The hash is SHA-256 over the exact bytes of the line before `,"hash":`. KIND
// is one of
//
//	segment  the first line of a file: its number, first seq and the public key
//	event    an api.Event
//	seal     the last line of a file, signed with ed25519
//	anchor   signed; says that retention removed all before some segment
//
// The first line of a file carries the hash of the last line of the file before,
// so all files, one after the other, are one chain. The chain alone shows what
// was changed, moved or taken out of the middle; a seal cannot be made without
// the key; what was cut off the end shows only against a head that was kept
// elsewhere (api.Head).
package audit

import (
	"bufio"
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// MaxLine bounds one line, with its newline.
const MaxLine = 4 << 20

// Kinds of line.
const (
	KindSegment = "segment"
	KindEvent   = "event"
	KindSeal    = "seal"
	KindAnchor  = "anchor"
)

// Hash is the hash of a line.
type Hash [sha256.Size]byte

// String is h in hex.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// Line is one line, taken apart.
type Line struct {
	Kind string
	Prev Hash
	Hash Hash
	Body []byte // the object
}

const (
	prevOpen = `{"prev":"`
	hashOpen = `,"hash":"`
	hashEnd  = "\"}\n"
	hexLen   = 2 * sha256.Size
	// tailLen is everything of a line that is not hashed.
	tailLen = len(hashOpen) + hexLen + len(hashEnd)
	headLen = len(prevOpen) + hexLen
)

// Append adds a line to dst and returns its hash.
func Append(dst []byte, prev Hash, kind string, body []byte) ([]byte, Hash) {
	start := len(dst)
	dst = append(dst, prevOpen...)
	dst = hex.AppendEncode(dst, prev[:])
	dst = append(dst, `","`...)
	dst = append(dst, kind...)
	dst = append(dst, `":`...)
	dst = append(dst, body...)
	h := Hash(sha256.Sum256(dst[start:]))
	dst = append(dst, hashOpen...)
	dst = hex.AppendEncode(dst, h[:])
	return append(dst, hashEnd...), h
}

// Size is how long the line of a body becomes.
func Size(kind string, body []byte) int {
	return headLen + len(`","":`) + len(kind) + len(body) + tailLen
}

var errLine = errors.New("not a line of an audit log")

// Parse takes a line apart, newline included, and checks its own hash. Body
// points into line.
func Parse(line []byte) (Line, error) {
	var l Line
	if len(line) < headLen+tailLen || len(line) > MaxLine || !bytes.HasPrefix(line, []byte(prevOpen)) {
		return l, errLine
	}
	cut := len(line) - tailLen
	tail := line[cut:]
	if !bytes.HasPrefix(tail, []byte(hashOpen)) || !bytes.HasSuffix(tail, []byte(hashEnd)) ||
		!unhex(&l.Prev, line[len(prevOpen):headLen]) || !unhex(&l.Hash, tail[len(hashOpen):len(hashOpen)+hexLen]) {
		return l, errLine
	}
	rest := line[headLen:cut]
	for _, kind := range []string{KindEvent, KindSegment, KindSeal, KindAnchor} {
		if body, ok := bytes.CutPrefix(rest, []byte(`","`+kind+`":`)); ok {
			l.Kind, l.Body = kind, body
		}
	}
	if l.Kind == "" || !json.Valid(l.Body) || l.Body[0] != '{' {
		return l, errLine
	}
	if sha256.Sum256(line[:cut]) != l.Hash {
		return l, errors.New("the line does not have the hash that it says")
	}
	return l, nil
}

// EventBody is the event of a line that was checked before; nil for other lines.
func EventBody(line []byte) []byte {
	if len(line) < headLen+tailLen {
		return nil
	}
	body, ok := bytes.CutPrefix(line[headLen:len(line)-tailLen], []byte(`","`+KindEvent+`":`))
	if !ok {
		return nil
	}
	return body
}

// SeqAt is the seq of the event whose line begins like this; 256 bytes do.
func SeqAt(line []byte) (uint64, bool) {
	if len(line) < headLen {
		return 0, false
	}
	body, ok := bytes.CutPrefix(line[headLen:], []byte(`","`+KindEvent+`":`))
	if !ok {
		return 0, false
	}
	return EventSeq(body)
}

// unhex reads lower-case hex only: one hash, one spelling.
func unhex(h *Hash, s []byte) bool {
	for _, c := range s {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	n, err := hex.Decode(h[:], s)
	return err == nil && n == len(h)
}

// EventSeq reads the seq of an event's body without decoding the rest: an event
// begins with its id and its seq.
func EventSeq(body []byte) (uint64, bool) {
	rest, ok := bytes.CutPrefix(body, []byte(`{"id":"`))
	if !ok || len(rest) > 0 && rest[0] == '"' {
		return 0, false
	}
	i := bytes.IndexByte(rest, '"')
	if i < 0 || bytes.IndexByte(rest[:i], '\\') >= 0 {
		return 0, false
	}
	if rest, ok = bytes.CutPrefix(rest[i:], []byte(`","seq":`)); !ok || len(rest) == 0 || rest[0] == '0' {
		return 0, false
	}
	var n uint64
	for i, c := range rest {
		if c == ',' && i > 0 {
			return n, true
		}
		if c < '0' || c > '9' || i > 18 {
			return 0, false
		}
		n = n*10 + uint64(c-'0')
	}
	return 0, false
}

// Segment is the body of a file's first line.
type Segment struct {
	V        int    `json:"v"` // 1
	N        int    `json:"n"` // from 1
	FirstSeq uint64 `json:"first_seq"`
	Key      string `json:"key"` // ed25519 public key, hex
	Time     string `json:"time"`
}

// Seal is the body of a file's last line.
type Seal struct {
	N         int    `json:"n"`
	FirstSeq  uint64 `json:"first_seq"`
	LastSeq   uint64 `json:"last_seq"`
	Records   uint64 `json:"records"`
	Time      string `json:"time"`
	Signature string `json:"signature"`
}

// Anchor is the body of the line that comes before a log whose first segments
// were removed: nothing that is missing before segment N is a reason to doubt.
type Anchor struct {
	V         int    `json:"v"` // 1
	N         int    `json:"n"`
	FirstSeq  uint64 `json:"first_seq"` // of that segment
	Link      string `json:"link"`      // hash of the last line before it
	Key       string `json:"key"`
	Time      string `json:"time"`
	Signature string `json:"signature"`
}

// Sign signs a seal at the end of a chain that ends with prev.
func (s *Seal) Sign(key ed25519.PrivateKey, prev Hash) {
	s.Signature = hex.EncodeToString(ed25519.Sign(key, s.signed(prev)))
}

func (s Seal) signed(prev Hash) []byte {
	return fmt.Appendf(nil, "berm audit seal 1\nn=%d first=%d last=%d records=%d prev=%s time=%q\n",
		s.N, s.FirstSeq, s.LastSeq, s.Records, prev, s.Time)
}

// Sign signs an anchor.
func (a *Anchor) Sign(key ed25519.PrivateKey) {
	a.Signature = hex.EncodeToString(ed25519.Sign(key, a.signed()))
}

func (a Anchor) signed() []byte {
	return fmt.Appendf(nil, "berm audit anchor 1\nn=%d first=%d link=%s key=%s time=%q\n",
		a.N, a.FirstSeq, a.Link, a.Key, a.Time)
}

func signedBy(key ed25519.PublicKey, text []byte, signature string) bool {
	sig, err := hex.DecodeString(signature)
	return err == nil && len(key) == ed25519.PublicKeySize && ed25519.Verify(key, text, sig)
}

// Encode is the one spelling of a body.
func Encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// decode reads a body that must be spelled as Encode does, so nothing is in it
// that nobody looked at.
func decode(body []byte, v any) bool {
	if json.Unmarshal(body, v) != nil {
		return false
	}
	again, err := Encode(v)
	return err == nil && bytes.Equal(again, body)
}

// Errors of a Reader.
var (
	ErrTorn    = errors.New("the last line is not whole")
	ErrTooLong = errors.New("a line is too long for an audit log")
)

// Reader reads a log line by line in bounded memory.
type Reader struct {
	r    *bufio.Reader
	long []byte
}

// NewReader reads from r.
func NewReader(r io.Reader) *Reader { return &Reader{r: bufio.NewReaderSize(r, 16<<10)} }

// Next is the next line with its newline, good until the next call. The end is
// io.EOF, or ErrTorn where bytes without a newline are left.
func (r *Reader) Next() ([]byte, error) {
	r.long = r.long[:0]
	for {
		part, err := r.r.ReadSlice('\n')
		if len(r.long)+len(part) > MaxLine {
			return nil, ErrTooLong
		}
		switch {
		case err == nil && len(r.long) == 0:
			return part, nil
		case err == nil:
			r.long = append(r.long, part...)
			return r.long, nil
		case errors.Is(err, bufio.ErrBufferFull):
			r.long = append(r.long, part...)
		case errors.Is(err, io.EOF) && len(r.long)+len(part) > 0:
			return nil, ErrTorn
		default:
			return nil, err
		}
	}
}
