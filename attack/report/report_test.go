package report

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"html"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/bermhq/berm/attack"
)

// TestJSON: what is printed is one line, and reads as what was written.
func TestJSON(t *testing.T) {
	rep, _ := signed(t, sample(t))
	b := written(t, "json", rep)
	if bytes.Count(b, []byte("\n")) != 1 || bytes.Contains(b, []byte(`\u003c`)) {
		t.Errorf("%.200s", b)
	}
	again, err := Read(b)
	if err != nil {
		t.Fatal(err)
	}
	if b2 := written(t, "json", again); !bytes.Equal(b, b2) {
		t.Errorf("read and written again it is another")
	}
	if _, err := Write("pdf", rep); err == nil {
		t.Error("there is a form pdf")
	}
}

// TestPage: the page needs nothing from elsewhere, runs nothing, has each place
// once and leads nowhere that is not there.
func TestPage(t *testing.T) {
	for name, rep := range map[string]attack.Report{"sample": sample(t), "calm": calm(t), "empty": {Cases: []attack.Result{}}} {
		rep, _ := signed(t, rep)
		text := string(written(t, "html", rep))
		for _, bad := range []string{"<script", "javascript:", "<link", "<img", "<iframe", "<object", "<form", "@import", "url(", "ZgotmplZ", " style=", " onload", "http-equiv=\"refresh"} {
			if strings.Contains(strings.ToLower(text), bad) {
				t.Errorf("%s: the page has %s", name, bad)
			}
		}
		if n := strings.Count(text, "://"); n > 0 {
			t.Errorf("%s: %d addresses", name, n)
		}
		_, css, _ := strings.Cut(text, "<style>")
		css, _, _ = strings.Cut(css, "</style>")
		sum := sha256.Sum256([]byte(css))
		policy := regexp.MustCompile(`Content-Security-Policy" content="([^"]*)"`).FindStringSubmatch(text)
		if len(policy) == 0 || !strings.Contains(html.UnescapeString(policy[1]), "default-src 'none'; style-src 'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'") {
			t.Errorf("%s: the policy %q does not let its own style through, or more than that", name, policy)
		}
		ids := map[string]bool{}
		for _, m := range regexp.MustCompile(` id="([^"]*)"`).FindAllStringSubmatch(text, -1) {
			if ids[m[1]] {
				t.Errorf("%s: %s is there twice", name, m[1])
			}
			ids[m[1]] = true
		}
		for _, m := range regexp.MustCompile(`href="([^"]*)"`).FindAllStringSubmatch(text, -1) {
			if !ids[strings.TrimPrefix(m[1], "#")] || m[1][0] != '#' {
				t.Errorf("%s: %s leads nowhere", name, m[1])
			}
		}
		for _, r := range rep.Cases {
			if n := strings.Count(text, "<b>"+r.ID+"</b>"); n == 0 {
				t.Errorf("%s: %s is not in it", name, r.ID)
			}
		}
		if n, want := strings.Count(text, `<div class="evidence" id="c`), len(rep.Cases); n != want {
			t.Errorf("%s: evidence of %d cases, not %d", name, n, want)
		}
		if again := written(t, "html", rep); string(again) != text {
			t.Errorf("%s: made twice it is another", name)
		}
	}
}

func TestHeadline(t *testing.T) {
	for _, tt := range []struct {
		s          attack.Summary
		tone, want string
	}{
		{attack.Summary{Count: attack.Count{Cases: 3, Contained: 3}}, "good", "Every attack was contained"},
		{attack.Summary{Count: attack.Count{Cases: 3, Contained: 2, Breached: 1}, Findings: 1}, "bad", "1 attack got through"},
		{attack.Summary{Count: attack.Count{Cases: 3, Contained: 3, Unseen: 2}, Findings: 2}, "bad", "2 findings"},
		{attack.Summary{Count: attack.Count{Cases: 3, Contained: 2, Inconclusive: 1}}, "unsure", "1 attack could not be judged"},
		{attack.Summary{Count: attack.Count{Cases: 3, NotApplicable: 3}}, "unsure", "Nothing was measured"},
		{attack.Summary{Count: attack.Count{Cases: 3, Contained: 2, NotApplicable: 1}}, "good", "Every attack that applies here was contained"},
		{attack.Summary{}, "unsure", "Nothing was measured"},
		{attack.Summary{Count: attack.Count{Cases: 1, Contained: 1}, FalseBlocks: 1, Benign: 4, Findings: 1}, "bad", "1 finding"},
	} {
		v := view{Report: attack.Report{Summary: tt.s}}
		if v.headline(); v.Tone != tt.tone || v.Headline != tt.want {
			t.Errorf("%+v: %s %q", tt.s, v.Tone, v.Headline)
		}
	}
}

// TestWallsAreDrawn: every wall there is has its place in the picture.
func TestWallsAreDrawn(t *testing.T) {
	drawn := []string{}
	for _, l := range slices.Concat(nested, doors) {
		drawn = append(drawn, l.walls...)
	}
	for name := range attack.Walls {
		if !slices.Contains(drawn, name) {
			t.Errorf("wall %s has no place in walls.go", name)
		}
	}
	for _, name := range drawn {
		if attack.Walls[name] == "" {
			t.Errorf("walls.go draws a wall %s that is not there", name)
		}
	}
	rep := sample(t)
	rep.Cases[0].Wall = "of tomorrow"
	text := string(written(t, "html", rep))
	if !strings.Contains(text, "Elsewhere") || !strings.Contains(text, "of tomorrow") {
		t.Error("a wall that is not known is left out")
	}
	for _, n := range []int{0, 1, 15, 16, 200} {
		p := drawWall(make([]item, n))
		for _, s := range p.Shapes {
			if s.X < 0 || s.Y < 0 || s.X+s.W > p.Width || s.Y+s.H > p.Height {
				t.Errorf("%d attacks: %+v is outside of %gx%g", n, s, p.Width, p.Height)
			}
		}
	}
}

func TestClean(t *testing.T) {
	rep := sample(t)
	b, err := json.Marshal(rep)
	if err != nil {
		t.Fatal(err)
	}
	evil := "x\u202e\x1b[2J\n" // whatever field it is in
	var v any
	json.Unmarshal(b, &v)
	if err := json.Unmarshal(must(json.Marshal(poison(v, evil))), &rep); err != nil {
		t.Fatal(err)
	}
	got := string(must(json.Marshal(clean(rep))))
	if strings.ContainsAny(got, "\u202e\x1b\n") || strings.Contains(got, `\u001b`) || !strings.Contains(got, `x\\u{202e}`) {
		t.Errorf("%.400s", got)
	}
	if !reflectEqual(clean(sample(t)), sample(t)) {
		t.Error("what is clean is changed")
	}
}

func reflectEqual(a, b attack.Report) bool {
	return string(must(json.Marshal(a))) == string(must(json.Marshal(b)))
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

// poison puts text into every string and name of a tree, times left alone.
func poison(v any, text string) any {
	switch v := v.(type) {
	case string:
		if strings.HasSuffix(v, "Z") {
			return v
		}
		return v + text
	case []any:
		for i := range v {
			v[i] = poison(v[i], text)
		}
	case map[string]any:
		for k, e := range v {
			if k == "vulnerabilities" {
				e.(map[string]any)[text] = text
			}
			v[k] = poison(e, text)
		}
	}
	return v
}
