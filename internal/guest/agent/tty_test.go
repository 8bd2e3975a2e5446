//go:build linux

package agent

import "testing"

// TestTidy: only the echo of a signal's key is replaced, and only once.
func TestTidy(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"\x03\b \b\b \b", "^C"},
		{"half\x03\b \b\b \b\b \b\b \b\r\n$ ", "half^C\r\n$ "},
		{"\x1c\b \b\b \b", "^\\"},
		{"\r\n\x03\b \b", "\r\n^C"},
		{"\x03", "\x03"},
		{"\x03\b \b\x03\b \b", "^C\x03\b \b"},
		{"a\b \bb\n", "a\b \bb\n"},
		{"", ""},
	} {
		var o output
		o.echo.Store(true)
		b := []byte(tt.in)
		got := b[:o.tidy(b, len(b))]
		if string(got) != tt.want {
			t.Errorf("%q became %q, want %q", tt.in, got, tt.want)
		}
		if o.echo.Load() != (tt.in == tt.want) {
			t.Errorf("%q: echo is still expected: %v", tt.in, o.echo.Load())
		}
	}
}
