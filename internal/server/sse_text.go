package server

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// appendASCII appends v as JSON in pure ASCII.
func appendASCII(b []byte, v any) []byte {
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err) // our own types
	}
	const hex = "0123456789abcdef"
	unit := func(u rune) {
		b = append(b, '\\', 'u', hex[u>>12&15], hex[u>>8&15], hex[u>>4&15], hex[u&15])
	}
	for _, r := range string(bytes.TrimSuffix(buf.Bytes(), []byte("\n"))) {
		switch {
		case r < utf8.RuneSelf && r != 0x7f:
			b = append(b, byte(r))
		case r > 0xffff:
			r -= 0x10000
			unit(0xd800 + r>>10)
			unit(0xdc00 + r&0x3ff)
		default:
			unit(r)
		}
	}
	return b
}

// maxPiece is how long the text of one event may be once it is encoded. Some
// clients take quadratic time over long lines.
const maxPiece = 12 << 10

// piece returns how many of p's bytes fit into one event, at least one; it does
// not cut inside a rune.
func piece(p []byte) int {
	size := 0
	for n := 0; n < len(p); {
		cost, k := 1, 1
		switch c := p[n]; {
		case c >= utf8.RuneSelf:
			var r rune
			r, k = utf8.DecodeRune(p[n:])
			cost = 6
			if r > 0xffff {
				cost = 12
			} else if k == 1 {
				cost = 8 // replaced, and in base64 beside
			}
		case c < 0x20 || c == 0x7f:
			cost = 6
		case c == '"' || c == '\\':
			cost = 2
		}
		if size += cost; size > maxPiece && n > 0 {
			return n
		}
		n += k
	}
	return len(p)
}

// whole returns how many of p's bytes are there before a rune that has only
// begun; what does not look like the start of one counts as there.
func whole(p []byte) int {
	for i := 1; i < utf8.UTFMax && i <= len(p); i++ {
		if c := p[len(p)-i]; utf8.RuneStart(c) {
			if !utf8.FullRune(p[len(p)-i:]) {
				return len(p) - i
			}
			break
		}
	}
	return len(p)
}
