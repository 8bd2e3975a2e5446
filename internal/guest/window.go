package guest

import "sync"

// A Window is the sender's side of flow control: what the other end is ready to
// take. Several senders may share one.
type Window struct {
	mu     sync.Mutex
	credit int
	limit  int
	closed bool
	wait   chan struct{} // closed at the next change; nil while nobody waits
}

// fairChunk is the least a frame of more bytes waits for, rather than crumbs.
const fairChunk = 16 << 10

// NewWindow returns a window of n bytes.
func NewWindow(n int) *Window { return &Window{credit: n, limit: n} }

// Grant adds n bytes; false if that is more than was ever taken.
func (w *Window) Grant(n int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wake()
	if n > w.limit-w.credit {
		return false
	}
	w.credit += n
	return true
}

// Close ends all waiting: the other end wants no more.
func (w *Window) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	w.wake()
}

func (w *Window) wake() {
	if w.wait != nil {
		close(w.wait)
		w.wait = nil
	}
}

// Use takes room for one frame of up to n bytes and returns how many it may
// hold. If there is no room, wait is closed when there may be.
func (w *Window) Use(n int) (take int, wait <-chan struct{}, closed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return 0, nil, true
	}
	if w.credit < min(n, fairChunk)+FrameCost {
		if w.wait == nil {
			w.wait = make(chan struct{})
		}
		return 0, w.wait, false
	}
	take = min(n, w.credit-FrameCost, MaxChunk-HeaderSize)
	w.credit -= take + FrameCost
	return take, nil, false
}

// Charge takes n bytes, whether or not there is room.
func (w *Window) Charge(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.credit -= n
}
