package report

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/bermhq/berm/attack"
)

// tags are all that a page may have, and what they may have in them.
var (
	tagShape = regexp.MustCompile(`<(/?)([a-zA-Z!][^\s>/]*)([^>]*)>`)
	tags     = strings.Fields("!doctype html head meta title style body header main p h1 h2 h3 ul li i dl dt dd div section details summary b span svg rect path circle text a table thead tbody tr td th small figure code pre")
	attrs    = strings.Fields("lang charset http-equiv content name class id href viewbox width height preserveaspectratio role aria-label aria-hidden x y rx d cx cy r open scope html")
)

// checkPage: nothing that was put into a report has become a part of the page's
// structure, and nothing in it hides.
func checkPage(t testing.TB, b []byte) {
	t.Helper()
	for _, m := range tagShape.FindAllSubmatch(b, -1) {
		if name := strings.ToLower(string(m[2])); !slices.Contains(tags, name) {
			t.Errorf("an element %q", m[0])
		}
		for _, a := range regexp.MustCompile(`([^\s"=]+)(="[^"]*")?`).FindAllSubmatch(m[3], -1) {
			if name := strings.ToLower(string(a[1])); name != "/" && !slices.Contains(attrs, name) {
				t.Errorf("an attribute %q in %q", name, m[0])
			}
		}
	}
	if i := bytes.IndexFunc(b, func(r rune) bool {
		return r < ' ' && r != '\n' || r == 0x7f || r >= 0x200b && r <= 0x200f || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069
	}); i >= 0 {
		t.Errorf("%q", b[max(0, i-20):i+10])
	}
}

func TestHostileFields(t *testing.T) {
	rep := sample(t)
	for i, evil := range []string{"</pre><script>x</script>", `" class="held" x="`, "javascript:alert(1)", "\u202e\u2066", "</style><b>", "</title>"} {
		rep.Cases[i].ID, rep.Cases[i].Evidence, rep.Cases[i].Wall, rep.Cases[i].Family, rep.Cases[i].Isolation = evil, evil, evil, evil, evil
		rep.Target += evil
		rep.Build.Version += evil
	}
	rep, k := signed(t, rep)
	b := written(t, "html", rep)
	checkPage(t, b)
	rep.Summary = attack.Sum(rep.Cases, rep.Benign)
	if err := k.Sign(&rep); err != nil {
		t.Fatal(err)
	}
	if c := check(t, written(t, "html", rep), k.Public()); !c.OK {
		t.Errorf("%+v", c)
	}
}

// checkJUnit reads it as CI servers do: counts must be what is there, every case
// has at most one outcome, and names are unique within their class.
func checkJUnit(t testing.TB, b []byte, rep attack.Report) {
	t.Helper()
	var got suites
	d := xml.NewDecoder(bytes.NewReader(b))
	d.Strict = true
	if err := d.Decode(&got); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	if _, err := d.Token(); err != io.EOF && err != nil {
		t.Errorf("after its end: %v", err)
	}
	var sum totals
	for _, s := range got.Suites {
		var here totals
		for _, c := range s.Cases {
			here.Tests++
			n := 0
			for _, o := range []struct {
				is   *outcome
				into *int
			}{{c.Failure, &here.Failures}, {c.Error, &here.Errors}, {c.Skipped, &here.Skipped}} {
				if o.is != nil {
					n++
					*o.into++
				}
			}
			if n > 1 || c.Class == "" || !regexp.MustCompile(`^\d+\.\d{3}$`).MatchString(c.Time) {
				t.Errorf("%+v", c)
			}
		}
		if s.Tests != here.Tests || s.Failures != here.Failures || s.Errors != here.Errors || s.Skipped != here.Skipped {
			t.Errorf("suite %s says %+v and has %+v", s.Name, s.totals, here)
		}
		sum.Tests, sum.Failures, sum.Errors, sum.Skipped = sum.Tests+here.Tests, sum.Failures+here.Failures, sum.Errors+here.Errors, sum.Skipped+here.Skipped
	}
	if got.Tests != sum.Tests || got.Failures != sum.Failures || got.Errors != sum.Errors || got.Skipped != sum.Skipped ||
		got.Tests != len(rep.Cases)+len(rep.Benign) || got.Failures != rep.Summary.Findings {
		t.Errorf("it says %+v, has %+v, and there are %d cases and %d findings", got.totals, sum, len(rep.Cases), rep.Summary.Findings)
	}
	if bytes.Contains(b, []byte("[[")) {
		t.Error("something may be taken for an attachment")
	}
}

func TestJUnit(t *testing.T) {
	rep := sample(t)
	b := written(t, "junit", rep)
	checkJUnit(t, b, rep)
	for _, want := range []string{
		`<testsuites name="berm attack" tests="`, `<testsuite name="egress gvisor" timestamp="2026-11-30T09:05:00" tests="106"`,
		`<testcase classname="berm.attack.microvm.egress" name="` + rep.Cases[3].ID + `" time="1.250">`,
		`<failure message="breached: TCP to 10.9.8.7:80 was called 2 times" type="breached">`, `type="unseen"`, `type="inconclusive"`, `<skipped message="waits for`, `type="false-block"`,
		"&lt;/script&gt;",
	} {
		if !bytes.Contains(b, []byte(want)) {
			t.Errorf("no %s", want)
		}
	}
}

// checkSARIF holds the log to the rules of SARIF 2.1.0 that a schema states, and
// to those that it cannot.
func checkSARIF(t testing.TB, b []byte, rep attack.Report) {
	t.Helper()
	var got map[string]any
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	run := got["runs"].([]any)[0].(map[string]any)
	if got["version"] != "2.1.0" || len(got["runs"].([]any)) != 1 {
		t.Errorf("version %v", got["version"])
	}
	only(t, "log", got, "$schema version runs")
	only(t, "run", run, "tool automationDetails invocations columnKind results properties")
	driver := run["tool"].(map[string]any)["driver"].(map[string]any)
	only(t, "driver", driver, "name version informationUri rules")
	rules := driver["rules"].([]any)
	ids := map[string]int{}
	for i, r := range rules {
		r := r.(map[string]any)
		only(t, "rule", r, "id shortDescription fullDescription defaultConfiguration properties")
		if _, twice := ids[r["id"].(string)]; twice {
			t.Errorf("rule %v is there twice", r["id"])
		}
		ids[r["id"].(string)] = i
		message := r["shortDescription"].(map[string]any)["text"].(string)
		placeholders(t, message)
	}
	results := run["results"].([]any)
	want := rep.Summary.Findings + rep.Summary.Inconclusive
	for _, r := range rep.Cases {
		if r.Unseen() && r.Verdict == attack.Inconclusive {
			want--
		}
	}
	if len(results) != want {
		t.Errorf("%d results, not %d", len(results), want)
	}
	for _, r := range results {
		r := r.(map[string]any)
		only(t, "result", r, "ruleId ruleIndex kind level message locations partialFingerprints properties")
		if i, known := ids[r["ruleId"].(string)]; !known || float64(i) != r["ruleIndex"] {
			t.Errorf("rule %v at %v", r["ruleId"], r["ruleIndex"])
		}
		kind, level := r["kind"], r["level"]
		if !slices.Contains([]any{"fail", "review"}, kind) || !slices.Contains([]any{"error", "warning", "none"}, level) || (kind != "fail") != (level == "none") {
			t.Errorf("kind %v, level %v", kind, level)
		}
		placeholders(t, r["message"].(map[string]any)["text"].(string))
		at := r["locations"].([]any)[0].(map[string]any)["physicalLocation"].(map[string]any)
		if uri := at["artifactLocation"].(map[string]any)["uri"].(string); !regexp.MustCompile(`^attack/cases/[a-z0-9-]*\.txtar$`).MatchString(uri) {
			t.Errorf("uri %q", uri)
		}
	}
}

// placeholders: no {0}, and nothing that is a link.
func placeholders(t testing.TB, s string) {
	t.Helper()
	rest := strings.NewReplacer("{{", "", "}}", "", `\\`, "", `\[`, "", `\]`, "").Replace(s)
	if s == "" || strings.ContainsAny(rest, "{}[]") {
		t.Errorf("message %q", s)
	}
}

func only(t testing.TB, what string, m map[string]any, names string) {
	t.Helper()
	for k := range m {
		if !slices.Contains(strings.Fields(names), k) {
			t.Errorf("%s has %s", what, k)
		}
	}
}

func TestSARIF(t *testing.T) {
	rep := sample(t)
	b := written(t, "sarif", rep)
	checkSARIF(t, b, rep)
	for _, want := range []string{
		fmt.Sprintf(`"ruleId": %q`, rep.Cases[3].ID), `"text": "breached: TCP to 10.9.8.7:80 was called 2 times;`, `"startTimeUtc": "2026-11-30T09:05:00Z"`, `"endTimeUtc": "2026-11-30T09:08:32Z"`,
		`"fullyQualifiedName": "microvm/egress-policy"`, `"commandLine": "berm attack --isolation gvisor,microvm"`,
	} {
		if !bytes.Contains(b, []byte(want)) {
			t.Errorf("no %s", want)
		}
	}
	if b := written(t, "sarif", calm(t)); !bytes.Contains(b, []byte(`"results": []`)) {
		t.Error("what was contained is a result")
	}
}
