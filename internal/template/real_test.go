package template

import (
	"os"
	"testing"

	"github.com/bermhq/berm/api"
)

// TestDebs makes a root of this host's own distribution, where it has one and
// its mirror answers.
func TestDebs(t *testing.T) {
	if testing.Short() {
		t.Skip("asks the mirrors of this host's distribution")
	}
	if _, err := os.Stat("/etc/apt"); err != nil {
		t.Skip("this host has no apt")
	}
	w := newWorld(t, true, Options{Maker: realMaker()})
	made, err := w.Do(t.Context(), Job{Kind: JobDebs, Debs: []string{"dash", "coreutils"}, Key: "k"}, nil, func(p api.TemplateProgress) {})
	if code(err) != "" && code(err) != api.CodeTemplateTooLarge {
		t.Skipf("no packages from here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(made.Root.Layers) != 1 || made.Template.SizeBytes < 5<<20 {
		t.Errorf("%+v", made)
	}
	again, err := w.Do(t.Context(), Job{Kind: JobDebs, Debs: []string{"dash", "coreutils"}, Key: "k"}, nil, nil)
	if err != nil || again.Root.Layers[0] != made.Root.Layers[0] {
		t.Errorf("again: %+v, %v", again, err)
	}
	w.clean(t)
}
