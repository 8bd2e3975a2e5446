package cli

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
)

// No name, tag or state of somebody else's is obeyed by a terminal, or makes a
// second line.
func TestShownName(t *testing.T) {
	for in, want := range map[string]string{
		"plain.txt": "plain.txt", "Grüße 漢字": "Grüße 漢字", "a\nb": `a\x0ab`, "a\tb": `a\x09b`, "\x1b[2J": `\x1b[2J`, "\x7f\x00": `\x7f\x00`,
		"\u009b2J": `\u009b2J`, "\xff\xc3": `\xff\xc3`, "a\u202eb": `a\u202eb`, "l\u2028l": `l\u2028l`, "\\x1b": `\x1b`,
		strings.Repeat("x", maxShown+1): strings.Repeat("x", maxShown) + "...",
	} {
		if got := shownName(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func FuzzShownName(f *testing.F) {
	f.Add("\x1b]0;x\x07\u009b\u202e")
	f.Fuzz(func(t *testing.T, in string) {
		if out := shownName(in); strings.ContainsFunc(out, func(r rune) bool { return r < 0x20 || r >= 0x7f && r < 0xa0 || misleads(r) }) {
			t.Errorf("%q: %q", in, out)
		}
	})
}

func TestTableIsHarmless(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	tb := newTable(f, "A", "B", "C")
	tb.row("\x1b[31m", "a\tb\nc", "")
	tb.row("", "", "end")
	tb.end()
	b, _ := os.ReadFile(f.Name())
	if got := string(b); strings.Count(got, "\n") != 3 || strings.ContainsAny(got, "\x1b\t") || !strings.Contains(got, "-") {
		t.Errorf("%q", got)
	}
	hostile := api.Event{Seq: 1, Type: "exec.started\x1b[2J", Actor: "\n", SandboxID: "s\u202e", Data: []byte(`{"args":["\u001b[2J\u202e"]}`)}
	if got := eventLine(hostile); strings.ContainsAny(got, "\x1b\n\u202e") {
		t.Errorf("%q", got)
	}
	top := api.Top{Time: "x", Degraded: "\x1b[2J", Sandboxes: []api.TopRow{{Sandbox: api.Sandbox{SandboxID: "s1", Tags: map[string]string{"k": "\x1b[2J\n"}}}}}
	if got := string(topText(top, 0, 0)); strings.Contains(got, "\x1b") || strings.Count(got, "\n") != 5 {
		t.Errorf("%q", got)
	}
	for rows := range 30 { // never more lines than the screen has
		many := api.Top{Sandboxes: make([]api.TopRow, 100)}
		if got := strings.Count(string(topText(many, rows+10, 20)), "\n"); got > rows+10 {
			t.Errorf("%d lines on %d", got, rows+10)
		}
	}
}

func TestParsePlace(t *testing.T) {
	for _, tt := range []struct {
		in, sandbox, path string
		dir, bad          bool
	}{
		{"s1:a", "s1", "/workspace/a", false, false},
		{"s1:", "s1", "/workspace", true, false},
		{"s1:.", "s1", "/workspace", true, false},
		{"s1:/tmp/", "s1", "/tmp", true, false},
		{"s1:/a//b/./c", "s1", "/a/b/c", false, false},
		{"s1:a:b", "s1", "/workspace/a:b", false, false},
		{"s1:../a", "", "", false, true},
		{"s1:a\x00", "", "", false, true},
		{"S1:a", "", "", false, true},
		{"C:a", "", "", false, true},
		{"./a:b", "", "./a:b", false, false},
		{"/x/a:b", "", "/x/a:b", false, false},
		{":a", "", ":a", false, false},
		{"a", "", "a", false, false},
		{"a/", "", "a/", true, false},
		{"", "", "", false, true},
	} {
		p, err := parsePlace(tt.in)
		if (err != nil) != tt.bad || err == nil && p != (place{tt.sandbox, tt.path, tt.dir}) {
			t.Errorf("%q: %+v, %v", tt.in, p, err)
		}
	}
}

func TestPolicies(t *testing.T) {
	for _, tt := range []struct {
		in           string
		ceiling, def bool
		says         string
	}{
		{"ttl_seconds: 60", true, false, ""},
		{`{"limits":{"memory_bytes":1048576},"templates":["host"]}`, true, false, ""},
		{"ceiling: {ttl_seconds: 60}", true, false, ""},
		{"ceiling: {ttl_seconds: 60}\ndefault:\n  egress: []", true, true, ""},
		{"default: {}", false, true, ""},
		{"ttl: 60", false, false, `unknown field "ttl"`},
		{"ceiling: {}\nttl_seconds: 1", false, false, `unknown field "ttl_seconds"`},
		{"ceiling: {limits: {memory: 1g}}", false, false, `unknown field "memory"`},
		{"ttl_seconds: soon", false, false, "cannot unmarshal"},
		{"", false, false, "not a policy"},
		{"{}", false, false, "holds no policy"},
		{"[1]", false, false, "not a policy"},
		{"ttl_seconds: 1\n---\nttl_seconds: 2", false, false, "more than one"},
		{"ttl_seconds: 1\nttl_seconds: 2", false, false, "already defined"},
		{"a: &a [*a]", false, false, "not a policy"},
		{"1: 2", false, false, "not a policy"},
		{"{", false, false, "not a policy"},
	} {
		c, d, err := parsePolicies([]byte(tt.in))
		if tt.says != "" {
			if err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%q: %v", tt.in, err)
			}
			continue
		}
		if err != nil || (c != nil) != tt.ceiling || (d != nil) != tt.def {
			t.Errorf("%q: %+v %+v %v", tt.in, c, d, err)
		}
	}
	c, _, err := parsePolicies([]byte("limits: {memory_bytes: 9007199254740993}"))
	if err != nil || c.Limits.MemoryBytes != 9007199254740993 {
		t.Errorf("a large number: %+v %v", c, err)
	}
}

func FuzzPolicies(f *testing.F) {
	f.Add([]byte("ceiling: {ttl_seconds: 60}\ndefault: &a {egress: [*a]}"))
	f.Fuzz(func(t *testing.T, in []byte) { parsePolicies(in) })
}

func TestPeriods(t *testing.T) {
	for in, want := range map[string]float64{"90s": 90, "30m": 1800, "8h": 28800, "7d": 604800, "1.5d": 129600, "1h30m": 5400,
		"": -1, "d": -1, "-1d": -1, "0s": -1, "5": -1, "1w": -1, "nand": -1, "1e9d": -1} {
		got, err := parsePeriod(in)
		if (err != nil) != (want < 0) || err == nil && got != want {
			t.Errorf("%q: %v %v", in, got, err)
		}
	}
}

func TestAmong(t *testing.T) {
	var j, q bool
	var n int64
	fs := flags{{name: "json", set: toggle(&j)}, {name: "quiet", short: "q", set: toggle(&q)}, {name: "all", short: "a", set: func(string) error { return nil }}, {name: "last", short: "n", value: "N", set: wholeNumber(&n)}}
	rest, err := fs.among([]string{"a", "--json", "b", "-qa", "-n", "3", "--", "--json", "-q"})
	if err != nil || strings.Join(rest, " ") != "a b --json -q" || !j || !q || n != 3 {
		t.Errorf("%q %v %v %v %d", rest, err, j, q, n)
	}
	for _, bad := range []string{"-qn", "-qx", "-xq", "--qa"} {
		if _, err := fs.among([]string{"a", bad}); err == nil {
			t.Errorf("%s was taken", bad)
		}
	}
}

func TestSpan(t *testing.T) {
	for in, want := range map[int64]string{0: "0s", 119: "119s", 120: "2m", 7199: "119m", 7200: "2h", 172800: "2d", -5: "0s"} {
		if got := span(time.Duration(in) * time.Second); got != want {
			t.Errorf("%d: %s, want %s", in, got, want)
		}
	}
	for in, want := range map[int64]string{0: "0", 1023: "1023", 1536: "1.5k", 512 << 20: "512m", 3 << 29: "1.5g", -1: "unlimited"} {
		if got := bytesText(in); got != want {
			t.Errorf("%d: %s, want %s", in, got, want)
		}
	}
}

// TestHintsExist: what an error tells people to try is a verb that there is.
func TestHintsExist(t *testing.T) {
	line := regexp.MustCompile(`Hint:|fault\{|refuse\(|^\tCode\w+:\s+"`)
	command := regexp.MustCompile(`\bberm ([a-z]+)(?: ([a-z]+))?`)
	prose := []string{"as", "did", "that", "has", "is", "knows", "runs", "keeper"} // berm keeper is for systemd only
	n := 0
	for _, dir := range []string{"api", "client", "internal", "cmd/berm"} {
		err := filepath.WalkDir(filepath.Join("../..", dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			b, err := os.ReadFile(path)
			for i, l := range strings.Split(string(b), "\n") {
				if !line.MatchString(l) {
					continue
				}
				for _, m := range command.FindAllStringSubmatch(l, -1) {
					if slices.Contains(prose, m[1]) {
						continue
					}
					n++
					v, ok := find(m[1])
					if ok && v.subs != nil && m[2] != "" {
						_, ok = findIn(v.subs, m[2])
					}
					if !ok {
						t.Errorf("%s:%d: there is no %q", path, i+1, m[0])
					}
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if n < 50 {
		t.Errorf("only %d hints were found", n)
	}
}
