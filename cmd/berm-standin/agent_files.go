package main

import (
	"bytes"
	"encoding/binary"
	"io"
	"strings"
	"time"

	"github.com/bermhq/berm/internal/guest"
)

// What a hostile agent answers when it is asked for files.

// listed are the files that it says are there.
var listed = []string{"/workspace/good.txt", "/workspace/out/../../../../etc/passwd", "/etc/passwd", "../../outside/kept.txt", "/workspace/trap.txt", "/workspace/a\nb",
	"/workspace/" + strings.Repeat("n", 300), "/workspace/\x1b[2J", "/workspace/"}

func entry(name string) []byte {
	fi := guest.FileInfo{Path: name, Kind: guest.KindFile, Size: 4, Mode: 0o644, Nlink: 1}
	b := fi.Append(nil)
	return append(binary.AppendUvarint(nil, uint64(len(b))), b...)
}

// files answers a listing, then ends it.
func (s *speaker) files(stream uint32) {
	var out []byte
	for _, n := range listed {
		out = append(out, entry(n)...)
	}
	s.send(stream, guest.KindData, out)
	if s.names != nil {
		s.names(s, stream)
	}
	s.reply(stream, nil)
}

func namesWithoutEnd(s *speaker, stream uint32) {
	b := bytes.Repeat(entry("/workspace/good.txt"), 1000)
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); {
		if s.raw(guest.AppendFrame(nil, s.epoch, stream, guest.KindData, b)) != nil {
			return
		}
	}
}

// A window keeps a file within what its stream may carry: what goes beyond
// is another attempt.
type window struct {
	s      *speaker
	stream uint32
	left   chan int
	have   int
}

func (w *window) Write(p []byte) (int, error) {
	for n := 0; n < len(p); {
		k := min(len(p)-n, 32<<10)
		for w.have < k+guest.FrameCost {
			select {
			case more := <-w.left:
				w.have += more
			case <-time.After(5 * time.Second):
				return n, io.ErrShortWrite
			}
		}
		w.have -= k + guest.FrameCost
		if err := w.s.raw(guest.AppendFrame(nil, w.s.epoch, w.stream, guest.KindData, p[n:n+k])); err != nil {
			return n, err
		}
		n += k
	}
	return len(p), nil
}

// short is less than what was said to be there.
func short(w io.Writer) { io.WriteString(w, "x") }

// maxFile bounds what a file without an end holds.
const maxFile = 160 << 20

// endless is more than what was said to be there, and more than there may be.
func endless(w io.Writer) {
	b := bytes.Repeat([]byte("endless\n"), 16<<10)
	for n := 0; n < maxFile; n += len(b) {
		if _, err := w.Write(b); err != nil {
			return
		}
	}
}
