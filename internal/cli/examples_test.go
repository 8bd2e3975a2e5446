package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/policy"
)

// TestExamples: what the help and the documents show of egress is accepted.
func TestExamples(t *testing.T) {
	texts := map[string]string{}
	for _, page := range []string{"policy", "run", "create", "egress"} {
		code, out, errs := newWorld(t).run(t.Context(), "", "help", page)
		if code != 0 || errs != "" {
			t.Fatalf("help %s: %d, %q", page, code, errs)
		}
		texts["berm help "+page] = out
	}
	docs, _ := filepath.Glob("../../docs/*.md")
	for _, name := range append(docs, "../../README.md") {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		texts[filepath.Base(name)] = string(b)
	}
	parsed := func(where, doc string) int {
		e, err := policy.ParseEgress(json.RawMessage(doc), time.Now(), func(string) (policy.Preset, error) {
			return policy.Preset{Hosts: []string{"packages.example.com:443"}}, nil
		})
		if err != nil {
			t.Errorf("%s: %s: %v", where, doc, err)
			return 0
		}
		return len(e.Rules)
	}
	t.Chdir(t.TempDir())
	flags, rules, documents, values := 0, 0, 0, 0
	for where, text := range texts {
		for _, m := range allowFlag.FindAllStringSubmatch(text, -1) {
			w, asked := newWorld(t).wired(api.EndReport{})
			if code, _, errs := w.run(t.Context(), "", "run", "--allow", m[1]+m[2], "--", "true"); code != 0 {
				t.Errorf("%s: --allow %s: %d, %q", where, m[1]+m[2], code, errs)
				continue
			}
			flags += parsed(where, string(asked.Egress))
		}
		for _, m := range fenced.FindAllStringSubmatch(text, -1) {
			switch {
			case m[1] == "json" && strings.HasPrefix(m[2], "[\n  {\"deny\""):
				rules += parsed(where, m[2])
			case m[1] == "yaml" && strings.HasPrefix(m[2], "egress:"):
				if err := os.WriteFile("p.yaml", []byte(m[2]), 0o644); err != nil {
					t.Fatal(err)
				}
				w, asked := newWorld(t).wired(api.EndReport{})
				if code, _, errs := w.run(t.Context(), "", "run", "--policy", "p.yaml", "--", "true"); code != 0 {
					t.Errorf("%s: %q\n%s", where, errs, m[2])
					continue
				}
				documents += parsed(where, string(asked.Egress))
			}
		}
		for _, m := range optionRow.FindAllStringSubmatch(text, -1) {
			for _, v := range quoted.FindAllStringSubmatch(m[2], -1) {
				values += parsed(where, `[{"allow":"192.0.2.1:80","`+m[1]+`":`+v[1]+`}]`)
			}
		}
	}
	if flags < 10 || rules < 7 || documents < 4 || values < 6 {
		t.Errorf("%d flags, %d rules, %d of documents and %d values: this looks at less than there is", flags, rules, documents, values)
	}
}

var (
	allowFlag = regexp.MustCompile(`--allow[= ](?:'([^']+)'|([a-z0-9*\[][^\s'` + "`" + `|)]*))`)
	fenced    = regexp.MustCompile("(?s)```([a-z]+)\n(.*?)```")
	optionRow = regexp.MustCompile("(?m)^\\| `(sni|rate|bytes|expires)` \\| (.*) \\|$")
	quoted    = regexp.MustCompile("`(\"[^`\"]+\")`")
)
