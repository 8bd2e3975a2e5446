package keep

import (
	"bytes"
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
				parts, d := k.Parts()
				if all := bytes.Join(parts[:], nil); string(bytes.ToValidUTF8(all, []byte("\uFFFD"))) != got || d != dropped {
					t.Fatalf("step %d: parts %q, %d dropped", step, all, d)
				}
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

// A frozen Keeper takes no more memory, and still has the newest bytes.
func TestFreeze(t *testing.T) {
	for _, tt := range []struct{ before, after, want string }{
		{"", "abc", ""},
		{"ab", "cdef", "ab"},
		{"abcd12", "345", "abcd45"},
	} {
		k := New(8)
		k.Write([]byte(tt.before))
		k.Freeze()
		if k.Room(100) != 0 {
			t.Errorf("%q: room for %d", tt.before, k.Room(100))
		}
		k.Write([]byte(tt.after))
		if got, _, _ := k.Result(); got != tt.want || k.Len() != int64(len(tt.before)) {
			t.Errorf("%q: %q", tt.before, got)
		}
	}
}
