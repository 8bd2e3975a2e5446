package cli

import (
	"bytes"
	"strings"
	"testing"
)

func shown(t testing.TB, chunks ...string) string {
	var b bytes.Buffer
	s := newShower(&b)
	for _, c := range chunks {
		if n, err := s.Write([]byte(c)); n != len(c) || err != nil {
			t.Fatalf("Write = %d, %v", n, err)
		}
	}
	s.Close()
	return b.String()
}

func TestShower(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"plain", "a\tb\r\n", "a\tb\r\n"},
		{"utf-8", "Grüße 漢字 🙂", "Grüße 漢字 🙂"},
		{"colour", "\x1b[31mred\x1b[0m", "\x1b[31mred\x1b[0m"},
		{"colour left on", "\x1b[1;38;5;9mred", "\x1b[1;38;5;9mred\x1b[0m"},
		{"clear screen", "\x1b[2J", `\x1b[2J`},
		{"title", "\x1b]0;x\x07", `\x1b]0;x\x07`},
		{"clipboard", "\x1b]52;c;eA==\x1b\\", `\x1b]52;c;eA==\x1b\`},
		{"answerback", "\x1b[6n\x05", `\x1b[6n\x05`},
		{"private m", "\x1b[?1m\x1b[>4;1m", `\x1b[?1m\x1b[>4;1m`},
		{"c1 as utf-8", "\u009b2J", `\u009b2J`},
		{"c1 raw", "\x9b2J", `\x9b2J`},
		{"backspace", "a\bb\x7f", `a\x08b\x7f`},
		{"conceal", "\x1b[8mx\x1b[1;08;3mx\x1b[28m", `\x1b[8mx\x1b[1;08;3mx` + "\x1b[28m\x1b[0m"},
		{"colours with an 8", "\x1b[38;5;8mx\x1b[48;2;8;8;8mx\x1b[38:5:8mx\x1b[0m", "\x1b[38;5;8mx\x1b[48;2;8;8;8mx\x1b[38:5:8mx\x1b[0m"},
		{"conceal after a colour", "\x1b[38;5;1;8m\x1b[38;8m\x1b[38;2;8;1m\x1b[58;5;8m\x1b[8:1m", `\x1b[38;5;1;8m\x1b[38;8m\x1b[38;2;8;1m\x1b[58;5;8m\x1b[8:1m`},
		{"direction", "a\u202eb\u2066c\u2028d\u200f", `a\u202eb\u2066c\u2028d` + "\u200f"},
		{"return", "10%\r20%\r\n", "10%\r20%\r\n"},
		{"zero", "\x00", `\x00`},
		{"broken utf-8", "\xff\xc3", `\xff\xc3`},
		{"escape at end", "x\x1b", `x\x1b`},
		{"open colour at end", "\x1b[31", `\x1b[31`},
		{"endless colour", "\x1b[" + strings.Repeat("1;", 40) + "m", `\x1b[` + strings.Repeat("1;", 40) + "m"},
		{"escape twice", "\x1b\x1b[31mx\x1b[m", `\x1b` + "\x1b[31mx\x1b[m"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := shown(t, tt.in); got != tt.want {
				t.Errorf("whole: %q, want %q", got, tt.want)
			}
			if got := shown(t, strings.Split(tt.in, "")...); len(tt.in) > 0 && got != tt.want && !strings.Contains(tt.name, "utf-8") {
				t.Errorf("by rune: %q, want %q", got, tt.want)
			}
			var bytewise []string
			for i := range len(tt.in) {
				bytewise = append(bytewise, tt.in[i:i+1])
			}
			if got := shown(t, bytewise...); got != tt.want {
				t.Errorf("by byte: %q, want %q", got, tt.want)
			}
		})
	}
}

// FuzzShower: what comes out has no control bytes but the allowed ones, and
// does not depend on how the input was cut.
func FuzzShower(f *testing.F) {
	f.Add([]byte("a\x1b[31mb\x1b]0;x\x07"), 3)
	f.Add([]byte("\xc2\x9b2J\xff"), 1)
	f.Add([]byte("\x1b[38;5;8;8mx\u202e"), 7)
	f.Fuzz(func(t *testing.T, in []byte, cut int) {
		if cut < 0 || cut > len(in) {
			cut = len(in) / 2
		}
		whole, split := shown(t, string(in)), shown(t, string(in[:cut]), string(in[cut:]))
		if whole != split {
			t.Fatalf("cut at %d: %q, whole: %q", cut, split, whole)
		}
		for i := 0; i < len(whole); i++ {
			c := whole[i]
			if c == 0x1b {
				n, _ := sgr([]byte(whole[i:]))
				if n == 0 || conceals([]byte(whole[i+2:i+n-1])) {
					t.Fatalf("escape passed: %q", whole)
				}
				i += n - 1
			} else if c < 0x20 && c != '\n' && c != '\t' && c != '\r' || c == 0x7f {
				t.Fatalf("control %#x passed: %q", c, whole)
			}
		}
		for _, r := range whole {
			if r >= 0x80 && r < 0xa0 || misleads(r) {
				t.Fatalf("%U passed: %q", r, whole)
			}
		}
	})
}
