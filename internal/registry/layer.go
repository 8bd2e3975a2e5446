package registry

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"

	"github.com/klauspost/compress/zstd"
)

// maxWindow is the most memory that a zstd stream may ask for: what the
// command-line tool gives without being asked for more.
const maxWindow = 128 << 20

// Decompress gives what r holds, whether gzip, zstd or plain, told by its
// first bytes. Both kinds may be several streams in a row. Closing it closes
// nothing but itself.
func Decompress(r io.Reader) (io.ReadCloser, error) {
	b := bufio.NewReaderSize(r, 64<<10)
	magic, err := b.Peek(4)
	if err != nil && err != io.EOF {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		return gzip.NewReader(b)
	case bytes.HasPrefix(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}), skippable(magic):
		z, err := zstd.NewReader(b, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, err
		}
		return z.IOReadCloser(), nil
	}
	return io.NopCloser(b), nil
}

// skippable says whether a zstd stream begins with a frame of remarks, as
// those that can be read from the middle do.
func skippable(magic []byte) bool {
	return len(magic) == 4 && magic[0]&0xf0 == 0x50 && bytes.Equal(magic[1:], []byte{0x2a, 0x4d, 0x18})
}

// Tar gives the plain archive inside a layer. Digest, Size and DiffID, those
// that are set, are compared with what was read, and where io.EOF would come
// there is an error instead if they differ: nothing of a layer is to be
// believed before io.EOF. An archive of more than max bytes is an error.
func (l Layer) Tar(max int64) (io.ReadCloser, error) {
	from, err := l.Open()
	if err != nil {
		return nil, err
	}
	t := &layerTar{layer: l, left: max, max: max, outer: tally{r: from, hash: sha256.New(), most: l.Size}, inner: sha256.New()}
	plain, err := Decompress(&t.outer)
	if err != nil {
		from.Close()
		return nil, t.broken(err)
	}
	t.plain = plain
	t.close = func() error { return errors.Join(plain.Close(), from.Close()) }
	return t, nil
}

// A tally reads at most a byte more than it should, and counts and hashes.
type tally struct {
	r    io.Reader
	hash hash.Hash
	n    int64
	most int64
}

func (t *tally) Read(p []byte) (int, error) {
	if t.n > t.most {
		return 0, io.EOF
	}
	if room := t.most + 1 - t.n; int64(len(p)) > room {
		p = p[:room]
	}
	n, err := t.r.Read(p)
	t.n += int64(n)
	t.hash.Write(p[:n])
	return n, err
}

type layerTar struct {
	layer Layer
	outer tally
	plain io.Reader
	inner hash.Hash
	left  int64
	max   int64
	err   error // what every further Read gives
	close func() error
}

func (t *layerTar) name() string {
	if t.layer.Digest != "" {
		return "layer " + short(t.layer.Digest)
	}
	return "layer " + short(t.layer.DiffID)
}

func (t *layerTar) broken(err error) error {
	return refused(t.name(), "it is damaged: %s", clean(err.Error(), 120))
}

func (t *layerTar) Read(p []byte) (int, error) {
	if t.err != nil {
		return 0, t.err
	}
	n, err := t.plain.Read(p)
	t.inner.Write(p[:n])
	if t.left -= int64(n); t.left < 0 {
		t.err = tooLarge(t.name(), "it unpacks to more than %s", human(t.max))
		return 0, t.err
	}
	switch err {
	case nil:
	case io.EOF:
		t.err = t.verdict()
	default:
		t.err = t.broken(err)
	}
	return n, t.err
}

// verdict is io.EOF for a layer that is what it was said to be.
func (t *layerTar) verdict() error {
	if _, err := io.Copy(io.Discard, &t.outer); err != nil {
		return t.broken(err)
	}
	if t.outer.n != t.layer.Size {
		return refused(t.name(), "it is not %d bytes long", t.layer.Size)
	}
	if got := sum(t.outer.hash); t.layer.Digest != "" && got != t.layer.Digest {
		return refused(t.name(), "its bytes have the digest %s", short(got))
	}
	if got := sum(t.inner); t.layer.DiffID != "" && got != t.layer.DiffID {
		return refused(t.name(), "its archive has the digest %s, and the configuration says %s", short(got), short(t.layer.DiffID))
	}
	return io.EOF
}

func (t *layerTar) Close() error { return t.close() }

func sum(h hash.Hash) string { return "sha256:" + hex.EncodeToString(h.Sum(nil)) }
