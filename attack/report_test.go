package attack

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestSum(t *testing.T) {
	yes, no := true, false
	r := Report{Cases: []Result{{Family: "egress", Verdict: Contained}, {Family: "egress", Verdict: Contained, Seen: &yes}, {Family: "escape", Verdict: Contained, Seen: &no},
		{Family: "escape", Verdict: Breached, Seen: &no}, {Family: "egress", Isolation: "microvm", Verdict: Inconclusive}, {Family: "escape", Verdict: NotApplicable}},
		Benign: []Benign{{ID: "a"}, {ID: "b", Hindered: true}}}
	r.finish(Options{}, time.Now().Add(-2*time.Second))
	if r.Summary.Seconds < 2 || r.Cases[0].Isolation != "microvm" || r.Benign[0].Isolation != "microvm" {
		t.Errorf("%+v", r)
	}
	r.Cases[4].Isolation = "kvm"
	r.Summary = Sum(r.Cases, r.Benign)
	want := Summary{Count: Count{Cases: 6, Contained: 3, Breached: 1, Inconclusive: 1, NotApplicable: 1, Unseen: 2},
		Benign: 2, FalseBlocks: 1, Findings: 3, Families: []FamilyCount{
			{"microvm", "egress", Count{Cases: 2, Contained: 2}},
			{"microvm", "escape", Count{Cases: 3, Contained: 1, Breached: 1, NotApplicable: 1, Unseen: 2}},
			{"kvm", "egress", Count{Cases: 1, Inconclusive: 1}},
		}}
	if !reflect.DeepEqual(r.Summary, want) {
		t.Errorf("got %+v", r.Summary)
	}
}

// TestReportKeys: what the contract names is where it names it.
func TestReportKeys(t *testing.T) {
	r := newReport(Options{Target: "berm devel"}, time.Now())
	r.Cases = append(r.Cases, Result{ID: "x", Family: "escape", Verdict: Contained})
	r.finish(Options{}, time.Now())
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := json.Unmarshal(b, &doc); err != nil {
		t.Fatal(err)
	}
	for path, keys := range map[string][]string{
		"":        {"host", "target", "cases", "benign", "summary", "berm", "suite", "date"},
		"host":    {"kernel", "arch", "cpus", "memory_bytes", "root", "cgroup", "security_modules", "vulnerabilities", "virtual"},
		"summary": {"cases", "contained", "breached", "not_applicable", "inconclusive", "unseen", "findings", "seconds", "families", "benign", "false_blocks"},
		"cases":   {"id", "family", "verdict", "seen", "evidence", "wall", "goal", "seconds", "isolation"},
	} {
		at := doc
		if path == "cases" {
			at = doc["cases"].([]any)[0].(map[string]any)
		} else if path != "" {
			at = doc[path].(map[string]any)
		}
		for _, k := range keys {
			if v, ok := at[k]; !ok || v == nil && k != "seen" {
				t.Errorf("%s has no %s: %s", path, k, b)
			}
		}
	}
}

func TestSuite(t *testing.T) {
	s := thisSuite()
	all, err := Cases()
	if err != nil || s.Cases != len(all) || len(s.SHA256) != 64 || s != thisSuite() {
		t.Errorf("%+v, %d cases, %v", s, len(all), err)
	}
	h := thisHost()
	if h.Kernel == "" || h.CPUs == 0 || h.MemoryBytes == 0 {
		t.Errorf("%+v", h)
	}
}

func TestPlain(t *testing.T) {
	for in, want := range map[string]string{
		"as it is: é ü 漢字 → \"quoted\"":    "as it is: é ü 漢字 → \"quoted\"",
		"two\nlines\tand\x1b[2J":           `two lines and\u{1b}[2J`,
		"admin\u202edetouner\u2069 \u200b": `admin\u{202e}detouner\u{2069} \u{200b}`,
		"##vso[x] ###":                     `#\u{23}vso[x] #\u{23}#`,
		"\xff\xfe":                         "?",
		"a\u0300\u0300\u0300":              `a\u{300}\u{300}\u{300}`,
		"\u2028\u2029\ufeff\u00a0\u00ad":   `\u{2028}\u{2029}\u{feff}\u{a0}\u{ad}`,
		"\U000e0041\ue000\ufe0f\u3164":     `\u{e0041}\u{e000}\u{fe0f}\u{3164}`,
	} {
		if got := Plain(in); got != want {
			t.Errorf("%q is %q, not %q", in, got, want)
		}
	}
}

func FuzzHarmless(f *testing.F) {
	f.Add("began \x1b]0;x\x07\u202e</script>\xff")
	f.Add(strings.Repeat("\u0301", 3000))
	f.Fuzz(func(t *testing.T, s string) {
		got := harmless(s)
		if !utf8.ValidString(got) || len(got) > maxEvidence+3 || slices.ContainsFunc([]rune(got), unseen) || strings.Contains(got, "##") {
			t.Errorf("%q is %q", s, got)
		}
		if again := harmless(got); len(got) <= maxEvidence && again != got {
			t.Errorf("%q and then %q", got, again)
		}
	})
}
