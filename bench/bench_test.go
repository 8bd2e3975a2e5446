package bench

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestRows(t *testing.T) {
	slow := &contestant{name: "slow", times: []float64{10, 20, 100}}
	quick := &contestant{name: "quick", times: []float64{5, 12, 40}, against: []string{"slow"}}
	got := rows([]*contestant{slow, quick})
	if len(got) != 2 || got[0].Baseline != "" || got[1].Baseline != "slow" {
		t.Fatalf("rows %+v", got)
	}
	// Per round 0.5, 0.6, 0.4: the median of the ratios, not the ratio of medians.
	if r := got[1]; r.RatioP50 != 0.5 || r.P50 != 12 || r.Min != 5 || r.Max != 40 || r.N != 3 {
		t.Errorf("row %+v", r)
	}
	if r := row("none", "ms", nil); r.N != 0 || r.P50 != 0 {
		t.Errorf("empty row %+v", r)
	}
}

// A template that holds hostile names stays below the folder.
func TestUntarStaysBelow(t *testing.T) {
	dir := t.TempDir()
	root, outside := filepath.Join(dir, "root"), filepath.Join(dir, "outside")
	os.Mkdir(outside, 0o755)
	for _, hs := range [][]tar.Header{
		{{Name: "../outside/x", Typeflag: tar.TypeReg}},
		{{Name: "link", Typeflag: tar.TypeSymlink, Linkname: outside}, {Name: "link/x", Typeflag: tar.TypeReg}},
		{{Name: "h", Typeflag: tar.TypeLink, Linkname: "../outside/y"}},
	} {
		os.RemoveAll(root)
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for i := range hs {
			if err := w.WriteHeader(&hs[i]); err != nil {
				t.Fatal(err)
			}
		}
		w.Close()
		if err := untar(&b, root); err == nil {
			t.Errorf("%s was unpacked", hs[len(hs)-1].Name)
		}
		if ents, _ := os.ReadDir(outside); len(ents) > 0 {
			t.Fatalf("%s got out", hs[len(hs)-1].Name)
		}
	}
}
