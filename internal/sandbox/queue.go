package sandbox

import "sync"

// A chunk is a piece of one output stream, or of stdin.
type chunk struct {
	stream Stream
	data   []byte
}

// A queue holds chunks between two goroutines, bounded in bytes, so that a
// slow reader slows the writer and nothing else.
type queue struct {
	mu    sync.Mutex
	cond  sync.Cond
	items []chunk
	bytes int
	limit int
	shut  bool // no more puts; gets go on until it is empty
	dead  bool // nothing goes in or out any more
}

func newQueue(limit int) *queue {
	q := &queue{limit: limit}
	q.cond.L = &q.mu
	return q
}

// put waits for room and reports whether the chunk went in. A chunk larger
// than the limit goes in when the queue is empty.
func (q *queue) put(c chunk) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for !q.shut && !q.dead && q.bytes > 0 && q.bytes+len(c.data) > q.limit {
		q.cond.Wait()
	}
	if q.shut || q.dead {
		return false
	}
	q.items = append(q.items, c)
	q.bytes += len(c.data)
	q.cond.Broadcast()
	return true
}

// get waits for a chunk. It returns false when the queue was shut and is empty,
// or is dead.
func (q *queue) get() (chunk, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.items) == 0 && !q.shut && !q.dead {
		q.cond.Wait()
	}
	if q.dead || len(q.items) == 0 {
		return chunk{}, false
	}
	c := q.items[0]
	q.items = q.items[1:]
	q.bytes -= len(c.data)
	q.cond.Broadcast()
	return c, true
}

// raise lets more in.
func (q *queue) raise(limit int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.limit = max(q.limit, limit)
	q.cond.Broadcast()
}

// close ends the input; kill ends everything.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.shut = true
	q.cond.Broadcast()
}

func (q *queue) killed() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.dead
}

func (q *queue) kill() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.dead, q.items = true, nil
	q.cond.Broadcast()
}
