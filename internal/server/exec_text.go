package server

import (
	"encoding/base64"
	"strings"
	"unicode/utf8"

	"github.com/bermhq/berm/api"
)

// text is p as JSON can carry it, and in base64 if something had to be replaced.
func text(p []byte) (s, raw string) {
	if utf8.Valid(p) {
		return string(p), ""
	}
	var b strings.Builder
	for _, r := range string(p) {
		b.WriteRune(r)
	}
	return b.String(), base64.StdEncoding.EncodeToString(p)
}

// An outPiece is a piece of output as PandaStack's clients read it: Chunk, and
// what they skip.
type outPiece struct {
	Chunk  string `json:"chunk"`
	Base64 string `json:"chunk_base64,omitempty"` // the same, where bytes had to be replaced
	Offset int64  `json:"offset"`                 // bytes of both streams before it
	Gap    int64  `json:"gap,omitempty"`          // bytes before it that are no longer kept
}

// A texter turns chunks of bytes into pieces of text. A rune that is split
// between two chunks of a stream waits for its rest.
type texter struct {
	emit func(stream string, p outPiece) error
	held [2]held
}

type held struct {
	b  []byte
	at int64 // its offset
}

func (t *texter) chunk(c api.Chunk) error {
	h := &t.held[streamOf(c)]
	if len(h.b) > 0 && c.Gap > 0 { // its rest will not come
		if err := t.flush(c.Stream, h); err != nil {
			return err
		}
	}
	p, gap, kept, from := append(h.b, c.Data...), c.Gap, len(h.b), h.at
	at := func(i int) int64 {
		if i < kept {
			return from + int64(i)
		}
		return c.Offset + int64(i-kept)
	}
	n := whole(p)
	h.b, h.at = append([]byte(nil), p[n:]...), at(n)
	for i := 0; i < n || gap > 0; {
		k := i + piece(p[i:n])
		s, raw := text(p[i:k])
		if err := t.emit(c.Stream, outPiece{Chunk: s, Base64: raw, Offset: at(i), Gap: gap}); err != nil {
			return err
		}
		i, gap = k, 0
	}
	return nil
}

func (t *texter) flush(stream string, h *held) error {
	if len(h.b) == 0 {
		return nil
	}
	s, raw := text(h.b)
	h.b = nil
	return t.emit(stream, outPiece{Chunk: s, Base64: raw, Offset: h.at})
}

// end gives out what still waits: its rest will not come.
func (t *texter) end() error {
	if err := t.flush("stdout", &t.held[0]); err != nil {
		return err
	}
	return t.flush("stderr", &t.held[1])
}
