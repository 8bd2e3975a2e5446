package image

import (
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"os"

	"github.com/klauspost/compress/zstd"
	"github.com/mikelolasagasti/xz"
)

// Plain is an archive file as it is without compression: itself, or what it
// unpacks to, which is put in room.
func Plain(ctx context.Context, f, room *os.File, most int64, progress func(Progress)) (*os.File, error) {
	k := Making{MaxBytes: most}
	var magic [6]byte
	n, _ := f.ReadAt(magic[:], 0)
	open := decompressor(magic[:n])
	if open == nil {
		return f, nil
	}
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	m := newMeter(ctx, progress)
	m.phase(PhaseUnpack, info.Size())
	z, err := open(progressReader{io.NewSectionReader(f, 0, info.Size()), m})
	if err != nil {
		return nil, k.explain(fmt.Errorf("unpack: %w", err))
	}
	// Beside what an image may hold there are headers and padding.
	sp := &spool{file: room, left: most + most/4 + 64<<20}
	if _, err := sp.take(z, true); err != nil {
		return nil, k.explain(err)
	}
	return room, room.Truncate(sp.end)
}

// decompressor is how a file that begins like this is unpacked; nil: not at all.
func decompressor(magic []byte) func(io.Reader) (io.Reader, error) {
	for _, c := range compressions {
		if bytes.HasPrefix(magic, []byte(c.magic)) {
			return c.open
		}
	}
	return nil
}

// maxWindow is the most memory that a compressed stream may ask for.
const maxWindow = 128 << 20

var compressions = []struct {
	magic string
	open  func(io.Reader) (io.Reader, error)
}{
	{"\x1f\x8b", func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) }},
	{"BZh", func(r io.Reader) (io.Reader, error) { return bzip2.NewReader(r), nil }},
	{"\xfd7zXZ\x00", func(r io.Reader) (io.Reader, error) { return xz.NewReader(r, maxWindow) }},
	{"\x28\xb5\x2f\xfd", func(r io.Reader) (io.Reader, error) {
		return zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
	}},
}
