package attack

import (
	"archive/tar"
	"bytes"
	"io"
	"testing"
)

// TestArchivesAreWhole: an archive that nobody can read attacks nothing.
func TestArchivesAreWhole(t *testing.T) {
	for name, a := range archives {
		n, tr := 0, tar.NewReader(bytes.NewReader(a.bytes()))
		for {
			if _, err := tr.Next(); err == io.EOF || err != nil && name == "pax-size" && n == 1 {
				break
			} else if err != nil {
				t.Fatalf("%s: after %d entries: %v", name, n, err)
			}
			n++
		}
		if n == 0 || len(a.lands) == 0 && !a.odd {
			t.Errorf("%s: %d entries, which nobody looks for", name, n)
		}
	}
}
