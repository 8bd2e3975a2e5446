package guest

import (
	"bytes"
	"io"
)

// A FrameReader is the guest's side of the wire: it takes frames off a stream
// whose other end may be replaced at any byte. A marker ends whatever came
// before it, half a frame included. Garbage is skipped up to the next marker.
type FrameReader struct {
	r      io.Reader
	buf    []byte
	lo, hi int
	mark   int // where in buf the next magic begins, or -1
	epoch  uint32
}

// NewFrameReader reads from r.
func NewFrameReader(r io.Reader) *FrameReader {
	return &FrameReader{r: r, buf: make([]byte, HeaderSize+MaxFrame+64<<10), mark: -1}
}

// Next returns the next frame of the current epoch, or KindAttach for a marker.
func (f *FrameReader) Next() (Frame, error) {
	for {
		if f.epoch == 0 {
			if fr, ok := f.attach(); ok {
				return fr, nil
			}
		} else if fr, ok := f.frame(); ok {
			return fr, nil
		} else if f.epoch == 0 {
			continue
		}
		if err := f.fill(); err != nil {
			return Frame{}, err
		}
	}
}

// attach looks for a marker and drops everything before it.
func (f *FrameReader) attach() (Frame, bool) {
	if f.mark < 0 {
		f.lo = max(f.lo, f.hi-len(Magic)+1)
		return Frame{}, false
	}
	f.lo = f.mark
	if f.hi-f.lo < MarkerSize {
		return Frame{}, false
	}
	m := f.buf[f.lo+len(Magic):]
	fr := Frame{Kind: KindAttach, Epoch: get32(m), Nonce: uint64(get32(m[4:]))<<32 | uint64(get32(m[8:]))}
	if e, n := newMarks(fr.Epoch, fr.Nonce); e != fr.Epoch || n != fr.Nonce {
		f.lo++ // cut short, perhaps by the next one
		f.find(f.lo)
		return f.attach()
	}
	f.lo += MarkerSize
	f.find(f.lo)
	f.epoch = fr.Epoch
	return fr, true
}

// frame takes one frame that is complete before the next marker. It leaves the
// epoch when the stream cannot go on in it.
func (f *FrameReader) frame() (Frame, bool) {
	end := f.hi
	if f.mark >= 0 {
		end = f.mark
	}
	b := f.buf[f.lo:end]
	if len(b) >= HeaderSize {
		n := int(get32(b[9:]))
		if get32(b) != f.epoch || n > MaxFrame {
			f.epoch = 0
			return Frame{}, false
		}
		if len(b) >= HeaderSize+n {
			f.lo += HeaderSize + n
			return Frame{Epoch: f.epoch, Stream: get32(b[4:]), Kind: b[8], Body: b[HeaderSize : HeaderSize+n : HeaderSize+n]}, true
		}
	}
	if f.mark >= 0 {
		f.epoch = 0
	}
	return Frame{}, false
}

// fill reads more and looks for a marker in it.
func (f *FrameReader) fill() error {
	if f.lo == f.hi {
		f.lo, f.hi = 0, 0
	} else if len(f.buf)-f.hi < 64<<10 && f.lo > 0 {
		n := copy(f.buf, f.buf[f.lo:f.hi])
		if f.mark >= 0 {
			f.mark -= f.lo
		}
		f.lo, f.hi = 0, n
	}
	n, err := f.r.Read(f.buf[f.hi:])
	if n <= 0 {
		if err == nil {
			err = io.ErrNoProgress
		}
		return err
	}
	from := max(f.lo, f.hi-len(Magic)+1)
	f.hi += n
	if f.mark < 0 {
		f.find(from)
	}
	return nil
}

func (f *FrameReader) find(from int) {
	f.mark = -1
	if i := bytes.Index(f.buf[from:f.hi], []byte(Magic)); i >= 0 {
		f.mark = from + i
	}
}
