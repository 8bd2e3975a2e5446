package main

import (
	"os"
	"strings"
	"testing"

	"github.com/bermhq/berm/attack"
)

// TestTargets: the file beside this program can be read, its first target is Berm,
// and each other one says what it is and can be attacked.
func TestTargets(t *testing.T) {
	text, err := os.ReadFile("targets")
	if err != nil {
		t.Fatal(err)
	}
	targets, err := parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	if len(targets) < 3 || targets[0].command != "" {
		t.Errorf("%d targets, the first attacked by %q", len(targets), targets[0].command)
	}
	for _, tt := range targets[1:] {
		if _, err := attack.ParseExternal(tt.command); err != nil || tt.title == "" || tt.needs == "" || tt.ask == "" || len(tt.notes) < 40 {
			t.Errorf("%s: %v: %+v", tt.name, err, tt)
		}
	}
	if _, err := parse("name: a\nnonsense: b"); err == nil {
		t.Error("an unknown key is taken")
	}
}

// TestPage: each verdict has its place, and evidence of a hostile program breaks
// no table and tells nothing of this machine.
func TestPage(t *testing.T) {
	rep := attack.Report{Command: "berm attack --against 'env {}'", Cases: []attack.Result{
		{ID: "a", Family: "escape", Isolation: "external", Verdict: attack.Contained},
		{ID: "b", Family: "escape", Isolation: "external", Verdict: attack.Breached, Goal: "get | out",
			Evidence: "/here/x | <script> `of` /root/.aws and berm-canary-abcdefghijklmnopqrstuvwxyz of 12145 bwrap started 99"},
		{ID: "c", Family: "credentials", Isolation: "external", Verdict: attack.Inconclusive, Evidence: strings.Repeat("word ", 100)},
		{ID: "d", Family: "api", Isolation: "external", Verdict: attack.NotApplicable, Evidence: "it speaks to Berm's API"},
	}}
	rep.Summary = attack.Sum(rep.Cases, nil)
	got := page([]target{{title: "Berm, gVisor", report: &rep}, {title: "Other", missing: "not here: `other` fails"}}, "/here")
	for _, want := range []string{
		"| [Berm, gVisor](#berm-gvisor) | | | | **1** of 2 | | 1 | 1 | 1 |\n",
		"| Other | | | | | | not here: `other` fails | | |\n",
		"    berm attack --against 'env {}'\n",
		"| `b` | get \\| out | x \\| &lt;script> 'of' ~/.aws and berm-canary-... of bwrap |\n",
		"- 1: it speaks to Berm's API\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	for line := range strings.Lines(got) {
		if len(line) > 500 {
			t.Errorf("a line of %d characters: %.80s", len(line), line)
		}
	}
	if t.Failed() {
		t.Log(got)
	}
}
