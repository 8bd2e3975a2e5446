package gateway

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/bermhq/berm/internal/egress/wire"
)

// A FrameConn is a wire that carries Ethernet frames. It is read by one
// goroutine and written by many. Writes wait until the other end has room:
// nothing on this link is ever lost for want of a buffer.
type FrameConn interface {
	// ReadFrame reads one frame into buf, which has room for the longest.
	ReadFrame(buf []byte) (int, error)
	// WriteFrame writes the one frame that parts make up.
	WriteFrame(parts [][]byte) error
	Close() error
}

// Packets is a link that keeps frames apart by itself: one end of a
// SOCK_SEQPACKET pair, or a TAP. f must be non-blocking.
func Packets(f *os.File) (FrameConn, error) {
	raw, err := f.SyscallConn()
	return &packets{f: f, raw: raw}, err
}

type packets struct {
	f   *os.File
	raw syscall.RawConn
}

func (p *packets) ReadFrame(buf []byte) (int, error) { return p.f.Read(buf) }
func (p *packets) Close() error                      { return p.f.Close() }

func (p *packets) WriteFrame(parts [][]byte) error {
	var err error
	werr := p.raw.Write(func(fd uintptr) bool {
		_, err = unix.Writev(int(fd), parts)
		return !errors.Is(err, unix.EAGAIN)
	})
	if werr != nil {
		return werr
	}
	return err
}

// Stream is a link over bytes: each frame has its length before it, in four
// bytes, as QEMU's -netdev stream has it.
func Stream(c io.ReadWriteCloser) FrameConn { return &stream{c: c} }

type stream struct {
	c  io.ReadWriteCloser
	mu sync.Mutex // makes frames whole
	w  []byte
}

func (s *stream) Close() error { return s.c.Close() }

func (s *stream) ReadFrame(buf []byte) (int, error) {
	var head [4]byte
	if _, err := io.ReadFull(s.c, head[:]); err != nil {
		return 0, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n == 0 || n > wire.MaxFrame {
		return 0, errors.New("gateway: a frame longer than any") // what comes next cannot be told
	}
	return io.ReadFull(s.c, buf[:n])
}

func (s *stream) WriteFrame(parts [][]byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.w = append(s.w[:0], 0, 0, 0, 0)
	for _, p := range parts {
		s.w = append(s.w, p...)
	}
	binary.BigEndian.PutUint32(s.w, uint32(len(s.w)-4))
	_, err := s.c.Write(s.w)
	return err
}
