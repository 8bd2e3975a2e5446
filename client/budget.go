package client

import (
	"io"
	"sync"
)

// A budget is how many bytes may still come out. It is safe for concurrent use.
type budget struct {
	mu   sync.Mutex
	left int64
}

// take takes n bytes, or none.
func (b *budget) take(n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n > b.left {
		return false
	}
	b.left -= n
	return true
}

func (b *budget) give(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left += n
}

func (b *budget) rest() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.left
}

// metered is a reader that gives no byte which is not paid for.
type metered struct {
	r     io.Reader
	b     *budget
	taken int64 // from b so far
	read  int64
}

func (m *metered) Read(p []byte) (int, error) {
	n, err := m.r.Read(p)
	if over := m.read + int64(n) - m.taken; over > 0 {
		if !m.b.take(over) {
			return 0, errMore
		}
		m.taken += over
	}
	m.read += int64(n)
	return n, err
}

// settle gives back what was not used: all of it if nothing came of it.
func (m *metered) settle(done bool) {
	if done {
		m.b.give(m.taken - m.read)
	} else {
		m.b.give(m.taken)
	}
	m.taken = m.read
}
