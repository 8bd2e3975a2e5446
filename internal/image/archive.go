package image

import (
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
)

// Open makes f the archive of a making: a tar, plain or compressed. diffID,
// where it is known, is the digest that the plain tar must have, sha256:HEX;
// what unpacks to something else is an error once it has been read.
func (k *Making) Open(f *os.File, diffID string) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	size := info.Size()
	var magic [6]byte
	n, _ := f.ReadAt(magic[:], 0)
	open := decompressor(magic[:n])
	section := io.NewSectionReader(f, 0, size)
	if open == nil && diffID == "" {
		k.Archive, k.At = section, f
		return nil
	}
	var r io.Reader = section
	if open != nil {
		if r, err = open(section); err != nil {
			return k.explain(fmt.Errorf("unpack: %w", err))
		}
	}
	most := k.limit()
	k.Archive = &checked{r: r, left: most + most/4 + 64<<20, want: diffID, sum: sha256.New()}
	return nil
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

var compressions = []struct {
	magic string
	open  func(io.Reader) (io.Reader, error)
}{
	{"\x1f\x8b", func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) }},
	{"BZh", func(r io.Reader) (io.Reader, error) { return bzip2.NewReader(r), nil }},
}

// checked bounds what an archive unpacks to, and compares its digest at the end.
type checked struct {
	r    io.Reader
	left int64
	want string
	sum  hash.Hash
}

var errDigest = errors.New("its content is not what its digest says")

func (c *checked) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	if c.left -= int64(n); c.left < 0 {
		return 0, errSpool
	}
	if c.want == "" {
		return n, err
	}
	c.sum.Write(b[:n])
	if err == io.EOF && c.want != "sha256:"+hex.EncodeToString(c.sum.Sum(nil)) {
		return n, errDigest
	}
	return n, err
}
