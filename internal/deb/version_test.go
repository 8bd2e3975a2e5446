package deb

import (
	"math/rand/v2"
	"os/exec"
	"slices"
	"testing"
)

func TestVersions(t *testing.T) {
	for _, tt := range []struct{ a, op, b string }{
		{"1", "=", "1"}, {"1.0", "<", "1.1"}, {"1.9", "<", "1.10"}, {"1.0~rc1", "<", "1.0"}, {"1.0", "<", "1.0a"},
		{"1:0.1", ">", "9.9"}, {"0:1", "=", "1"}, {"1-1", "<", "1-2"}, {"1", "=", "1-0"}, {"1", "<", "1-1"}, {"1.0+b1", ">", "1.0"},
		{"1.0a", "<", "1.0+"}, {"1.00", "=", "1.0"}, {"1.0-1~deb12u1", "<", "1.0-1"}, {"1~~", "<", "1~"}, {"1~~a", "<", "1~"},
		{"20200101", "<", "99999999999999999999999999"}, {"1.0.", ">", "1.0"}, {"a", "<", "b"}, {"1-1-1", ">", "1-1"},
	} {
		want := map[string]int{"<": -1, "=": 0, ">": 1}[tt.op]
		if got := compareVersions(tt.a, tt.b); got != want {
			t.Errorf("%s %s %s: got %d", tt.a, tt.op, tt.b, got)
		}
		if got := compareVersions(tt.b, tt.a); got != -want {
			t.Errorf("%s %s %s turned round: got %d", tt.a, tt.op, tt.b, got)
		}
	}
}

// TestVersionsAgainstDpkg compares made-up versions by both.
func TestVersionsAgainstDpkg(t *testing.T) {
	if _, err := exec.LookPath("dpkg"); err != nil {
		t.Skip("no dpkg to compare with")
	}
	rnd := rand.New(rand.NewPCG(6, 6))
	word := func(letters string, n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = letters[rnd.IntN(len(letters))]
		}
		return string(b)
	}
	version := func() string {
		v := word("0123", 1) + word("019.+~aZ", rnd.IntN(5))
		if rnd.IntN(4) == 0 {
			v = word("012", 1) + ":" + v
		}
		if rnd.IntN(2) == 0 {
			v += "-" + word("019.+~aZ", 1+rnd.IntN(3))
		}
		return v
	}
	for range 250 {
		a, b := version(), version()
		ops := []string{"lt", "eq", "gt"}
		op := ops[compareVersions(a, b)+1]
		if err := exec.Command("dpkg", "--compare-versions", a, op, b).Run(); err != nil {
			t.Errorf("dpkg says it is not %s %s %s", a, op, b)
		}
	}
}

func TestRelations(t *testing.T) {
	for _, tt := range []struct {
		text string
		want []string // "" of a nil: an error
	}{
		{"libc6 (>= 2.36), libx11-6 | libx | virtual", []string{"libc6 (>= 2.36)", "libx11-6 | libx | virtual"}},
		{"python3:any (<< 3.12), python3:any (>= 3.11~)", []string{"python3:any (<< 3.12)", "python3:any (>= 3.11~)"}},
		{"a1 [amd64], b1 [!amd64], c1 [arm64] | d1", []string{"a1", "d1"}},
		{"aa(=1)", []string{"aa (= 1)"}},
		{"old (< 2), older (> 1)", []string{"old (<= 2)", "older (>= 1)"}},
		{"", []string{}}, {" , ,", []string{}},
		{"../x", nil}, {"aa (1)", nil}, {"aa (>= )", nil}, {"aa (>= 1", nil}, {"A", nil}, {"aa bb", nil}, {"aa (== 1)", nil},
	} {
		got, err := parseRelations(tt.text, "amd64")
		var text []string
		for _, a := range got {
			text = append(text, a.String())
		}
		if (err != nil) != (tt.want == nil) || !slices.Equal(text, tt.want) && len(text)+len(tt.want) > 0 {
			t.Errorf("%q: %q, %v; want %q", tt.text, text, err, tt.want)
		}
	}
}

func FuzzControl(f *testing.F) {
	f.Add([]byte("Package: a\nVersion: 1:2-3\nDepends: b (>= 1) | c:any, d [amd64]\nDescription: x\n more\n .\n\nPackage: e\n"))
	f.Add([]byte("\n\n: x\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for n := 0; ; n++ {
			first, rest := cutParagraph(data)
			if len(first) == 0 || len(rest) >= len(data) {
				break
			}
			if p, err := parseParagraph(first); err == nil {
				rel, err := parseRelations(p.get("Depends"), "amd64")
				for _, a := range rel {
					if again, err2 := parseRelations(a.String(), "amd64"); err == nil && (err2 != nil || again[0].String() != a.String()) {
						t.Fatalf("%q does not read back", a)
					}
				}
			}
			data = rest
		}
		parseSources822(data)
		parseSourcesLines(data)
		aptConf{}.parse(string(data))
	})
}
