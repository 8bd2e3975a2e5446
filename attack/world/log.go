package world

import (
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
)

// maxKinds bounds how many kinds of hits are kept apart.
const maxKinds = 64

// A log is what was seen since a case began.
type log struct {
	mu    sync.Mutex
	hits  map[string]int
	good  map[string]bool
	names []string // allowed beside those of Rules
	asked int      // bytes of labels below wild.test that arrived
	marks chan struct{}
	times map[string]int // questions for names whose answer changes
	conns map[net.Conn]bool
	ended bool
}

func newLog() *log {
	l := &log{conns: map[net.Conn]bool{}, marks: make(chan struct{})}
	l.begin(nil)
	return l
}

func (l *log) begin(names []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hits, l.good, l.names, l.asked, l.times = map[string]int{}, map[string]bool{}, names, 0, map[string]int{}
}

func (l *log) take() Watch {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := Watch{Hits: l.hits, Good: l.good}
	l.hits, l.good = map[string]int{}, map[string]bool{}
	return w
}

func (l *log) soFar() Watch {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Watch{Hits: maps.Clone(l.hits), Good: maps.Clone(l.good)}
}

func (l *log) hit(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hits[what] == 0 && len(l.hits) >= maxKinds {
		what = "other canaries"
	}
	l.hits[what]++
}

func (l *log) fine(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.good) < 4096 {
		l.good[what] = true
	}
}

// may says whether a name is one that the case may use.
func (l *log) may(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return name == "example.test" || strings.HasSuffix(name, ".wild.test") || slices.Contains(l.names, name)
}

// count counts questions for one name.
func (l *log) count(name string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.times[name]++
	return l.times[name]
}

// carried adds bytes that came out in names, and returns the sum.
func (l *log) carried(n int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked += n
	return l.asked
}

func (l *log) expectMark() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.marks = make(chan struct{})
	return l.marks
}

func (l *log) marked() {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.marks:
	default:
		close(l.marks)
	}
}

// enter and leave bound a connection's life; enter says whether it may live.
func (l *log) enter(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return false
	}
	l.conns[c] = true
	return true
}

func (l *log) leave(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
}

func (l *log) open() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.conns)
}

// cut ends every connection, and those to come.
func (l *log) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	for c := range l.conns {
		c.Close()
	}
}

// allowed says whether policies allow connections to there. What is said on
// them is looked at where they end.
func allowed(to netip.AddrPort) bool {
	if to.Port() != 8080 && to.Port() != 8443 {
		return false
	}
	switch to.Addr().Unmap().String() {
	case Allowed4, Allowed6:
		return true
	case Wild4, Wild6:
		return to.Port() == 8080
	}
	return false
}

func resolver(a netip.Addr) bool {
	s := a.Unmap().String()
	return s == Resolver4 || s == Resolver6
}
