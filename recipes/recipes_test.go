package recipes

import (
	"slices"
	"strings"
	"testing"
)

func TestRecipes(t *testing.T) {
	if !slices.Equal(Names(), []string{"attack-tools", "code-interpreter", "debian"}) {
		t.Errorf("recipes: %q", Names())
	}
	for _, name := range Names() {
		r, err := Read(name)
		if err != nil || r.About == "" || strings.Contains(r.About, "\n") {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
		for i, d := range r.Debs {
			if slices.Index(r.Debs, d) != i {
				t.Errorf("%s: %s twice", name, d)
			}
		}
	}
	r, _ := Read("code-interpreter")
	for _, d := range []string{"python3-numpy", "python3-pandas", "python3-matplotlib", "nodejs", "npm", "git", "g++", "make", "curl"} {
		if !slices.Contains(r.Debs, d) {
			t.Errorf("code-interpreter has no %s", d)
		}
	}
	if !slices.Contains(r.Env, "MPLBACKEND=Agg") || r.User != "" {
		t.Errorf("%+v", r)
	}
	if r, _ := Read("debian"); r.User != "root" {
		t.Errorf("%+v", r)
	}
	for _, name := range []string{"", "nothing", "../recipes", "."} {
		if _, err := Read(name); err == nil {
			t.Errorf("there is a recipe %q", name)
		}
	}
	for _, text := range []string{"", "about: x", "debs: [a]\nsudo: true", "debs: a: b"} {
		if r, err := parse([]byte(text)); err == nil {
			t.Errorf("%q is a recipe: %+v", text, r)
		}
	}
}
