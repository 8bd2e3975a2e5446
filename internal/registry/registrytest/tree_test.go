package registrytest

import (
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// TestTricky: the image is one that the library itself can unpack.
func TestTricky(t *testing.T) {
	tree := Expected(t, Image(t, v1.Config{}, Tricky(t)...))
	for path, want := range map[string]string{
		"/etc":                "40750 5:6",
		"/usr/lib/through":    "100644 0:0 26 bytes",
		"/sparse":             "100644 0:0 3145728 bytes",
		"/opaque/new":         "100644 0:0 3 bytes",
		"/bits/suid":          "100755 0:0 11 bytes",
		"/names/\xff\xfe\x80": "100644 0:0 2 bytes",
		"/kinds/dir-link":     "120777 0:0 -> ../usr",
	} {
		n := tree[path]
		if n == nil {
			t.Errorf("%q is missing", path)
		} else if got := n.String(); len(got) < len(want) || got[:len(want)] != want {
			t.Errorf("%q is %s, want %s", path, got, want)
		}
	}
	for _, gone := range []string{"/var/old/a", "/opaque/sub", "/twice/one", "/twice/two", "/hard/one", "/names/gone in the end", "/kinds/dir-file/in"} {
		if n := tree[gone]; n != nil {
			t.Errorf("%s is there: %v", gone, n)
		}
	}
	if tree["/hard/two"] == nil || tree["/hard/two"] != tree["/hard/three"] || tree["/hard/a"] == nil || tree["/hard/a"] != tree["/hard/b"] {
		t.Errorf("hard links: %v %v %v", tree["/hard/two"], tree["/hard/a"], tree["/hard/b"])
	}
}
