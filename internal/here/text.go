package here

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"
)

// misleads says that a rune is obeyed rather than shown by a terminal, or turns
// the direction of what follows.
func misleads(r rune) bool {
	return r < 0x20 || r >= 0x7f && r < 0xa0 || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 || r == 0x2028 || r == 0x2029
}

// harmless shows what a terminal would obey as \x1b and the like. Tabs stay.
func harmless(s string) string {
	clean := true
	for i, r := range s {
		if r != '\t' && misleads(r) || r == utf8.RuneError && !strings.HasPrefix(s[i:], "\uFFFD") {
			clean = false
			break
		}
	}
	if clean {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1, r != '\t' && misleads(r) && r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case r != '\t' && misleads(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteString(s[:n])
		}
		s = s[n:]
	}
	return b.String()
}

// Printable is a name as it may be shown: as it is, or in quotes with escapes,
// as git does.
func Printable(name string) string {
	plain := utf8.ValidString(name) && !strings.ContainsFunc(name, func(r rune) bool { return misleads(r) || r == '"' || r == '\\' })
	if plain {
		return name
	}
	var b strings.Builder
	b.WriteByte('"')
	for s := name; len(s) > 0; {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteByte(s[0])
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case misleads(r) || r == utf8.RuneError && n == 1:
			for i := range n {
				fmt.Fprintf(&b, `\%03o`, s[i])
			}
		default:
			b.WriteString(s[:n])
		}
		s = s[n:]
	}
	b.WriteByte('"')
	return b.String()
}

// isText says that content is to be shown line by line.
func isText(data []byte) bool { return bytes.IndexByte(data[:min(len(data), 8000)], 0) < 0 }
