package sandbox_test

import (
	"archive/tar"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/bermhq/berm/api"
)

func TestChanges(t *testing.T) {
	r := newRig(t, quick)
	id := r.create(t, api.Limits{})
	if _, err := r.Changes(t.Context(), id, "/workspace"); code(err) != api.CodeSandboxNotTracked {
		t.Errorf("not tracked: %v", err)
	}
	sb, err := r.Create(t.Context(), api.CreateRequest{Track: true})
	if err != nil {
		t.Fatal(err)
	}
	id = sb.SandboxID
	if _, err := r.WriteFile(t.Context(), id, "/workspace/a/f", 0, strings.NewReader("x")); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{"relative": api.CodeBadRequest, "/none": api.CodeFileNotFound, "/workspace/a/f": api.CodeFileRefused} {
		if _, err := r.Changes(t.Context(), id, dir); code(err) != want {
			t.Errorf("%s: %v", dir, err)
		}
	}
	f, err := r.Changes(t.Context(), id, "/workspace")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var names []string
	for tr := tar.NewReader(f); ; {
		h, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
	}
	if !slices.Equal(names, []string{"a/", "a/f"}) {
		t.Errorf("%q", names)
	}
}
