package deb

import (
	"compress/gzip"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
	"github.com/mikelolasagasti/xz"
)

// maxWindow bounds what a compressed stream may make its reader hold. The
// strongest presets of xz and of dpkg's zstd stay below.
const maxWindow = 128 << 20

// decompress reads a stream by the ending of its name: .xz .gz .zst or none.
func decompress(r io.Reader, kind string) (io.ReadCloser, error) {
	switch kind {
	case "":
		return io.NopCloser(r), nil
	case ".gz":
		return gzip.NewReader(r)
	case ".xz":
		x, err := xz.NewReader(r, maxWindow)
		if err != nil {
			return nil, err
		}
		return io.NopCloser(x), nil
	case ".zst":
		z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxWindow), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, err
		}
		return z.IOReadCloser(), nil
	}
	return nil, fmt.Errorf("compression %q is not known", short(kind))
}
