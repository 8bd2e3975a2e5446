package image

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/bermhq/berm/api"
)

// A File is one file of a Blob.
type File struct {
	Content []byte
	Mode    uint32 // permission bits; 0 is 0644
	// Digest stands for the content where the caller knows one already: with
	// the same digest, content is not looked at again. "" has it computed,
	// some 0.8 ms per MiB.
	Digest string
}

// Blob returns a small image that holds just these files, named by absolute
// path and owned by root, with the directories they need. The same files give
// the same image, and all but the first call cost a digest (see File) and a
// few system calls. Errors are *api.Error, or the context's.
func (s *Store) Blob(ctx context.Context, files map[string]File) (Image, error) {
	h := sha256.New()
	fmt.Fprintf(h, "blob\x00%s\x00", formatVersion)
	paths := slices.Sorted(maps.Keys(files))
	for _, p := range paths {
		f := files[p]
		fmt.Fprintf(h, "%q %o %q ", p, f.Mode, f.Digest)
		if f.Digest == "" {
			fmt.Fprintf(h, "%x ", sha256.Sum256(f.Content))
		}
	}
	return s.resolve(ctx, recipe{
		template: "blob",
		key:      func() (string, error) { return nameOf(h.Sum(nil)), nil },
		build: func(*meter) (built, error) {
			t := newTree()
			for _, p := range paths {
				f := files[p]
				if f.Mode == 0 {
					f.Mode = 0o644
				}
				if !strings.HasPrefix(p, "/") {
					return built{}, fail(api.CodeBadRequest, fmt.Sprintf("blob file %q has no absolute path", p), "start it with a slash")
				}
				if err := t.add(p, newFile(f.Mode&0o777, f.Content)); err != nil {
					return built{}, fail(api.CodeBadRequest, err.Error(), "check the paths of the blob")
				}
			}
			return built{tree: t}, nil
		},
	}, Options{})
}
