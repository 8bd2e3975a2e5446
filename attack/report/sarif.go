package report

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"time"

	"github.com/bermhq/berm/attack"
)

const (
	sarifVersion = "2.1.0"
	sarifSchema  = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)

// The parts of SARIF that are used here.
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool struct {
			Driver sarifDriver `json:"driver"`
		} `json:"tool"`
		AutomationDetails struct {
			ID string `json:"id"`
		} `json:"automationDetails"`
		Invocations []sarifInvocation `json:"invocations"`
		ColumnKind  string            `json:"columnKind"`
		Results     []sarifResult     `json:"results"`
		Properties  map[string]any    `json:"properties"`
	}
	sarifDriver struct {
		Name    string      `json:"name"`
		Version string      `json:"version,omitempty"`
		Where   string      `json:"informationUri"`
		Rules   []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID         string       `json:"id"`
		Short      sarifMessage `json:"shortDescription"`
		Full       sarifMessage `json:"fullDescription"`
		Default    sarifLevel   `json:"defaultConfiguration"`
		Properties sarifTags    `json:"properties"`
	}
	sarifLevel struct {
		Level string `json:"level"`
	}
	sarifTags struct {
		Tags     []string `json:"tags"`
		Severity string   `json:"security-severity"`
	}
	sarifMessage struct {
		Text string `json:"text"`
	}
	sarifInvocation struct {
		ExecutionSuccessful bool   `json:"executionSuccessful"`
		Start               string `json:"startTimeUtc"`
		End                 string `json:"endTimeUtc"`
		CommandLine         string `json:"commandLine,omitempty"`
	}
	sarifResult struct {
		RuleID       string            `json:"ruleId"`
		RuleIndex    int               `json:"ruleIndex"`
		Kind         string            `json:"kind"`
		Level        string            `json:"level"`
		Message      sarifMessage      `json:"message"`
		Locations    []sarifLocation   `json:"locations"`
		Fingerprints map[string]string `json:"partialFingerprints"`
		Properties   map[string]any    `json:"properties"`
	}
	sarifLocation struct {
		Physical sarifPhysical  `json:"physicalLocation"`
		Logical  []sarifLogical `json:"logicalLocations"`
	}
	sarifPhysical struct {
		Artifact struct {
			URI string `json:"uri"`
		} `json:"artifactLocation"`
		Region struct {
			StartLine int `json:"startLine"`
		} `json:"region"`
	}
	sarifLogical struct {
		Name string `json:"name"`
		Full string `json:"fullyQualifiedName"`
	}
)

// sarif has a rule for each case that ran and a result only for what is to be
// looked at: those who read it take every result for a problem, whatever its kind.
func sarif(rep attack.Report) ([]byte, error) {
	var run sarifRun
	run.Tool.Driver = sarifDriver{Name: "berm attack", Version: strings.TrimPrefix(rep.Build.Version, "v"), Where: "https://github.com/bermhq/berm", Rules: []sarifRule{}}
	run.AutomationDetails.ID = "berm-attack/"
	run.ColumnKind, run.Results = "unicodeCodePoints", []sarifResult{}
	end := rep.Date.Add(time.Duration(rep.Summary.Seconds * float64(time.Second)))
	run.Invocations = []sarifInvocation{{true, rep.Date.UTC().Format(time.RFC3339), end.UTC().Format(time.RFC3339), rep.Command}}
	run.Properties = map[string]any{"target": rep.Target, "host": rep.Host, "berm": rep.Build, "suite": rep.Suite, "summary": rep.Summary}
	rules := map[string]int{}
	rule := func(id, family, what string) int {
		i, known := rules[id]
		if !known {
			i, rules[id] = len(rules), len(rules)
			run.Tool.Driver.Rules = append(run.Tool.Driver.Rules, sarifRule{id, message(id), message(what), sarifLevel{"error"}, sarifTags{[]string{"security", family}, "9.0"}})
		}
		return i
	}
	add := func(id, isolation, wall, kind, level, what, evidence string, index int) {
		sum := sha256.Sum256([]byte(strings.Join([]string{rep.Target, isolation, id, what}, "\x00")))
		run.Results = append(run.Results, sarifResult{RuleID: id, RuleIndex: index, Kind: kind, Level: level, Message: message(what + ": " + evidence),
			Locations: []sarifLocation{located(id, isolation, wall)}, Fingerprints: map[string]string{"bermAttack/v1": hex.EncodeToString(sum[:16])},
			Properties: map[string]any{"isolation": isolation, "wall": wall, "outcome": what}})
	}
	for _, r := range rep.Cases {
		i := rule(r.ID, r.Family, r.Goal)
		switch {
		case r.Verdict == attack.Breached:
			add(r.ID, r.Isolation, r.Wall, "fail", "error", "breached", r.Evidence, i)
		case r.Unseen():
			add(r.ID, r.Isolation, r.Wall, "fail", "warning", "unseen", r.Evidence, i)
		case r.Verdict != attack.Contained && r.Verdict != attack.NotApplicable:
			add(r.ID, r.Isolation, r.Wall, "review", "none", "inconclusive", r.Evidence, i)
		}
	}
	for _, b := range rep.Benign {
		i := rule(b.ID, "benign", b.Goal)
		if b.Hindered {
			add(b.ID, b.Isolation, "", "fail", "warning", "false block", b.Evidence, i)
		}
	}
	b, err := json.MarshalIndent(sarifLog{sarifSchema, sarifVersion, []sarifRun{run}}, "", " ")
	return append(b, '\n'), err
}

func located(id, isolation, wall string) (l sarifLocation) {
	l.Physical.Artifact.URI = "attack/cases/" + fileName(id) + ".txtar"
	l.Physical.Region.StartLine = 1
	if wall == "" {
		wall = "none"
	}
	l.Logical = []sarifLogical{{wall, isolation + "/" + wall}}
	return l
}

// fileName is a name that means nothing in an address.
func fileName(id string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return '-'
	}, id)
}

// message is a text in which nothing is a link and nothing a placeholder, as
// both would be in SARIF. It has to say something.
func message(s string) sarifMessage {
	if s == "" {
		s = "-"
	}
	return sarifMessage{strings.NewReplacer(`\`, `\\`, "[", `\[`, "]", `\]`, "{", "{{", "}", "}}").Replace(s)}
}
