package agent

import (
	"bytes"
	"math/rand"
	"testing"
	"time"

	"github.com/bermhq/berm/internal/guest"
)

// written is everything that was ever written to a log.
type written struct {
	data    []byte
	streams []guest.Stream
}

func (w *written) check(t *testing.T, s guest.Stream, at int64, b []byte) {
	t.Helper()
	if !bytes.Equal(b, w.data[at:at+int64(len(b))]) {
		t.Fatalf("other bytes at %d", at)
	}
	for i := range b {
		if w.streams[at+int64(i)] != s {
			t.Fatalf("byte %d is of %v, not %v", at+int64(i), w.streams[at+int64(i)], s)
		}
	}
}

// some adds up to n bytes of one stream, as many as there is room for.
func (w *written) some(r *rand.Rand, l *outlog, n int) int {
	b := make([]byte, n)
	r.Read(b)
	s := guest.Stdout
	if r.Intn(2) == 0 {
		s = guest.Stderr
	}
	l.mu.Lock()
	n = l.room(n)
	l.add(s, b[:n])
	l.mu.Unlock()
	w.data = append(w.data, b[:n]...)
	for range n {
		w.streams = append(w.streams, s)
	}
	return n
}

// TestLog plays random writers and followers against a record of all that was
// written.
func TestLog(t *testing.T) {
	for seed := range int64(20) {
		r := rand.New(rand.NewSource(seed))
		keep := []int64{1, 2, 7, 1000, 40_000, 300_000}[r.Intn(6)]
		most := []int{1, 10, 3000, 100_000}[r.Intn(4)]
		l, w := newLog(keep), &written{}
		var all []*follower
		fresh := map[*follower]bool{}
		buf := make([]byte, 50_000)
		for step := 0; step < 1500 && len(w.data) < 3_000_000; step++ {
			switch k := r.Intn(10); {
			case k < 6:
				if w.some(r, l, 1+r.Intn(most)) == 0 && len(all) == 0 {
					t.Fatal("held back by nobody")
				}
			case k == 6 && len(all) < 4:
				f := l.join(int64(r.Intn(len(w.data)+1)), true)
				all, fresh[f] = append(all, f), true
			case k == 7 && len(all) > 0 && r.Intn(4) == 0:
				i := r.Intn(len(all))
				l.leave(all[i])
				all = append(all[:i], all[i+1:]...)
			case len(all) > 0:
				f := all[r.Intn(len(all))]
				before := f.pos
				s, gap, n, wait := l.read(f, buf[:1+r.Intn(len(buf))])
				if n == 0 && (wait == nil || before < l.total) {
					t.Fatalf("nothing to read at %d of %d", before, l.total)
				}
				if gap > 0 && !fresh[f] {
					t.Fatalf("seed %d: a follower that moves lost %d bytes at %d", seed, gap, before)
				}
				if f.pos > l.headMax {
					fresh[f] = false
				}
				w.check(t, s, before+gap, buf[:n])
			}
			if size, bound := l.size(), 4*(keep+4*blockSize)+8*followWindow; size > bound {
				t.Fatalf("seed %d: %d bytes of memory for %d of log", seed, size, keep)
			}
		}
		for _, f := range all {
			l.leave(f)
		}
		total := int64(len(w.data))
		l.end()
		f := l.join(0, false)
		var kept, gaps int64
		for {
			s, gap, n, wait := l.read(f, buf)
			if n == 0 {
				if wait != nil {
					t.Fatal("an ended log waits")
				}
				break
			}
			gaps += gap
			w.check(t, s, f.pos-int64(n), buf[:n])
			if gap > 0 && (kept != keep/2 || f.pos-int64(n) != total-(keep-keep/2)) {
				t.Fatalf("seed %d: a gap from %d to %d of %d, keeping %d", seed, kept, f.pos-int64(n), total, keep)
			}
			kept += int64(n)
		}
		if kept != min(keep, total) || kept+gaps != total {
			t.Fatalf("seed %d: %d kept and %d dropped of %d, keeping %d", seed, kept, gaps, total, keep)
		}
	}
}

// TestLogSmall: what is kept of little takes little.
func TestLogSmall(t *testing.T) {
	l := newLog(64 << 20)
	l.write(guest.Stdout, []byte("hello"))
	if n := l.size(); n > 200 {
		t.Errorf("5 bytes take %d", n)
	}
}

// TestLogStall: who does not move holds up nobody, and loses bytes.
func TestLogStall(t *testing.T) {
	l := newLog(1000)
	f := l.join(0, true)
	big := make([]byte, followWindow+2000)
	l.mu.Lock()
	if n := l.room(len(big)); n != 500 { // the head first
		t.Errorf("room for %d", n)
	}
	l.add(guest.Stdout, big[:500])
	n := l.room(len(big))
	if n != followWindow {
		t.Errorf("room for %d", n)
	}
	l.add(guest.Stdout, big[:n])
	if n := l.room(1); n != 0 {
		t.Errorf("room for %d beyond what a follower may be behind", n)
	}
	f.moved = time.Now().Add(-stall - time.Second)
	if n := l.room(len(big)); n != len(big) {
		t.Errorf("a stalled follower leaves room for %d", n)
	}
	l.add(guest.Stdout, big)
	l.mu.Unlock()
	l.write(guest.Stdout, big)
	f.pos = 500
	if _, gap, n, _ := l.read(f, big); gap != int64(followWindow+2*len(big)-500) || n != 500 {
		t.Errorf("%d bytes after a gap of %d", n, gap)
	}
	// After the process has ended only so much is held back.
	f.pos = l.total
	l.ending()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.add(guest.Stdout, make([]byte, followWindow))
	if n := l.room(afterEnd); n != afterEnd {
		t.Errorf("room for %d after the end", n)
	}
}

// TestLogHold: where somebody will follow, or come back, nothing is lost
// meanwhile, but not for ever.
func TestLogHold(t *testing.T) {
	l := newLog(10)
	l.hold(true)
	big := make([]byte, followWindow+100)
	fill := func() (n int) {
		l.mu.Lock()
		defer l.mu.Unlock()
		for k := l.room(len(big)); k > 0; k = l.room(len(big)) {
			l.add(guest.Stdout, big[:k])
			n += k
		}
		return n
	}
	if n := fill(); n != followWindow+5 {
		t.Errorf("%d bytes are held for the first", n)
	}
	f := l.join(0, true)
	for n := 0; n < followWindow+5; {
		_, gap, k, _ := l.read(f, big)
		if n += k; gap != 0 || k == 0 {
			t.Fatalf("a gap of %d after %d bytes", gap, n)
		}
	}
	l.leave(f)
	if n := fill(); n != 0 {
		t.Errorf("room for %d while one who left may come back", n)
	}
	f = l.join(f.pos-200, true) // it had not got all of it
	if _, gap, n, _ := l.read(f, big); gap != 0 || n != 200 {
		t.Errorf("%d bytes after a gap of %d", n, gap)
	}
	l.leave(f)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.until = time.Now().Add(-time.Second)
	if n := l.room(len(big)); n != len(big) {
		t.Errorf("room for %d when nobody came", n)
	}
}
