package egress

import (
	"net/netip"
	"sync"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/egress/wire"
	"github.com/bermhq/berm/internal/policy"
)

// Bounds of one sandbox.
const (
	maxFlows   = 256
	maxDials   = 64
	asksASec   = 5000
	watchEvery = 250 * time.Millisecond
	countEvery = 20 * time.Millisecond // where a number of bytes ends it
)

// A link is what the broker knows of one sandbox.
//
// Locks: mu guards the state and is never held while anything blocks; useMu is
// held around Link.Use, and mu may be taken within it; the teller and the cache
// have their own, which are taken last.
type link struct {
	opt   Link
	room  *room
	tell  *teller
	cache *cache
	dials chan struct{} // a place for each dial in flight
	done  chan struct{} // closed at the end
	wg    sync.WaitGroup

	useMu sync.Mutex

	mu       sync.Mutex
	closed   bool
	policy   *policy.Egress
	sessions map[*session]struct{}
	flows    map[*flow]struct{}
	spent    map[string]*spending // by a rule's text
	stuffed  map[string]*stuffing // by the suffix: rules that are written anew do not begin at nothing
	handed   *handed
	madeUp   uint32 // with learn: addresses that were made up so far
	out, in  int64
	watching bool
	pace     policy.Rate
	paced    spending // asks
}

// A flow is one connection of a sandbox, from the ask for it to its end.
type flow struct {
	s     *session
	n     uint64
	to    netip.AddrPort // that the guest asked for
	state flowState

	facts policy.Flow // that it was last decided by; To is what was dialled
	rule  policy.EgressRule
	holds bool           // a place of rule's connections
	by    *policy.Egress // that decided
	data  api.EgressData // of the event that allowed it

	roomed  bool  // it has a place of the room of all sandboxes
	conn    *kept // nil: not connected
	out, in int64
}

type flowState int

const (
	flowAccepted flowState = iota // known; nothing is dialled
	flowDialing
	flowOpen
	flowOver
)

func newLink(l Link, r *resolver, all *room) *link {
	k := &link{
		opt: l, room: all, tell: newTeller(l.Sink), cache: newCache(r), dials: make(chan struct{}, maxDials), done: make(chan struct{}), policy: orNothing(l.Policy),
		sessions: map[*session]struct{}{}, flows: map[*flow]struct{}{}, spent: map[string]*spending{}, stuffed: map[string]*stuffing{},
		handed: newHanded(), pace: policy.Rate{N: asksASec, Per: time.Second},
	}
	for text, n := range l.Used {
		k.spentOn(text).uses = n
	}
	return k
}

// orNothing makes a policy that is not there one that denies all.
func orNothing(p *policy.Egress) *policy.Egress {
	if p == nil {
		return &policy.Egress{}
	}
	return p
}

// change puts a policy in force and cuts what it does not allow.
func (l *link) change(p *policy.Egress) {
	l.mu.Lock()
	l.policy = orNothing(p)
	tells := l.again(func(*flow) bool { return true })
	l.mu.Unlock()
	all(tells)
}

// again decides once more about open flows that which picks, by what is known of
// them, and ends those that are not allowed any more. mu is held; what it returns
// is to be called without.
func (l *link) again(which func(*flow) bool) (tells []func()) {
	for f := range l.flows {
		if f.state != flowOpen || !which(f) {
			continue
		}
		if d := l.still(f); !d.Allow {
			tells = append(tells, l.denial(f.facts, d), l.end(f))
		}
	}
	return tells
}

// still decides about a flow by the policy of now. mu is held.
func (l *link) still(f *flow) policy.Decision {
	facts := f.facts
	facts.Now = time.Now()
	facts.Spent = l.spender(facts.Now, f, lessAll)
	d := l.policy.Connect(facts)
	if d.Allow && (d.Rule < 0 || d.Rule >= len(l.policy.Rules)) {
		return policy.Decision{Rule: -1, Reason: policy.DenyNoRule}
	}
	if d.Allow {
		f.by = l.policy
		if r := l.policy.Rules[d.Rule]; r.Text != f.rule.Text { // another rule lets it go on
			l.release(f)
			l.spentOn(r.Text).open++
			f.rule, f.holds = r, true
		} else {
			f.rule = r
		}
		l.watch()
	}
	return d
}

// end counts what a flow has carried, ends its connection for whoever holds it,
// and forgets it. mu is held; what it returns is to be called without.
func (l *link) end(f *flow) (tell func()) { return l.endBy(f, (*kept).shutdown) }

func (l *link) endBy(f *flow, cut func(*kept)) (tell func()) {
	if f.state == flowOver {
		return func() {}
	}
	l.sample(f)
	if f.conn != nil {
		cut(f.conn)
		f.conn.close()
		f.conn = nil
	}
	l.release(f)
	if f.roomed {
		f.roomed = false
		l.room.give()
	}
	f.state = flowOver
	delete(l.flows, f)
	delete(f.s.flows, f.n)
	data, out, in := f.data, f.out, f.in
	return func() { l.tell.bytes(data, out, in) }
}

func all(tells []func()) {
	for _, tell := range tells {
		tell()
	}
}

// close ends everything and returns what remains to be told.
func (l *link) close() Summary {
	l.tell.hurry()
	l.mu.Lock()
	l.closed = true
	close(l.done)
	var tells []func()
	for f := range l.flows {
		tells = append(tells, l.end(f))
	}
	for s := range l.sessions {
		s.stop()
	}
	l.mu.Unlock()
	all(tells)
	l.wg.Wait()
	l.tell.close()
	return l.summary()
}

func (l *link) summary() (s Summary) {
	l.mu.Lock()
	for f := range l.flows {
		l.sample(f)
	}
	s.OutBytes, s.InBytes = l.out, l.in
	l.mu.Unlock()
	l.tell.summary(&s)
	return s
}

// gatewayOwn are the addresses of the wire itself.
var gatewayOwn = []netip.Prefix{
	netip.PrefixFrom(wire.Gateway4, wire.Bits4).Masked(),
	netip.PrefixFrom(wire.Gateway6, wire.Bits6).Masked(),
}
