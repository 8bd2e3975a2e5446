package server

import (
	"sync"

	"github.com/bermhq/berm/api"
)

// What the answers of plain execs may hold in memory, together and for one
// tenant. New ones are refused from three quarters on, so that those which run
// have room for their output.
const (
	poolBytes   = 256 << 20
	poolTenant  = poolBytes / 2
	poolAtStart = 64 << 10
)

// A pool counts bytes that are held for clients.
type pool struct {
	mu     sync.Mutex
	used   int64
	tenant map[string]int64
}

// start takes what every answer begins with.
func (p *pool) start(tenant string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	full := func(whose string) error {
		return &api.Error{Code: api.CodeRate, Message: "the outputs that wait for " + whose + " to be read take all memory that is there for them",
			Hint: "read the answers of other commands first, or use exec/stream, which keeps nothing", RetryAfter: 2}
	}
	if p.tenant[tenant] > poolTenant/4*3 {
		return full("your other clients")
	}
	if p.used > poolBytes/4*3 {
		return full("clients")
	}
	p.add(tenant, poolAtStart)
	return nil
}

// grow takes more, if there is more.
func (p *pool) grow(tenant string, n int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.used+n > poolBytes || p.tenant[tenant]+n > poolTenant {
		return false
	}
	p.add(tenant, n)
	return true
}

func (p *pool) give(tenant string, n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.add(tenant, -n)
}

func (p *pool) add(tenant string, n int64) {
	p.used += n
	if p.tenant[tenant] += n; p.tenant[tenant] == 0 {
		delete(p.tenant, tenant)
	}
}
