package image

import (
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"sync"

	"github.com/bermhq/berm/api"
)

// formatVersion is part of every fingerprint: raise it when the same source
// must give another image than before.
const formatVersion = "4"

// write puts the image of a plan into f, an empty file. A source that has
// become shorter is filled up with zeros, one that has grown is cut.
func (p *plan) write(f *os.File, m *meter) error {
	m.phase(PhaseCopy, p.data)
	if err := f.Truncate(p.blocks * blockSize); err != nil {
		return err
	}
	if _, err := f.WriteAt(p.super(), superAt); err != nil {
		return err
	}
	if _, err := f.WriteAt(p.metadata(), metaBlock*blockSize); err != nil {
		return err
	}
	for _, n := range p.nodes {
		at := int64(n.block) * blockSize
		var err error
		switch {
		case n.block == 0:
		case n.isDir():
			_, err = f.WriteAt(n.dirent, at)
		case n.isLink():
			_, err = f.WriteAt([]byte(n.target), at)
		default:
			err = copyContent(f, at, n, m)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// copyContent copies at most the promised size; the rest of the space is a hole
// already.
func copyContent(f *os.File, at int64, n *node, m *meter) error {
	if err := m.add(0, 1); err != nil {
		return err
	}
	if b, ok := n.src.(bytesSource); ok {
		_, err := f.WriteAt(b[:min(int64(len(b)), n.size)], at)
		return err
	}
	r, done, err := n.src.reader()
	if errors.Is(err, fs.ErrNotExist) {
		return fail(api.CodeTemplateInvalid, "build image: a file went away meanwhile: "+err.Error(), "run the same command again")
	}
	if err != nil {
		return err
	}
	defer done()
	if src, ok := r.(*os.File); ok && isSparse(src, n.size) {
		return copySparse(f, at, src, n.size, m)
	}
	return copyRange(f, at, r, n.size, m)
}

// copyRange copies up to size bytes of r to f. Between files the kernel does it
// (File.ReadFrom), sharing blocks where the filesystem can.
func copyRange(f *os.File, at int64, r io.Reader, size int64, m *meter) error {
	if _, err := f.Seek(at, io.SeekStart); err != nil {
		return err
	}
	const piece = 64 << 20 // so that progress moves and a cancelled build ends
	for size > 0 {
		want := min(size, piece)
		got, err := io.Copy(f, limit(r, want))
		if err != nil {
			return err
		}
		if err := m.add(got, 0); err != nil {
			return err
		}
		if size -= got; got < want {
			return nil
		}
	}
	return nil
}

// limit bounds r in one layer only: a second one would hide the file from the
// kernel's copy.
func limit(r io.Reader, n int64) io.Reader {
	if l, ok := r.(*io.LimitedReader); ok {
		return &io.LimitedReader{R: l.R, N: min(l.N, n)}
	}
	return &io.LimitedReader{R: r, N: n}
}

// contentName derives the name of an image from its bytes: SHA-256 over the
// SHA-256 of each MiB, so that all cores can help.
func contentName(f io.ReaderAt, size int64, m *meter) (string, error) {
	m.phase(PhaseDigest, size)
	const piece = 1 << 20
	count := int((size + piece - 1) / piece)
	sums := make([][sha256.Size]byte, count)
	workers := min(runtime.GOMAXPROCS(0), 4, max(count, 1))
	jobs, done := make(chan int, count), make(chan error, count)
	for i := range count {
		jobs <- i
	}
	close(jobs)
	var wg sync.WaitGroup
	defer wg.Wait()
	stop := make(chan struct{})
	defer close(stop)
	for range workers {
		wg.Go(func() {
			buf := make([]byte, piece)
			for i := range jobs {
				select {
				case <-stop:
					return
				default:
				}
				n := min(piece, size-int64(i)*piece)
				_, err := f.ReadAt(buf[:n], int64(i)*piece)
				sums[i] = sha256.Sum256(buf[:n])
				done <- err
			}
		})
	}
	for range count {
		if err := <-done; err != nil {
			return "", fmt.Errorf("digest image: %w", err)
		}
		if err := m.add(piece, 0); err != nil {
			return "", err
		}
	}
	h := sha256.New()
	fmt.Fprintf(h, "berm image %d\n", size)
	for i := range sums {
		h.Write(sums[i][:])
	}
	return nameOf(h.Sum(nil)), nil
}

// nameOf spells a digest in lower case letters and digits.
func nameOf(sum []byte) string {
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum))
}
