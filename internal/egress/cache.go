package egress

import (
	"context"
	"errors"
	"sync"
	"time"
)

// A question is what a name server is asked.
type question struct {
	name  string
	qtype uint16
}

// Bounds of what is kept for one sandbox.
const (
	cacheSize = 1024        // answers
	failedTTL = time.Second // that nobody could say anything
)

// A cache keeps answers for one sandbox, so that none learns from the time an
// answer takes what another has asked, and asks each question once at a time.
type cache struct {
	r *resolver

	mu    sync.Mutex
	kept  map[question]stored
	asked map[question]*pending
}

type stored struct {
	found
	err   error
	until time.Time
}

// pending is a question that somebody is asking.
type pending struct {
	done chan struct{}
	found
	err error
}

func newCache(r *resolver) *cache {
	return &cache{r: r, kept: map[question]stored{}, asked: map[question]*pending{}}
}

// lookup is resolver.lookup, remembered. The time to live is what is left of it.
func (c *cache) lookup(ctx context.Context, q question) (found, error) {
	c.mu.Lock()
	now := time.Now()
	if k, ok := c.kept[q]; ok && now.Before(k.until) {
		c.mu.Unlock()
		k.ttl = k.until.Sub(now)
		return k.found, k.err
	}
	p, busy := c.asked[q]
	if !busy {
		p = &pending{done: make(chan struct{})}
		c.asked[q] = p
	}
	c.mu.Unlock()
	if busy {
		select {
		case <-p.done:
			return p.found, p.err
		case <-ctx.Done():
			return found{}, ctx.Err()
		}
	}
	p.found, p.err = c.r.lookup(ctx, q.name, q.qtype)
	c.mu.Lock()
	delete(c.asked, q)
	switch {
	case p.err == nil:
		c.keep(q, stored{found: p.found, until: time.Now().Add(p.ttl)})
	case !errors.Is(p.err, context.Canceled): // else it was the one who asked that went away
		c.keep(q, stored{err: p.err, until: time.Now().Add(failedTTL)})
	}
	c.mu.Unlock()
	close(p.done)
	return p.found, p.err
}

// leaves says whether a lookup would ask a name server now.
func (c *cache) leaves(q question) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	k, known := c.kept[q]
	return c.asked[q] == nil && !(known && time.Now().Before(k.until))
}

// keep makes room by what is over, and by anything where that is not enough.
func (c *cache) keep(q question, s stored) {
	now := time.Now()
	if len(c.kept) >= cacheSize {
		for k, v := range c.kept {
			if now.After(v.until) {
				delete(c.kept, k)
			}
		}
		for k := range c.kept {
			if len(c.kept) < cacheSize {
				break
			}
			delete(c.kept, k)
		}
	}
	c.kept[q] = s
}
