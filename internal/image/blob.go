package image

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strconv"
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
	Dir    bool // a directory, with nothing of its own in it
	// Whiteout hides what a layer below has under this name.
	Whiteout bool
	UID      uint32 // its owner, and their group; 0: root
}

// MaxLayers is the most that a root may be stacked of.
const MaxLayers = 40

// AgentFiles are the image of a guest's agent: the program, and the directories
// that the parts of a stacked root are mounted on, for it is the first root of
// such a guest.
func AgentFiles(program []byte) map[string]File {
	files := map[string]File{"/agent": {Content: program, Mode: 0o755}}
	for _, dir := range []string{"/proc", "/sys", "/dev", "/run", "/tmp", "/n"} {
		files[dir] = File{Dir: true, Mode: 0o755}
	}
	for i := range MaxLayers {
		files["/l/"+strconv.Itoa(i)] = File{Dir: true, Mode: 0o755}
	}
	return files
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
		if f.UID != 0 {
			fmt.Fprintf(h, "of %d ", f.UID)
		}
		if f.Whiteout {
			fmt.Fprint(h, "whiteout ")
		} else if f.Dir {
			fmt.Fprint(h, "dir ")
		} else if f.Digest == "" {
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
				n := newFile(f.Mode&0o777, f.Content)
				switch {
				case f.Dir:
					n = newDir(f.Mode & 0o777)
				case f.Whiteout:
					n = newWhiteout()
				}
				n.uid, n.gid = f.UID, f.UID
				if err := t.add(p, n); err != nil {
					return built{}, fail(api.CodeBadRequest, err.Error(), "check the paths of the blob")
				}
			}
			return built{tree: t}, nil
		},
	}, Options{})
}
