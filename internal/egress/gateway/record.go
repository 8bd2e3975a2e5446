package gateway

import (
	"net/netip"
	"sync"
	"time"

	"github.com/bermhq/berm/internal/egress/wire"
)

// What the gateway refuses by itself it tells at once the first time, and then
// once a second with a number: a flood is one line.
const (
	tellEvery  = time.Second
	maxRecords = 256 // different ones in a second; what is more is counted into others
)

type recordKey struct {
	kind, reason, name, text string
	to                       netip.AddrPort
}

type records struct {
	tell func(wire.Ask) error

	mu    sync.Mutex
	count map[recordKey]int // since it was told last; there for a second
	more  map[recordKey]int // without their targets
}

func newRecords(tell func(wire.Ask) error) *records {
	return &records{tell: tell, count: map[recordKey]int{}, more: map[recordKey]int{}}
}

// add records one refusal.
func (r *records) add(kind, reason string, to netip.AddrPort, name string) {
	r.addText(kind, reason, to, name, "")
}

// addText is add with what else is known of it, for people.
func (r *records) addText(kind, reason string, to netip.AddrPort, name, text string) {
	k := recordKey{kind, reason, name, printable(text, wire.MaxText), to}
	r.mu.Lock()
	_, known := r.count[k]
	switch {
	case known:
		r.count[k]++
	case len(r.count) < maxRecords:
		r.count[k] = 0
	default:
		known = true
		r.more[recordKey{kind: kind, reason: reason}]++
	}
	r.mu.Unlock()
	if !known {
		r.say(k, 1)
	}
}

func (r *records) say(k recordKey, n int) {
	r.tell(wire.Ask{Op: wire.OpDenied, Kind: k.kind, Reason: k.reason, To: k.to, Name: k.name, Text: k.text, Count: min(n, wire.MaxCount)})
}

// run tells what was counted, until stop is closed.
func (r *records) run(stop <-chan struct{}) {
	t := time.NewTicker(tellEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			r.flush()
		case <-stop:
			return
		}
	}
}

func (r *records) flush() {
	r.mu.Lock()
	told := map[recordKey]int{}
	for k, n := range r.count {
		if n == 0 {
			delete(r.count, k) // quiet for a second: the next is told at once again
			continue
		}
		told[k] = n
		r.count[k] = 0
	}
	for k, n := range r.more {
		told[k] += n
	}
	clear(r.more)
	r.mu.Unlock()
	for k, n := range told {
		r.say(k, n)
	}
}
