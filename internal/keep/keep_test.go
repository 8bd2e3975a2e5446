package keep

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestKeeper(t *testing.T) {
	for _, tt := range []struct {
		name    string
		limit   int64
		in      string
		want    string
		dropped int64
		base64  bool
	}{
		{"empty", 8, "", "", 0, false},
		{"fits", 8, "12345678", "12345678", 0, false},
		{"middle goes", 8, "1234abcdef5678", "12345678", 6, false},
		{"odd limit", 3, "abcdef", "abf", 3, false},
		{"limit of one", 1, "abc", "a", 2, false},
		{"cut in a rune", 8, "123é" + strings.Repeat("x", 20) + "é567", "123567", 26 - 4 + 2, false},
		{"invalid", 8, "a\xffb", "a\uFFFDb", 0, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for step := 1; step <= len(tt.in)+1; step++ {
				k := New(tt.limit)
				for s := tt.in; s != ""; {
					n := min(step, len(s))
					k.Write([]byte(s[:n]))
					s = s[n:]
				}
				got, raw, dropped := k.Result()
				if got != tt.want || (raw != "") != tt.base64 {
					t.Fatalf("step %d: %q %q, want %q", step, got, raw, tt.want)
				}
				if tt.name != "cut in a rune" && dropped != tt.dropped || int64(len(tt.in)) != dropped+int64(len(strings.ReplaceAll(got, "\uFFFD", "x"))) {
					t.Fatalf("step %d: dropped %d, want %d", step, dropped, tt.dropped)
				}
				if !utf8.ValidString(got) {
					t.Fatal("not UTF-8")
				}
			}
		})
	}
}
