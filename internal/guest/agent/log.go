package agent

import (
	"sort"
	"sync"
	"time"

	"github.com/bermhq/berm/internal/guest"
)

// Bounds of a log and of those who read it.
const (
	maxKeep      = 64 << 20
	maxFollowers = 32
	blockSize    = 16 << 10
	// followWindow is how far behind a follower may be before the process waits
	// for it, if the log itself keeps less.
	followWindow = 64 << 10
	// afterEnd is what a log takes on top when the process has ended: what was
	// in its pipes, so that an exit waits for nobody.
	afterEnd = 1 << 20
	// stall is how long a follower may stand still before nobody waits for it:
	// longer than a daemon waits for a client that takes nothing.
	stall = 75 * time.Second
	// holdFor is how long a process waits for a follower that will come, or come
	// back: longer than a client looks for a daemon.
	holdFor = 40 * time.Second
	// behind is what a follower who comes back may not have got of what was sent:
	// what fits between here and there.
	behind = 1 << 20
)

// A block is a stretch of output. Runs say which stream it belongs to: length
// and one bit each, so that output in crumbs costs three times its size at most.
type block struct {
	off  int64
	data []byte
	runs []uint16
}

func (b *block) end() int64 { return b.off + int64(len(b.data)) }

// An outlog keeps the first and the last half of what a process writes. It is only
// as large as what was written.
type outlog struct {
	headMax, tailMax int64

	mu     sync.Mutex
	total  int64    // written so far
	head   []*block // the first headMax bytes
	tail   []*block // then a gap, then these
	lo     int64    // where the tail begins
	late   bool     // the process itself has ended
	over   bool     // nothing more is written
	follow map[*follower]struct{}
	held   bool          // there will be followers
	until  time.Time     // when none is waited for any more
	change chan struct{} // closed at the next change; nil while nobody waits
}

// A follower is one who reads a log.
type follower struct {
	pos   int64
	moved time.Time
	// Where the last run was found, to go on from there.
	blk *block
	run int
	at  int // offset of the run in blk
}

func newLog(keep int64) *outlog {
	keep = min(keep, maxKeep)
	return &outlog{headMax: keep / 2, tailMax: keep - keep/2, lo: keep / 2, follow: make(map[*follower]struct{})}
}

// hold says whether somebody will follow.
func (l *outlog) hold(yes bool) {
	l.held = yes
	if yes {
		l.until = time.Now().Add(holdFor)
	}
}

func (l *outlog) wake() {
	if l.change != nil {
		close(l.change)
		l.change = nil
	}
}

func (l *outlog) changed() <-chan struct{} {
	if l.change == nil {
		l.change = make(chan struct{})
	}
	return l.change
}

// write adds b. It waits for followers that are behind and move. It returns how
// much was written to the log in all.
func (l *outlog) write(s guest.Stream, b []byte) (total int64) {
	for {
		l.mu.Lock()
		n := l.room(len(b))
		l.add(s, b[:n])
		b = b[n:]
		total = l.total
		if len(b) == 0 || n > 0 {
			l.mu.Unlock()
			if len(b) == 0 {
				return total
			}
			continue
		}
		wait := l.changed()
		l.mu.Unlock()
		t := time.NewTimer(time.Second)
		select {
		case <-wait:
		case <-t.C:
		}
		t.Stop()
	}
}

// room is how much of n bytes may be added now.
func (l *outlog) room(n int) int {
	if l.total < l.headMax {
		return int(min(int64(n), l.headMax-l.total))
	}
	need, some := l.needed()
	if !some {
		return n
	}
	hold := max(l.tailMax, followWindow)
	if l.late {
		hold += afterEnd
		if hold <= l.total-need { // more than any pipe holds: it is lost
			return n
		}
	}
	return int(max(0, min(int64(n), hold-(l.total-need))))
}

// needed is where the followers that move have come to, at least.
func (l *outlog) needed() (pos int64, some bool) {
	now := time.Now()
	if now.Before(l.until) {
		pos, some = l.lo, true
	}
	for f := range l.follow {
		if f.pos < l.total && now.Sub(f.moved) > stall {
			continue
		}
		if p := max(f.pos, l.lo); !some || p < pos {
			pos, some = p, true
		}
	}
	return pos, some
}

func (l *outlog) add(s guest.Stream, b []byte) {
	if len(b) == 0 {
		return
	}
	for f := range l.follow {
		if f.pos >= l.total { // was not behind until now
			f.moved = time.Now()
		}
	}
	for len(b) > 0 {
		list, most := &l.tail, len(b)
		if l.total < l.headMax {
			list, most = &l.head, int(min(int64(len(b)), l.headMax-l.total))
		}
		k := len(*list) - 1
		if k < 0 || len((*list)[k].data) >= blockSize {
			*list = append(*list, &block{off: l.total})
			k++
		}
		blk := (*list)[k]
		n := min(most, blockSize-len(blk.data))
		blk.data = append(blk.data, b[:n]...)
		blk.mark(s, n)
		b = b[n:]
		l.total += int64(n)
		l.trim()
	}
	l.wake()
}

// mark says that the last n bytes are of s.
func (b *block) mark(s guest.Stream, n int) {
	bit := uint16(0)
	if s == guest.Stderr {
		bit = 1
	}
	if k := len(b.runs) - 1; k >= 0 && b.runs[k]&1 == bit {
		b.runs[k] += uint16(n) << 1
		return
	}
	b.runs = append(b.runs, uint16(n)<<1|bit)
}

// trim drops what is neither kept nor waited for.
func (l *outlog) trim() {
	lo := max(l.headMax, l.total-l.tailMax)
	if need, some := l.needed(); some {
		if l.held {
			need -= behind
		}
		lo = min(lo, max(need, l.lo))
	}
	l.lo = max(l.lo, lo)
	n := 0
	for n < len(l.tail) && l.tail[n].end() <= l.lo {
		l.tail[n] = nil
		n++
	}
	l.tail = l.tail[n:]
}

// end says that nothing more is written.
func (l *outlog) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	l.wake()
}

// ending says that the process itself has ended: from now on nobody is waited for.
func (l *outlog) ending() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.late = true
	l.wake()
}

func (l *outlog) written() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total
}

// size is the memory that the log takes.
func (l *outlog) size() (n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, list := range [][]*block{l.head, l.tail} {
		for _, b := range list {
			n += int64(cap(b.data)) + 2*int64(cap(b.runs)) + 64
		}
	}
	return n
}

// join adds a reader from off on; nil if there are too many. One who holds is
// waited for.
func (l *outlog) join(off int64, hold bool) *follower {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := &follower{pos: off, moved: time.Now()}
	if hold {
		if len(l.follow) >= maxFollowers {
			return nil
		}
		l.follow[f] = struct{}{}
		l.until = time.Time{}
		l.wake()
	}
	return f
}

func (l *outlog) leave(f *follower) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.follow, f)
	if l.held && len(l.follow) == 0 && !l.over {
		l.until = time.Now().Add(holdFor)
	}
	l.trim()
	l.wake()
}

// read takes what comes next for f, of one stream, into b. Without any, wait is
// closed when there may be some, and is nil if there never will be.
func (l *outlog) read(f *follower, b []byte) (s guest.Stream, gap int64, n int, wait <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f.pos >= l.total {
		if !l.over {
			wait = l.changed()
		}
		return 0, 0, 0, wait
	}
	if f.pos >= l.headMax && f.pos < l.lo {
		gap = l.lo - f.pos
		f.pos = l.lo
	}
	for n < len(b) && f.pos < l.total && (f.pos < l.headMax || f.pos >= l.lo) {
		t, part := l.find(f)
		if n == 0 {
			s = t
		} else if t != s {
			break
		}
		k := copy(b[n:], part)
		n += k
		f.pos += int64(k)
	}
	f.moved = time.Now()
	if len(l.follow) > 0 {
		l.trim()
		l.wake()
	}
	return s, gap, n, nil
}

// find returns what is at f.pos up to the end of its run.
func (l *outlog) find(f *follower) (guest.Stream, []byte) {
	if f.blk == nil || f.pos < f.blk.off+int64(f.at) || f.pos >= f.blk.end() {
		list := l.tail
		if f.pos < l.headMax {
			list = l.head
		}
		i := sort.Search(len(list), func(i int) bool { return list[i].end() > f.pos })
		f.blk, f.run, f.at = list[i], 0, 0
	}
	in := int(f.pos - f.blk.off)
	for in >= f.at+int(f.blk.runs[f.run]>>1) {
		f.at += int(f.blk.runs[f.run] >> 1)
		f.run++
	}
	s := guest.Stdout
	if f.blk.runs[f.run]&1 == 1 {
		s = guest.Stderr
	}
	return s, f.blk.data[in : f.at+int(f.blk.runs[f.run]>>1)]
}
