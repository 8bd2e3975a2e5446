package berm_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/bermhq/berm"

// A pkg is what `go list -json` says of a package, as far as the rules need it.
type pkg struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	CgoFiles   []string
	Imports    []string
}

func (p pkg) name() string {
	return strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
}

// packages lists every package of the module, the root (tests only) left out.
var packages = sync.OnceValues(func() ([]pkg, error) {
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,GoFiles,CgoFiles,Imports", "./...")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1") // else cgo files would be left out unseen
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	var list []pkg
	dec := json.NewDecoder(bytes.NewReader(out))
	for {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return list, nil
		} else if err != nil {
			return nil, err
		}
		if p.ImportPath != module {
			list = append(list, p)
		}
	}
})

func mustPackages(t *testing.T) []pkg {
	t.Helper()
	list, err := packages()
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// table reads imports.txt: what each package may import, who may import a module.
func table(t *testing.T) (inside, owners map[string][]string) {
	t.Helper()
	data, err := os.ReadFile("imports.txt")
	if err != nil {
		t.Fatal(err)
	}
	inside, owners = map[string][]string{}, map[string][]string{}
	for i, line := range strings.Split(string(data), "\n") {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		name, rest, ok := strings.Cut(line, ":")
		into := inside
		if m, isModule := strings.CutPrefix(name, "module "); isModule {
			name, into = m, owners
		}
		if _, twice := into[name]; twice || !ok {
			t.Fatalf("imports.txt:%d: not a line of the table, or a second one for %q", i+1, name)
		}
		into[name] = strings.Fields(rest)
	}
	return inside, owners
}

func TestImports(t *testing.T) {
	inside, owners := table(t)
	full := func(name string) string { // "policy" is internal/policy
		if _, top := inside[name]; top {
			return name
		}
		return "internal/" + name
	}
	exists := map[string]bool{}
	for _, p := range mustPackages(t) {
		exists[p.name()] = true
		allowed, listed := inside[p.name()]
		if !listed {
			t.Errorf("%s is not in imports.txt", p.name())
			continue
		}
		for _, imp := range p.Imports {
			if own, is := strings.CutPrefix(imp, module+"/"); is {
				if !slices.ContainsFunc(allowed, func(a string) bool { return full(a) == own }) {
					t.Errorf("%s must not import %s (imports.txt)", p.name(), own)
				}
				continue
			}
			if first, _, _ := strings.Cut(imp, "/"); !strings.Contains(first, ".") {
				continue // the standard library
			}
			rule := ""
			for prefix := range owners {
				if (imp == prefix || strings.HasPrefix(imp, prefix+"/")) && len(prefix) > len(rule) {
					rule = prefix
				}
			}
			if rule == "" {
				t.Errorf("%s imports %s, which has no owner in imports.txt", p.name(), imp)
			} else if !slices.Contains(owners[rule], p.name()) {
				t.Errorf("%s must not import %s: %s belongs to %v", p.name(), imp, rule, owners[rule])
			}
		}
	}
	for name, allowed := range inside {
		for _, n := range append([]string{name}, allowed...) {
			if f := full(n); !exists[f] && n != name {
				t.Errorf("imports.txt, %s: there is no package %s", name, f)
			} else if n == name && !exists[name] {
				t.Errorf("imports.txt: there is no package %s", name)
			}
		}
	}
}

// TestPurity holds promises about single packages beyond the table.
func TestPurity(t *testing.T) {
	forbidden := map[string][]string{
		"internal/policy": {"os", "net", "net/http", "context", "math/rand", "math/rand/v2"},
	}
	clockless := []string{"internal/policy"}
	for _, p := range mustPackages(t) {
		if slices.Contains(clockless, p.name()) {
			for _, file := range p.GoFiles {
				for _, use := range clocks(t, filepath.Join(p.Dir, file), nil) {
					t.Errorf("%s/%s: %s; time is an argument there", p.name(), file, use)
				}
			}
		}
		for _, imp := range p.Imports {
			if slices.Contains(forbidden[p.name()], imp) {
				t.Errorf("%s must not import %s: it decides from its arguments alone", p.name(), imp)
			}
		}
		if len(p.CgoFiles) > 0 || slices.Contains(p.Imports, "C") {
			t.Errorf("%s uses cgo; the binary is static", p.name())
		}
		for _, file := range p.GoFiles {
			if slices.Contains(p.Imports, "unsafe") && !strings.HasSuffix(file, "_unsafe.go") && importsUnsafe(t, filepath.Join(p.Dir, file)) {
				t.Errorf("%s/%s imports unsafe; such code lives in files that end in _unsafe.go", p.name(), file)
			}
		}
		if last := filepath.Base(p.name()); slices.Contains([]string{"util", "utils", "common", "shared", "helpers", "types", "models"}, last) {
			t.Errorf("%s: a package is named after what it does", p.name())
		}
	}
}

// clocks lists what a file takes from package time that reads the clock or
// waits for it. Types and arithmetic are no matter. src is the text of the file,
// nil to read it.
func clocks(t *testing.T, path string, src any) []string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), path, src, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var uses []string
	for _, imp := range f.Imports {
		if imp.Path.Value != `"time"` {
			continue
		}
		name := "time"
		if imp.Name != nil {
			name = imp.Name.Name
		}
		if name == "." {
			uses = append(uses, `import . "time" hides what is used of it`)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok || !slices.Contains([]string{"Now", "Since", "Until", "After", "AfterFunc", "Tick", "Sleep", "NewTimer", "NewTicker"}, sel.Sel.Name) {
				return true
			}
			if x, ok := sel.X.(*ast.Ident); ok && x.Name == name {
				uses = append(uses, name+"."+sel.Sel.Name)
			}
			return true
		})
	}
	return uses
}

func TestClocks(t *testing.T) {
	for _, tt := range []struct {
		src  string
		uses int
	}{
		{`import "time"; func f(a, b time.Time) bool { return a.After(b.Add(time.Second)) }`, 0},
		{`import "time"; var a = time.Now()`, 1},
		{`import "time"; func f() { time.Sleep(1); <-time.After(1) }`, 2},
		{`import "time"; var now = time.Now`, 1},
		{`import clock "time"; var a = clock.Since(clock.Time{})`, 1},
		{`import . "time"; var a = Now()`, 1},
		{`import "strings"; var time struct{ Now int }; var a = time.Now + len(strings.TrimSpace(""))`, 0},
	} {
		if uses := clocks(t, "x.go", "package x; "+tt.src); len(uses) != tt.uses {
			t.Errorf("%s: %q, want %d", tt.src, uses, tt.uses)
		}
	}
}

// importsUnsafe leaves out files that only unlock go:linkname (`import _`).
func importsUnsafe(t *testing.T, path string) bool {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	for _, imp := range f.Imports {
		if imp.Path.Value == `"unsafe"` && (imp.Name == nil || imp.Name.Name != "_") {
			return true
		}
	}
	return false
}

func TestPackageDocs(t *testing.T) {
	for _, p := range mustPackages(t) {
		var with []string
		for _, file := range p.GoFiles {
			f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, file), nil, parser.PackageClauseOnly|parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			if f.Doc != nil && strings.TrimSpace(f.Doc.Text()) != "" {
				with = append(with, file)
			}
		}
		if len(p.GoFiles) > 0 && len(with) != 1 {
			t.Errorf("%s has %d package comments %v; a newcomer reads exactly one", p.name(), len(with), with)
		}
	}
}

// goMod is what `go mod edit -json` says.
type goMod struct {
	Require []struct {
		Path     string
		Indirect bool
	}
	Replace []struct{ Old struct{ Path string } }
}

func TestModules(t *testing.T) {
	out, err := exec.Command("go", "mod", "edit", "-json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var mod goMod
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatal(err)
	}
	for _, r := range mod.Replace {
		t.Errorf("go.mod replaces %s; `go install` of a module with replace fails", r.Old.Path)
	}
	doc := mustRead(t, "docs/dependencies.md")
	_, owners := table(t)
	for _, r := range mod.Require {
		if r.Indirect {
			continue
		}
		if !strings.Contains(doc, "| `"+r.Path+"` |") {
			t.Errorf("docs/dependencies.md has no line with a reason for %s", r.Path)
		}
		if _, owned := owners[r.Path]; !owned {
			t.Errorf("imports.txt names no owner for %s", r.Path)
		}
	}
}

// TestNotice: whatever is linked into the binary is named with its licence.
func TestNotice(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}}{{end}}{{end}}",
		"./cmd/berm", "./cmd/berm-agent", "./cmd/berm-sandbox").Output()
	if err != nil {
		t.Fatal(err)
	}
	notice := mustRead(t, "NOTICE")
	linked := strings.Fields(string(out))
	slices.Sort(linked)
	for _, m := range slices.Compact(linked) {
		if !regexp.MustCompile(`(?m)^  ` + regexp.QuoteMeta(m) + `( |$)`).MatchString(notice) {
			t.Errorf("%s is linked into the binary and not in NOTICE", m)
		}
	}
}

func mustRead(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
