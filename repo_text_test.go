package berm_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// tracked lists the files that git knows, those not yet added too.
func tracked(t *testing.T) []string {
	t.Helper()
	out, err := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		t.Skipf("not a git checkout: %v", err)
	}
	var files []string
	for _, f := range strings.Split(strings.TrimRight(string(out), "\x00"), "\x00") {
		if info, err := os.Stat(f); err == nil && info.Mode().IsRegular() {
			files = append(files, f)
		}
	}
	return files
}

var generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

func TestFileSizes(t *testing.T) {
	const warn, most = 250, 800
	for _, f := range tracked(t) {
		switch filepath.Ext(f) {
		case ".go", ".py", ".sh", ".js", ".ts":
		default:
			continue
		}
		text := mustRead(t, f)
		if n := strings.Count(text, "\n"); generated.MatchString(text) {
			continue
		} else if n > most {
			t.Errorf("%s has %d lines; the most is %d", f, n, most)
		} else if n > warn {
			t.Logf("%s has %d lines; would a reader want it in parts?", f, n)
		}
	}
}

// TestNoBinaries finds what a build left behind.
func TestNoBinaries(t *testing.T) {
	for _, f := range tracked(t) {
		if text := mustRead(t, f); strings.ContainsRune(text[:min(len(text), 8000)], 0) {
			t.Errorf("%s is no text: what is built is not kept here", f)
		}
	}
}

// TestWords finds what does not belong in the project: leftovers, and hosts of
// package registries, since a user's own settings decide where packages come from.
func TestWords(t *testing.T) {
	words := []string{
		"TODO" + "(agent)", "as an " + "AI", "/wo" + "rk/", "DO NOT " + "SUBMIT", "<<<<<" + "<< ", ">>>>>" + ">> ",
		"proxy." + "golang.org", "sum." + "golang.org", "py" + "pi.org", "registry." + "npmjs.org", "static." + "crates.io", "deb." + "debian.org",
	}
	for _, f := range tracked(t) {
		text := mustRead(t, f)
		if strings.Contains(text, "\x00") {
			continue
		}
		for _, w := range words {
			if at := strings.Index(text, w); at >= 0 {
				t.Errorf("%s:%d: %q does not belong here", f, 1+strings.Count(text[:at], "\n"), w)
			}
		}
	}
}

// TestChangelog: a fragment opens with its kind and one line, then says more.
func TestChangelog(t *testing.T) {
	kinds := []string{"Added", "Changed", "Fixed", "Security", "Removed"}
	files, err := filepath.Glob("changelog/unreleased/*")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Error("changelog/unreleased is empty: a change has a fragment")
	}
	for _, f := range append(files, "changelog/TEMPLATE") {
		first, rest, _ := strings.Cut(mustRead(t, f), "\n")
		kind, summary, ok := strings.Cut(first, ": ")
		switch {
		case !ok || !slices.Contains(kinds, kind) || summary == "":
			t.Errorf("%s: the first line is %q, not `KIND: summary` with KIND one of %v", f, first, kinds)
		case len(first) > 100:
			t.Errorf("%s: the first line has %d characters; the most is 100", f, len(first))
		case !strings.HasPrefix(rest, "\n") || len(strings.TrimSpace(rest)) < 20:
			t.Errorf("%s: after an empty line it says what changes for a user", f)
		case filepath.Dir(f) == "changelog/unreleased" && filepath.Ext(f) != ".md":
			t.Errorf("%s: a fragment's name ends in .md", f)
		}
	}
}

// TestLayout: the packages in the layout of docs/design.md are those that
// exist, and the ones marked (later) do not exist yet.
func TestLayout(t *testing.T) {
	_, block, ok := strings.Cut(mustRead(t, "docs/design.md"), "```layout\n")
	if !ok {
		t.Fatal("docs/design.md has no block ```layout")
	}
	block, _, _ = strings.Cut(block, "```")
	named := map[string]bool{}
	for line := range strings.Lines(block) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name = strings.TrimSuffix(name, "/"); name == "" {
			continue
		}
		named[name] = true
		_, err := os.Stat(name)
		if later := strings.Contains(line, "(later)"); later && err == nil {
			t.Errorf("docs/design.md marks %s as later, and it is here", name)
		} else if !later && err != nil {
			t.Errorf("docs/design.md lays out %s, which is not here", name)
		}
	}
	for _, p := range mustPackages(t) {
		if !named[p.name()] {
			t.Errorf("docs/design.md does not lay out %s", p.name())
		}
	}
}

// named is a test in docs/specification.md: `internal/jail.TestLauncher`.
var named = regexp.MustCompile("`([a-z0-9/-]+)\\.((?:Test|Fuzz)[A-Za-z0-9_]*)`")

// TestSpecification: a promise without a test is a wish, and so is one with a
// test that does not exist.
func TestSpecification(t *testing.T) {
	text := mustRead(t, "docs/specification.md")
	found := named.FindAllStringSubmatch(text, -1)
	if len(found) == 0 {
		t.Error("docs/specification.md names no test")
	}
	for _, m := range found {
		files, _ := filepath.Glob(filepath.Join(m[1], "*_test.go"))
		if !slices.ContainsFunc(files, func(f string) bool { return strings.Contains(mustRead(t, f), "\nfunc "+m[2]+"(") }) {
			t.Errorf("docs/specification.md: there is no %s in %s", m[2], m[1])
		}
	}
	for _, m := range regexp.MustCompile("`([a-z/-]+/testdata/[a-z0-9/_-]+\\.txtar)`").FindAllStringSubmatch(text, -1) {
		if _, err := os.Stat(m[1]); err != nil {
			t.Errorf("docs/specification.md: there is no %s", m[1])
		}
	}
	for i, line := range strings.Split(text, "\n") {
		if strings.Contains(line, "FI"+"LL") && !strings.Contains(line, "marked") {
			t.Errorf("docs/specification.md:%d still has something to fill in: %s", i+1, line)
		}
	}
}

// links are those of a Markdown text, [text](target).
var links = regexp.MustCompile(`\]\(([^)#\s]+)(#[^)]*)?\)`)

func TestLinks(t *testing.T) {
	for _, f := range tracked(t) {
		if filepath.Ext(f) != ".md" {
			continue
		}
		for _, m := range links.FindAllStringSubmatch(mustRead(t, f), -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(f), m[1])); err != nil {
				t.Errorf("%s links to %s, which is not here", f, m[1])
			}
		}
	}
}
