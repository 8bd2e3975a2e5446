// Package registrytest makes container images, ordinary and hostile, and
// serves them from a registry on this machine. It is for tests only.
package registrytest

import (
	"archive/tar"
	"bytes"
	"io"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/compression"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// A File is one entry of a layer: a tar header, and what follows it.
type File struct {
	tar.Header
	Body string
}

// Dir, Reg, Link and Hard are entries of the usual kinds, of root.
func Dir(name string, mode int64) File {
	return File{Header: tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: mode}}
}

// Reg is a regular file.
func Reg(name string, mode int64, body string) File {
	return File{Header: tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode}, Body: body}
}

// Link is a symlink.
func Link(name, target string) File {
	return File{Header: tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777}}
}

// Hard is a further name of a file.
func Hard(name, old string) File {
	return File{Header: tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: old}}
}

// Gone is a whiteout: what the layers below have there is not there.
func Gone(dir, name string) File { return Reg(dir+".wh."+name, 0, "") }

// Opaque hides all that the layers below have in a directory.
func Opaque(dir string) File { return Reg(dir+"/.wh..wh..opq", 0, "") }

// Owned gives an entry to somebody.
func Owned(f File, uid, gid int) File {
	f.Uid, f.Gid = uid, gid
	return f
}

// Tar is an archive of entries.
func Tar(t testing.TB, files ...File) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range files {
		h := f.Header
		if h.Size == 0 {
			h.Size = int64(len(f.Body))
		}
		if h.ModTime.IsZero() {
			h.ModTime = time.Unix(1600000000, 0)
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatalf("tar: %s: %v", f.Name, err)
		}
		if _, err := io.WriteString(w, f.Body); err != nil {
			t.Fatalf("tar: %s: %v", f.Name, err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// Ways of compressing a layer.
const (
	Gzip  = compression.GZip
	Zstd  = compression.ZStd
	Plain = compression.None
)

// Layer makes a layer of a plain archive.
func Layer(t testing.TB, how compression.Compression, archive []byte) v1.Layer {
	t.Helper()
	kind := map[compression.Compression]types.MediaType{Gzip: types.OCILayer, Zstd: types.OCILayerZStd, Plain: types.OCIUncompressedLayer}[how]
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive)), nil },
		tarball.WithCompression(how), tarball.WithMediaType(kind))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Image makes an image for linux/amd64 of layers, lowest first.
func Image(t testing.TB, conf v1.Config, layers ...v1.Layer) v1.Image {
	t.Helper()
	return ImageFor(t, v1.Platform{OS: "linux", Architecture: "amd64"}, conf, layers...)
}

// ImageFor makes an image for a platform.
func ImageFor(t testing.TB, p v1.Platform, conf v1.Config, layers ...v1.Layer) v1.Image {
	t.Helper()
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err := mutate.ConfigFile(img, &v1.ConfigFile{OS: p.OS, Architecture: p.Architecture, Variant: p.Variant, Config: conf, RootFS: v1.RootFS{Type: "layers"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range layers {
		kind, err := l.MediaType()
		if err != nil {
			t.Fatal(err)
		}
		if img, err = mutate.Append(img, mutate.Addendum{Layer: l, MediaType: kind}); err != nil {
			t.Fatal(err)
		}
	}
	return img
}

// Index makes one name of several images. Their platforms are in their
// configurations.
func Index(t testing.TB, images ...v1.Image) v1.ImageIndex {
	t.Helper()
	var add []mutate.IndexAddendum
	for _, img := range images {
		c, err := img.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		add = append(add, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: c.Platform()}})
	}
	return mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), add...)
}
