package deb

import (
	"io"
	"runtime"
	"sync"
)

// An ahead expands what the next packages hold while one is being written: that
// is most of the work, and one processor can do one package.
type ahead struct {
	streams []chan chunk
	next    int
	stop    chan struct{}
	wg      sync.WaitGroup
}

// A chunk is a piece of a stream; the last has its error, io.EOF if all is well.
type chunk struct {
	data []byte
	err  error
}

const (
	chunkSize = 256 << 10
	chunks    = 48 // of a stream that wait to be read: 12 MiB
)

func newAhead(members []member) *ahead {
	a := &ahead{stop: make(chan struct{}), streams: make([]chan chunk, len(members))}
	for i := range a.streams {
		a.streams[i] = make(chan chunk, chunks)
	}
	todo := make(chan int)
	for range min(runtime.GOMAXPROCS(0), 4) + 1 { // one of them waits, mostly
		a.wg.Go(func() {
			for i := range todo {
				a.expand(members[i], a.streams[i])
			}
		})
	}
	a.wg.Go(func() {
		defer close(todo)
		for i := range members {
			select {
			case todo <- i:
			case <-a.stop:
				return
			}
		}
	})
	return a
}

func (a *ahead) expand(m member, to chan chunk) {
	plain, err := m.open()
	if err == nil {
		defer plain.Close()
	}
	for {
		c := chunk{err: err}
		if err == nil {
			buf := make([]byte, chunkSize)
			var n int
			if n, c.err = io.ReadFull(plain, buf); c.err == io.ErrUnexpectedEOF {
				c.err = io.EOF
			}
			c.data = buf[:n]
		}
		select {
		case to <- c:
		case <-a.stop:
			return
		}
		if c.err != nil {
			return
		}
	}
}

// reader is the next package's stream.
func (a *ahead) reader() io.Reader {
	a.next++
	return &chunkReader{from: a.streams[a.next-1]}
}

// close ends the work; readers are of no use any more.
func (a *ahead) close() {
	close(a.stop)
	a.wg.Wait()
}

type chunkReader struct {
	from chan chunk
	rest chunk
}

func (r *chunkReader) Read(p []byte) (int, error) {
	for len(r.rest.data) == 0 {
		if r.rest.err != nil {
			return 0, r.rest.err
		}
		r.rest = <-r.from
	}
	n := copy(p, r.rest.data)
	r.rest.data = r.rest.data[n:]
	return n, nil
}
