package sandbox

import (
	"fmt"
	"maps"
	"math"
	"time"

	"github.com/bermhq/berm/api"
)

// A Quota is what one tenant may have at once, and how fast it may ask. A zero
// field is no bound.
type Quota struct {
	Sandboxes        int   // that have not ended
	MemoryBytes      int64 // the sum of their memory caps
	CreatesPerMinute int
}

// Totals are what an engine has done and holds, for those who watch it.
type Totals struct {
	States      map[string]int // sandboxes by state; the ended ones that are remembered too
	Creates     uint64
	Execs       uint64
	Endings     map[string]uint64 // of sandboxes
	MemoryBytes int64             // the sum of the memory caps of what lives
	Budget      int64             // the most that sum may be; 0: not counted
}

// books are what admission counts, under Engine.mu. Memory is counted by the
// caps, not by what is used: what was promised is there.
type books struct {
	memory  int64
	tenants map[string]*account
	creates uint64
	execs   uint64
	endings map[string]uint64
}

type account struct {
	sandboxes int
	memory    int64
	created   []time.Time // in the last minute, oldest first
}

func newBooks() books {
	return books{tenants: map[string]*account{}, endings: map[string]uint64{}}
}

// reserve takes what b will use from what there is, or refuses.
func (e *Engine) reserve(b *box) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return &api.Error{Code: api.CodeShuttingDown, Message: "the engine is closing"}
	}
	q, ok := e.opt.Quotas[b.tenant]
	if !ok {
		q = e.opt.Quota
	}
	a := e.books.tenants[b.tenant]
	if a == nil {
		a = &account{}
	}
	now := time.Now()
	for len(a.created) > 0 && now.Sub(a.created[0]) >= time.Minute {
		a.created = a.created[1:]
	}
	need := counted(b)
	if q.CreatesPerMinute > 0 && len(a.created) >= q.CreatesPerMinute {
		return &api.Error{
			Code:       api.CodeRate,
			Message:    fmt.Sprintf("tenant %s: more than %d sandboxes in a minute", b.tenant, q.CreatesPerMinute),
			Hint:       "wait, or use one sandbox for many commands",
			RetryAfter: int(math.Ceil(max(time.Minute-now.Sub(a.created[0]), time.Millisecond).Seconds())),
		}
	}
	if q.Sandboxes > 0 && a.sandboxes >= q.Sandboxes {
		return &api.Error{Code: api.CodeQuota, Message: fmt.Sprintf("tenant %s: has %d sandboxes and may have %d", b.tenant, a.sandboxes, q.Sandboxes), Hint: "delete one: berm kill", RetryAfter: retryFull}
	}
	if asked := b.spec.Limits.MemoryBytes; over(a.memory, asked, q.MemoryBytes) {
		return &api.Error{Code: api.CodeQuota, Message: fmt.Sprintf("tenant %s: memory of %s beside %s is more than its %s", b.tenant, mib(asked), mib(a.memory), mib(q.MemoryBytes)), Hint: "delete a sandbox, or ask for less memory", RetryAfter: retryFull}
	}
	if over(e.books.memory, need, e.opt.Budget) {
		return &api.Error{Code: api.CodeNodeFull, Message: fmt.Sprintf("this node is full: memory of %s beside %s is more than its %s", mib(need), mib(e.books.memory), mib(e.opt.Budget)), Hint: "delete a sandbox, ask for less memory, or try again later", RetryAfter: retryFull}
	}
	if q.CreatesPerMinute > 0 {
		a.created = append(a.created, now)
	}
	e.books.tenants[b.tenant] = a
	e.enterBooks(b, a)
	return nil
}

// retryFull is how many seconds to wait for others to end.
const retryFull = 5

// counted is the memory that was promised to b. One without a cap, which a host
// without cgroups has no other way to run, counts as if it had the usual one: a
// tenant that may not have such a one has a quota.
func counted(b *box) int64 {
	if m := b.spec.Limits.MemoryBytes; m >= 0 {
		return m
	}
	return api.DefaultMemoryBytes
}

// over says whether need does not fit beside have; a cap that was switched off
// fits no bound.
func over(have, need, bound int64) bool {
	return bound > 0 && (need < 0 || need > bound-have)
}

func mib(n int64) string {
	if n < 0 {
		return "no cap"
	}
	return fmt.Sprintf("%d MiB", n>>20)
}

func (e *Engine) enterBooks(b *box, a *account) {
	need := counted(b)
	a.sandboxes++
	a.memory += need
	e.books.memory += need
}

// adopted counts a sandbox that was there before; nothing can refuse it.
func (e *Engine) adopted(b *box) {
	a := e.books.tenants[b.tenant]
	if a == nil {
		a = &account{}
		e.books.tenants[b.tenant] = a
	}
	e.enterBooks(b, a)
}

// release gives back what reserve took, for a sandbox that ended or, with an
// empty ending, never came to be.
func (e *Engine) release(b *box, ending string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	need := counted(b)
	e.books.memory -= need
	if ending != "" {
		e.books.endings[ending]++
	}
	a := e.books.tenants[b.tenant]
	if a == nil {
		return
	}
	a.sandboxes--
	a.memory -= need
	if a.sandboxes == 0 && len(a.created) == 0 {
		delete(e.books.tenants, b.tenant)
	}
}

// Totals counts.
func (e *Engine) Totals() Totals {
	e.mu.Lock()
	defer e.mu.Unlock()
	t := Totals{States: map[string]int{}, Creates: e.books.creates, Execs: e.books.execs, Endings: maps.Clone(e.books.endings), MemoryBytes: e.books.memory, Budget: e.opt.Budget}
	for _, b := range e.boxes {
		t.States[string(b.now())]++
	}
	return t
}
