package registrytest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// packed is a layer of which only the compressed bytes are ever held.
type packed struct {
	data []byte
	diff v1.Hash
}

func (p packed) Digest() (v1.Hash, error) {
	h := sha256.Sum256(p.data)
	return v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(h[:])}, nil
}
func (p packed) DiffID() (v1.Hash, error) { return p.diff, nil }
func (p packed) Compressed() (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(p.data)), nil
}
func (p packed) Uncompressed() (io.ReadCloser, error) { return gzip.NewReader(bytes.NewReader(p.data)) }
func (p packed) Size() (int64, error)                 { return int64(len(p.data)), nil }
func (p packed) MediaType() (types.MediaType, error)  { return types.OCILayer, nil }

// anything is the digest of a layer whose end nobody will see.
var anything = v1.Hash{Algorithm: "sha256", Hex: fmt.Sprintf("%064x", 1)}

// Bomb makes a layer of one file of zeros: size bytes from a thousandth of it.
// What it says to be inside is not true, which only its end would tell.
func Bomb(t testing.TB, size int64) v1.Layer {
	t.Helper()
	var head, block, out bytes.Buffer
	if err := tar.NewWriter(&head).WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "zeros", Mode: 0o644, Size: size, Format: tar.FormatPAX}); err != nil {
		t.Fatal(err)
	}
	gz := func(to *bytes.Buffer, data []byte) {
		w, _ := gzip.NewWriterLevel(to, gzip.BestCompression)
		w.Write(data)
		w.Close()
	}
	gz(&out, head.Bytes())
	const piece = 16 << 20
	gz(&block, make([]byte, piece))
	for n := int64(0); n < size; n += piece {
		out.Write(block.Bytes())
	}
	return packed{out.Bytes(), anything}
}

// Many makes a layer of n empty files.
func Many(t testing.TB, n int) v1.Layer {
	t.Helper()
	var out bytes.Buffer
	z, _ := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	w := tar.NewWriter(z)
	for i := range n {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: fmt.Sprintf("d%d/%d", i/1000, i), Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
	}
	w.Close()
	z.Close()
	return packed{out.Bytes(), anything}
}
