package guest

import (
	"math/bits"
	"sync"
)

// A Piece is a run of bytes that arrived on one stream.
type Piece struct {
	Kind byte // KindData or KindDataErr
	B    []byte
	cost int
	buf  *[]byte // where B lives, if it came from a pool
}

// Pieces of small frames are exact, larger ones come from pools by powers of
// two: what is kept is at most twice what the window was charged.
const (
	smallChunk = 2 << 10
	growChunk  = 32 << 10
)

var pools [20]sync.Pool

func takeBuf(n int) *[]byte {
	class := bits.Len(uint(n - 1))
	if p, ok := pools[class].Get().(*[]byte); ok {
		return p
	}
	b := make([]byte, 1<<class)
	return &b
}

func giveBuf(p *[]byte) {
	if p != nil {
		pools[bits.Len(uint(len(*p)-1))].Put(p)
	}
}

// An Inbox holds what arrived on one stream until its one reader takes it. The
// sender was promised a window; going beyond it is an error.
type Inbox struct {
	mu     sync.Mutex
	q      []Piece
	window int // what the sender may still send
	owed   int // consumed and not yet granted again
	grant  int // when owed reaches this it is worth a frame
	ended  bool
	drop   bool
	ready  chan struct{}
}

// NewInbox returns an inbox with a window of so many bytes.
func NewInbox(window int) *Inbox {
	return &Inbox{window: window, grant: window / 4, ready: make(chan struct{}, 1)}
}

// Reserve charges a frame of n bytes to the window and says where its body
// goes; false if the sender had no right to send it. Put must follow.
func (in *Inbox) Reserve(kind byte, n int) (Piece, bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	cost := n + FrameCost
	if cost > in.window || in.ended {
		return Piece{}, false
	}
	in.window -= cost
	c := Piece{Kind: kind, cost: cost}
	if n <= smallChunk {
		c.B = make([]byte, n)
	} else {
		c.buf = takeBuf(n)
		c.B = (*c.buf)[:n]
	}
	return c, true
}

// Put queues a chunk that Reserve made, filled.
func (in *Inbox) Put(c Piece) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.drop {
		giveBuf(c.buf)
		return
	}
	if k := len(in.q) - 1; k >= 0 && c.buf == nil && in.q[k].buf == nil &&
		in.q[k].Kind == c.Kind && len(in.q[k].B) < growChunk {
		in.q[k].B = append(in.q[k].B, c.B...)
		in.q[k].cost += c.cost
	} else {
		in.q = append(in.q, c)
	}
	in.wake()
}

// End says that nothing more comes.
func (in *Inbox) End() {
	in.mu.Lock()
	in.ended = true
	in.mu.Unlock()
	in.wake()
}

// Drop throws away what is queued and what still comes.
func (in *Inbox) Drop() {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, c := range in.q {
		giveBuf(c.buf)
	}
	in.q, in.drop = nil, true
}

func (in *Inbox) wake() {
	select {
	case in.ready <- struct{}{}:
	default:
	}
}

// Ready is signalled when Take may find something it did not find before.
func (in *Inbox) Ready() <-chan struct{} { return in.ready }

// Take returns the next chunk. Without one, ended says whether one may come.
func (in *Inbox) Take() (c Piece, ok, ended bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if len(in.q) == 0 {
		return Piece{}, false, in.ended
	}
	c = in.q[0]
	in.q[0] = Piece{}
	if in.q = in.q[1:]; len(in.q) == 0 {
		in.q = nil
	}
	return c, true, false
}

// Done gives back a chunk that Take returned. It returns how much to grant to
// the sender now; 0 means not yet.
func (in *Inbox) Done(c Piece) int {
	if c.cost == 0 {
		return 0
	}
	giveBuf(c.buf)
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.owed += c.cost; in.owed < in.grant || in.ended || in.drop {
		return 0
	}
	n := in.owed
	in.owed = 0
	in.window += n
	return n
}
