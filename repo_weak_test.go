package berm_test

import (
	"bytes"
	"go/build/constraint"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestReleaseIsWhole: what takes walls out for negative controls is in no build
// that anybody gets. It is in files with the build tag weak and in cmd/berm-weak,
// which scripts build for tests only.
func TestReleaseIsWhole(t *testing.T) {
	for _, p := range mustPackages(t) { // as it is without any tag
		for _, name := range append(p.GoFiles, p.CgoFiles...) {
			b, err := os.ReadFile(filepath.Join(p.Dir, name))
			if err != nil {
				t.Fatal(err)
			}
			if p.name() != "cmd/berm-weak" && bytes.Contains(b, []byte("BERM_WEAK")) {
				t.Errorf("%s/%s knows of weak builds", p.name(), name)
			}
		}
		if p.name() != "cmd/berm-weak" && slices.Contains(p.Imports, module+"/cmd/berm-weak") {
			t.Errorf("%s imports the weak build", p.name())
		}
	}
	tagged, err := filepath.Glob("internal/*/weak.go")
	if err != nil || len(tagged) == 0 {
		t.Fatalf("no file with the tag weak: %v", err)
	}
	for _, path := range tagged {
		b, _ := os.ReadFile(path)
		line, _, _ := strings.Cut(string(b), "\n")
		x, err := constraint.Parse(line)
		if err != nil || x.Eval(func(string) bool { return false }) || !x.Eval(func(tag string) bool { return tag == "weak" }) {
			t.Errorf("%s is not for the tag weak alone: %q", path, line)
		}
	}
	scripts, _ := filepath.Glob("scripts/*.sh")
	for _, path := range append(scripts, "Makefile") {
		b, _ := os.ReadFile(path)
		for i, line := range strings.Split(string(b), "\n") {
			if strings.Contains(line, "go build") && strings.Contains(line, "weak") {
				t.Errorf("%s:%d builds a weak program", path, i+1)
			}
		}
	}
	if b, err := os.ReadFile("bin/berm"); err == nil && bytes.Contains(b, []byte("BERM_WEAK")) {
		t.Error("bin/berm knows of weak builds")
	}
}
