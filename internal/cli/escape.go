package cli

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// maxSGR bounds a colour sequence; a longer one is shown.
const maxSGR = 32

// A shower stands between a program that nobody reviewed and a terminal: text,
// newlines, tabs, returns and plain colours pass; every other control sequence,
// what conceals text and what turns its direction is shown, as \x1b and the
// like, and not obeyed. Sequences may be split over
// writes in any way.
type shower struct {
	w       io.Writer
	pending []byte // the start of a rune or sequence
	colour  bool   // a colour may still be on
	out     []byte
}

func newShower(w io.Writer) *shower { return &shower{w: w} }

func (s *shower) Write(p []byte) (int, error) {
	s.out = s.out[:0]
	in := append(s.pending, p...)
	for len(in) > 0 {
		n := s.take(in, false)
		if n == 0 {
			break
		}
		in = in[n:]
	}
	s.pending = append([]byte(nil), in...)
	if _, err := s.w.Write(s.out); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close shows what was left unfinished and switches colours off.
func (s *shower) Close() error {
	s.out = s.out[:0]
	for in := s.pending; len(in) > 0; {
		in = in[s.take(in, true):]
	}
	s.pending = nil
	if s.colour {
		s.out = append(s.out, "\x1b[0m"...)
	}
	_, err := s.w.Write(s.out)
	return err
}

// take handles what in starts with and returns its length, or 0 if more bytes
// are needed to tell; with last set there will be no more.
func (s *shower) take(in []byte, last bool) int {
	c := in[0]
	switch {
	case c == '\n' || c == '\t' || c == '\r' || c >= 0x20 && c < 0x7f:
		s.out = append(s.out, c)
		return 1
	case c == 0x1b:
		n, complete := sgr(in)
		if n > 0 && !conceals(in[2:n-1]) {
			s.out = append(s.out, in[:n]...)
			s.colour = string(in[:n]) != "\x1b[0m" && string(in[:n]) != "\x1b[m"
			return n
		}
		if n == 0 && !complete && !last {
			return 0
		}
		s.show(c)
		return 1
	case c < utf8.RuneSelf:
		s.show(c)
		return 1
	}
	if !utf8.FullRune(in) && !last {
		return 0
	}
	r, n := utf8.DecodeRune(in)
	switch {
	case r == utf8.RuneError && n == 1:
		s.show(c)
	case r >= 0x80 && r < 0xa0, misleads(r): // C1: a terminal may obey them
		s.out = fmt.Appendf(s.out, "\\u%04x", r)
	default:
		s.out = append(s.out, in[:n]...)
	}
	return n
}

func (s *shower) show(c byte) { s.out = fmt.Appendf(s.out, "\\x%02x", c) }

// misleads says that a rune embeds, overrides or isolates a direction of text,
// or is a line break that few see: what follows it is not where it seems to be.
func misleads(r rune) bool {
	return r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 || r == 0x2028 || r == 0x2029
}

// conceals says whether the parameters of a colour sequence hide text, for a
// terminal that knows colours of 38 and 48 or one that does not. What is not
// clear does.
func conceals(params []byte) bool {
	ps := strings.Split(string(params), ";")
	for i, p := range ps {
		p, _, _ = strings.Cut(p, ":")
		ps[i] = strings.TrimLeft(p, "0")
	}
	for i := 0; i < len(ps); i++ {
		colour := ps[i] == "38" || ps[i] == "48"
		skip := 0
		switch {
		case ps[i] == "8":
			return true
		case colour && i+2 < len(ps) && ps[i+1] == "5":
			skip = 2
		case colour && i+4 < len(ps) && ps[i+1] == "2":
			skip = 4
		}
		i += skip
	}
	return false
}

// sgr is the length of the plain colour sequence that in starts with, or 0.
// complete is false while more bytes could still make one.
func sgr(in []byte) (n int, complete bool) {
	for i := 1; i < len(in); i++ {
		switch c := in[i]; {
		case i == 1 && c == '[':
		case i == 1:
			return 0, true
		case i >= maxSGR:
			return 0, true
		case c >= '0' && c <= '9' || c == ';' || c == ':':
		case c == 'm':
			return i + 1, true
		default:
			return 0, true
		}
	}
	return 0, len(in) > maxSGR
}
