package audit

import (
	"bytes"
	"crypto/ed25519"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/bermhq/berm/api"
)

// writer makes logs, honest ones and others.
type writer struct {
	Chain
	key ed25519.PrivateKey
	out []byte
}

func newKey(n byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{n}, ed25519.SeedSize))
}

func pub(key ed25519.PrivateKey) string { return hex.EncodeToString(key.Public().(ed25519.PublicKey)) }

func (w *writer) line(kind string, v any) {
	body, err := Encode(v)
	if err != nil {
		panic(err)
	}
	line, _ := Append(nil, w.Last, kind, body)
	if _, err := w.Next(line); err != nil {
		panic(err)
	}
	w.out = append(w.out, line...)
}

func (w *writer) begin() {
	w.line(KindSegment, Segment{V: 1, N: w.Segment + 1, FirstSeq: max(w.NextSeq, 1), Key: pub(w.key), Time: "t"})
}

func (w *writer) event(text string) {
	w.line(KindEvent, api.Event{ID: fmt.Sprintf("e%032d", w.NextSeq), Seq: w.NextSeq, Time: "t", Type: "a.b", Tags: map[string]string{},
		Data: json.RawMessage(fmt.Sprintf(`{"text":%q}`, text))})
}

func (w *writer) seal() {
	s := Seal{N: w.Segment, FirstSeq: w.FirstSeq, LastSeq: w.NextSeq - 1, Records: w.NextSeq - w.FirstSeq, Time: "t"}
	s.Sign(w.key, w.Last)
	w.line(KindSeal, s)
}

func (w *writer) head() *api.Head {
	return &api.Head{Seq: w.LastSeq, Hash: w.LastHash.String(), Key: pub(w.key)}
}

// sample is a log of segments with some events each, the last one open.
func sample(segments, events int) *writer {
	w := &writer{key: newKey(1)}
	for s := range segments {
		w.begin()
		for e := range events {
			w.event(fmt.Sprintf("event %d of %d", e, s))
		}
		if s < segments-1 {
			w.seal()
		}
	}
	return w
}

func verify(t *testing.T, log []byte, head *api.Head) api.Verification {
	t.Helper()
	v, err := Verify(bytes.NewReader(log), head)
	if err != nil {
		t.Fatal(err)
	}
	if v.OK == (v.Problem != "") || !v.OK && !v.TailUnproven {
		t.Fatalf("%+v", v)
	}
	return v
}

func join(lines [][]byte) []byte { return bytes.Join(lines, nil) }

func TestHonest(t *testing.T) {
	w := sample(3, 4)
	v := verify(t, w.out, w.head())
	if !v.OK || v.TailUnproven || v.FirstSeq != 1 || v.LastSeq != 12 || v.Records != 12 || v.Segments != 3 || v.Sealed != 2 {
		t.Errorf("%+v", v)
	}
	if v := verify(t, w.out, nil); !v.OK || !v.TailUnproven {
		t.Errorf("without a head: %+v", v)
	}
	early := sample(1, 3)
	head := early.head()
	early.event("later")
	early.seal()
	early.begin()
	if v := verify(t, early.out, head); !v.OK || !v.TailUnproven {
		t.Errorf("with an older head: %+v", v)
	}
}

// TestTamper changes every byte, cuts at every byte, and moves, doubles and
// drops every line.
func TestTamper(t *testing.T) {
	w := sample(3, 2)
	head := w.head()
	bad := func(what string, log []byte) {
		t.Helper()
		if bytes.Equal(log, w.out) {
			return
		}
		if v := verify(t, log, head); v.OK {
			t.Errorf("%s: %+v", what, v)
		}
	}
	for i := range w.out {
		for _, bit := range []byte{1, 0x20} {
			log := bytes.Clone(w.out)
			log[i] ^= bit
			bad(fmt.Sprintf("byte %d", i), log)
			if v := verify(t, log, nil); v.OK {
				t.Errorf("byte %d, without a head: %+v", i, v)
			}
		}
	}
	for i := range w.out {
		bad(fmt.Sprintf("cut at %d", i), w.out[:i])
		if v := verify(t, w.out[:i], nil); v.OK && w.out[i-1] != '\n' {
			t.Errorf("cut at %d, without a head: %+v", i, v)
		}
		bad(fmt.Sprintf("cut before %d", i), w.out[i:])
	}
	lines := bytes.SplitAfter(w.out, []byte("\n"))
	lines = lines[:len(lines)-1]
	for i := range lines {
		for j := range lines {
			swapped := append([][]byte(nil), lines...)
			swapped[i], swapped[j] = swapped[j], swapped[i]
			bad(fmt.Sprintf("%d and %d swapped", i, j), join(swapped))
			twice := append([][]byte(nil), lines[:i]...)
			twice = append(append(twice, lines[j]), lines[i:]...)
			bad(fmt.Sprintf("%d again before %d", j, i), join(twice))
		}
		bad(fmt.Sprintf("without %d", i), join(append(append([][]byte(nil), lines[:i]...), lines[i+1:]...)))
	}
}

// forge rewrites a log with all hashes right: what somebody can do who has the
// file and not the key.
func forge(t *testing.T, log []byte, change func(n int, l *Line)) []byte {
	t.Helper()
	var out []byte
	var last Hash
	for i, raw := range bytes.SplitAfter(log, []byte("\n")) {
		if len(raw) == 0 {
			continue
		}
		l, err := Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		l.Body = bytes.Clone(l.Body)
		change(i, &l)
		if l.Kind == "" {
			continue
		}
		out, last = Append(out, last, l.Kind, l.Body)
	}
	return out
}

func TestForgery(t *testing.T) {
	w := sample(3, 3) // lines 0-4, 5-9, 10-13
	head := w.head()
	text := func(at int) func(int, *Line) {
		return func(n int, l *Line) {
			if n == at {
				l.Body = bytes.Replace(l.Body, []byte("event"), []byte("lies!"), 1)
			}
		}
	}
	other := &writer{key: newKey(1)}
	for n := range 3 {
		other.begin()
		for range 3 {
			other.event("another day")
		}
		if n < 2 {
			other.seal()
		}
	}
	segment := func(w *writer, n int) []byte {
		lines := bytes.SplitAfter(w.out, []byte("\n"))
		return join([][][]byte{lines[:5], lines[5:10], lines[10:]}[n])
	}
	stranger := &writer{key: newKey(2)}
	for s := range 3 {
		stranger.begin()
		for range 3 {
			stranger.event("made up")
		}
		if s < 2 {
			stranger.seal()
		}
	}
	cases := []struct {
		name     string
		log      []byte
		unheaded bool // only a head shows it
	}{
		{"an event of a sealed segment rewritten", forge(t, w.out, text(2)), false},
		{"an event of the open segment rewritten", forge(t, w.out, text(12)), true},
		{"a segment of another log with the same key", append(append(segment(w, 0), segment(other, 1)...), segment(w, 2)...), false},
		{"the end of another log with the same key", append(append(segment(w, 0), segment(w, 1)...), segment(other, 2)...), false},
		{"a segment missing", append(segment(w, 0), segment(w, 2)...), false},
		{"the first segment missing", append(segment(w, 1), segment(w, 2)...), false},
		{"segments swapped", append(append(segment(w, 1), segment(w, 0)...), segment(w, 2)...), false},
		{"the last segment missing", append(segment(w, 0), segment(w, 1)...), true},
		{"a seal missing", forge(t, w.out, func(n int, l *Line) {
			if n == 4 {
				l.Kind = ""
			}
		}), false},
		{"a seal of another key", forge(t, w.out, func(n int, l *Line) {
			if n == 4 {
				var s Seal
				if !decode(l.Body, &s) {
					t.Fatal("no seal")
				}
				s.Sign(newKey(2), l.Prev)
				l.Body, _ = Encode(s)
			}
		}), false},
		{"the key changed on the way", append(segment(w, 0), forge(t, segment(w, 1), func(n int, l *Line) {
			if l.Kind == KindSegment {
				l.Body = bytes.Replace(l.Body, []byte(pub(w.key)), []byte(pub(newKey(2))), 1)
			}
		})...), false},
		{"all of it by another key", stranger.out, true},
		{"all of it by another log with the same key", other.out, true},
	}
	for _, c := range cases {
		if v := verify(t, c.log, head); v.OK {
			t.Errorf("%s: %+v", c.name, v)
		}
		if v := verify(t, c.log, nil); v.OK != c.unheaded {
			t.Errorf("%s, without a head: %+v", c.name, v)
		}
	}
}

func TestAnchor(t *testing.T) {
	w := sample(4, 3)
	lines := bytes.SplitAfter(w.out, []byte("\n"))
	third := join(lines[10:])
	l, err := Parse(lines[10])
	if err != nil {
		t.Fatal(err)
	}
	anchor := func(key ed25519.PrivateKey, change func(*Anchor)) []byte {
		a := Anchor{V: 1, N: 3, FirstSeq: 7, Link: l.Prev.String(), Key: pub(key), Time: "t"}
		change(&a)
		a.Sign(key)
		body, _ := Encode(a)
		line, _ := Append(nil, Hash{}, KindAnchor, body)
		return line
	}
	same := func(*Anchor) {}
	good := anchor(w.key, same)
	for name, log := range map[string][]byte{
		"the first two removed":            append(bytes.Clone(good), third...),
		"a crash left one of them":         append(bytes.Clone(good), join(lines[5:])...),
		"a crash left both":                append(bytes.Clone(good), w.out...),
		"the anchor is older than the cut": append(anchor(w.key, func(a *Anchor) { a.N, a.FirstSeq, a.Link = 3, 7, l.Prev.String() }), third...),
	} {
		if v := verify(t, log, w.head()); !v.OK || v.TailUnproven || v.LastSeq != 12 {
			t.Errorf("%s: %+v", name, v)
		}
	}
	forged := bytes.Replace(good, []byte(`"n":3`), []byte(`"n":4`), 1)
	for name, log := range map[string][]byte{
		"no anchor":            third,
		"more than it says":    append(bytes.Clone(good), join(lines[15:])...),
		"nothing behind":       good,
		"all cut behind":       append(bytes.Clone(good), join(lines[:10])...),
		"of another key":       append(anchor(newKey(2), same), third...),
		"another link":         append(anchor(w.key, func(a *Anchor) { a.Link = strings.Repeat("0", 64) }), third...),
		"another seq":          append(anchor(w.key, func(a *Anchor) { a.FirstSeq = 8 }), third...),
		"changed":              append(forge(t, forged[:0], func(int, *Line) {}), third...),
		"twice":                append(append(bytes.Clone(good), good...), third...),
		"in the middle":        append(append(join(lines[:5]), good...), join(lines[5:])...),
		"the head was removed": append(bytes.Clone(good), third...),
	} {
		head := w.head()
		if name == "the head was removed" {
			head = &api.Head{Seq: 2, Hash: strings.Repeat("0", 64), Key: head.Key}
		}
		if v := verify(t, log, head); v.OK {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

// TestSkip: a chain that skips sealed segments is where one is that read them.
func TestSkip(t *testing.T) {
	w := sample(3, 4)
	lines := bytes.SplitAfter(w.out, []byte("\n"))
	var c Chain
	for _, at := range []int{0, 6} {
		if err := c.Skip(lines[at], lines[at+5]); err != nil {
			t.Fatal(err)
		}
	}
	for _, line := range lines[12 : len(lines)-1] {
		if _, err := c.Next(line); err != nil {
			t.Fatal(err)
		}
	}
	if fmt.Sprintf("%+v", c) != fmt.Sprintf("%+v", w.Chain) {
		t.Errorf("%+v\n%+v", c, w.Chain)
	}
	c = Chain{}
	for name, pair := range map[string][2][]byte{"another's seal": {lines[0], lines[11]}, "no seal": {lines[0], lines[4]},
		"no first line": {lines[1], lines[5]}, "not the first": {lines[6], lines[11]}} {
		if c.Skip(pair[0], pair[1]) == nil || c.Segment != 0 {
			t.Errorf("%s is skipped", name)
		}
	}
}

// endless never ends and never has a newline.
type endless struct{ n int }

func (e *endless) Read(p []byte) (int, error) {
	e.n += len(p)
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

func TestBounded(t *testing.T) {
	e := &endless{}
	v, err := Verify(e, nil)
	if err != nil || v.OK || e.n > 2*MaxLine {
		t.Errorf("%+v, %v, after %d bytes", v, err, e.n)
	}
	if _, err := Verify(io.MultiReader(bytes.NewReader(sample(1, 2).out), failing{}), nil); err == nil {
		t.Error("a log that cannot be read is judged")
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func FuzzVerify(f *testing.F) {
	w := sample(3, 2)
	f.Add(w.out)
	f.Add(w.out[:len(w.out)-1])
	f.Add(sample(1, 1).out)
	f.Add([]byte(`{"prev":"` + strings.Repeat("0", 64) + `","event":{"id":"e","seq":1,"time":""},"hash":"` + strings.Repeat("0", 64) + "\"}\n"))
	f.Fuzz(func(t *testing.T, log []byte) {
		v, err := Verify(bytes.NewReader(log), w.head())
		if err != nil {
			t.Fatal(err)
		}
		if v.OK && !v.TailUnproven && !bytes.Equal(log, w.out) {
			t.Fatalf("another log passes: %+v", v)
		}
		for _, line := range bytes.SplitAfter(log, []byte("\n")) {
			l, err := Parse(line)
			if err != nil {
				continue
			}
			again, h := Append(nil, l.Prev, l.Kind, l.Body)
			if h != l.Hash || !bytes.Equal(again, line) || Size(l.Kind, l.Body) != len(line) {
				t.Fatalf("%q is not %q", again, line)
			}
		}
	})
}
