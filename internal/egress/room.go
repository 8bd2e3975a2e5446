package egress

import (
	"math"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// reserve is how many descriptors connections of sandboxes leave to the rest of
// the process.
const reserve = 512

// A room bounds the connections of all sandboxes together by the descriptors
// that this process may have: it must still be able to serve everybody else.
type room struct {
	most int64
	open atomic.Int64
}

// newRoom is what this process has room for: two descriptors for each, one of
// which is only there while it is handed over, and a quarter of all where the
// reserve would leave nothing.
func newRoom() *room {
	var n unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &n); err != nil {
		n.Cur = 0
	}
	have := int64(min(n.Cur, math.MaxInt32))
	return &room{most: max((have-reserve)/2, have/4)}
}

func (r *room) take() bool {
	if r.open.Add(1) > r.most {
		r.open.Add(-1)
		return false
	}
	return true
}

func (r *room) give() { r.open.Add(-1) }

// seat gives a flow its place, until it ends.
func (l *link) seat(f *flow) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f.state == flowOver || f.roomed {
		return f.roomed
	}
	f.roomed = l.room.take()
	return f.roomed
}
