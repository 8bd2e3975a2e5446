package image

import (
	"errors"
	"strings"
	"testing"

	"github.com/bermhq/berm/api"
)

// An image's archive is not taken for a root file system: what to do is said.
func TestIsRoot(t *testing.T) {
	for name, c := range map[string]struct {
		files  []string
		refuse bool
	}{
		"a root":                    {[]string{"/bin/sh", "/etc/passwd"}, false},
		"a root with a manifest":    {[]string{"/usr/bin/env", "/manifest.json"}, false},
		"an OCI layout":             {[]string{"/oci-layout", "/index.json", "/blobs/sha256/x"}, true},
		"what docker save has made": {[]string{"/manifest.json", "/x/layer.tar"}, true},
	} {
		tr := newTree()
		for _, f := range c.files {
			if err := tr.add(f, newFile(0o644, nil)); err != nil {
				t.Fatal(err)
			}
		}
		err := isRoot(tr, "x.tar")
		var ae *api.Error
		if (err != nil) != c.refuse || c.refuse && (!errors.As(err, &ae) || !strings.Contains(ae.Hint, "template import")) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
