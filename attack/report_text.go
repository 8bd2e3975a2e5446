package attack

import (
	"fmt"
	"strings"
	"unicode"
)

// maxEvidence bounds the evidence of one case.
const maxEvidence = 1200

// harmless makes evidence one bounded line that says what it says.
func harmless(s string) string {
	if len(s) > 16*maxEvidence { // nobody walks through a flood to keep its start
		s = s[:16*maxEvidence]
	}
	s = Plain(s)
	if len(s) > maxEvidence {
		s = strings.ToValidUTF8(s[:maxEvidence], "") + "..."
	}
	return s
}

// Plain is a text of unknown origin as one line in which everything can be seen:
// no terminal obeys it, no letter hides, nothing changes the order in which the
// rest is read. Two number signs are never together: CI servers take what
// follows them, in any line of a log, for a command.
func Plain(s string) string {
	var b strings.Builder
	last := ' '
	for _, r := range strings.ToValidUTF8(s, "?") {
		if r == '#' && last == '#' {
			b.WriteString(`\u{23}`)
			last = ' '
			continue
		}
		last = r
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			b.WriteByte(' ')
		case unseen(r):
			fmt.Fprintf(&b, `\u{%x}`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// unseen says whether a character is not what it looks like: controls, marks of
// direction, joiners, fillers, tags, spaces that are none, letters of nobody.
func unseen(r rune) bool {
	switch {
	case r < 0x7f:
		return r < ' '
	case r == 0x34f || r == 0x115f || r == 0x1160 || r == 0x17b4 || r == 0x17b5 || r == 0x3164 || r == 0xffa0 || r == 0x2800: // drawn as nothing
		return true
	case r >= 0x180b && r <= 0x180f || r >= 0xfe00 && r <= 0xfe0f || r >= 0xe0100 && r <= 0xe01ef: // change what is before them
		return true
	}
	return !unicode.IsGraphic(r) || unicode.In(r, unicode.Zs, unicode.Cf) || stacks(r)
}

// stacks are marks that can be piled on a letter until they cover other lines.
func stacks(r rune) bool { return unicode.In(r, unicode.Mn, unicode.Me) }
