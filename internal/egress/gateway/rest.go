package gateway

import (
	"runtime"
	"runtime/debug"
)

// restTime is how many seconds nothing must be open before memory is given back.
const restTime = 5

// rest finds out when a gateway has come to rest after it was busy: what a burst
// left is the sandbox's memory, and would stay as long as nothing else happens.
type rest struct {
	dirty bool // busy since memory was given back last
	quiet int  // looks without anything open
}

// over is called once a second, and is true once for each rest.
func (r *rest) over(busy bool) bool {
	if busy {
		r.dirty, r.quiet = true, 0
		return false
	}
	r.quiet++
	if !r.dirty || r.quiet < restTime {
		return false
	}
	r.dirty = false
	return true
}

// busy says whether something was open since it was asked last, or is.
func (g *Gateway) busy() bool {
	flows := g.flows.Load()
	was := flows != g.seen
	g.seen = flows
	g.udp.mu.Lock()
	udp := g.udp.flows
	g.udp.mu.Unlock()
	return was || udp > 0 || g.conns.Load() > 0 || g.dnsConns.Load() > 0 || len(g.dnsOpen) > 0
}

// giveBack returns to the kernel what nobody needs. A pool forgets only what it
// had at the collection before, hence two.
func giveBack() {
	runtime.GC()
	debug.FreeOSMemory()
}
