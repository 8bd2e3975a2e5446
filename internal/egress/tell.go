package egress

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bermhq/berm/api"
)

// Bounds of what is told of one sandbox.
const (
	tellQueue    = 1024 // events that wait for the sink; who brings the next waits too
	tellKeys     = 4096 // kinds of events that are counted
	deniedASec   = 20   // of one kind; more are counted
	allowedEvery = 10 * time.Second
	summaryItems = 256
	closeWait    = 5 * time.Second
)

// A teller brings events to a sink, one at a time and in order, and keeps the
// lists of a Summary. It has locks of its own and calls the sink without any.
type teller struct {
	sink func(Event)
	wake chan struct{}
	done chan struct{}

	mu      sync.Mutex
	room    *sync.Cond
	queue   []Event
	tallies map[tallyKey]*tally
	hurried bool // nobody waits for room any more
	closed  bool

	hosts, wanted []string
	looked        []string // names that were asked for, with learn
	faults        []api.EgressData
	denied        []api.Denial
	seen          map[denialKey]bool
	truncated     bool
	deniedCut     bool
}

// tallyKey is what makes two events of one kind.
type tallyKey struct {
	allowed      bool
	kind, target string
	port         uint16
	why          string // a denial's reason, or the rule
}

type denialKey struct{ kind, target, reason string }

// tally counts events of one kind that were not told one by one.
type tally struct {
	data  api.EgressData
	from  time.Time // of the second, or of the ten, that it counts
	n     int       // told in it
	count int       // not told
}

func newTeller(sink func(Event)) *teller {
	t := &teller{sink: sink, wake: make(chan struct{}, 1), done: make(chan struct{}), tallies: map[tallyKey]*tally{}, seen: map[denialKey]bool{}}
	t.room = sync.NewCond(&t.mu)
	go t.run()
	return t
}

// deny tells of n refusals of one kind, at most deniedASec a second one by one.
func (t *teller) deny(d api.EgressData, n int) {
	d.Verdict = "denied"
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	t.list(d)
	now := time.Now()
	c := t.tally(tallyKey{kind: d.Kind, target: d.Target, why: d.Reason}, now)
	if c == nil {
		t.push(Event{Data: d})
		return
	}
	if now.Sub(c.from) >= time.Second {
		t.settle(false, c, now)
	}
	if c.n >= deniedASec || n > 1 {
		c.data = d
		c.count += n
		t.poke()
		return
	}
	c.n++
	t.push(Event{Data: d})
}

// allow tells of one thing that was allowed: the first of its kind at once.
func (t *teller) allow(d api.EgressData) {
	d.Verdict = "allowed"
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	c := t.tally(allowedKey(d), time.Now())
	if c != nil && c.n > 0 {
		c.count++
		t.poke()
		return
	}
	if c != nil {
		c.n, c.data = 1, d
	}
	t.push(Event{Allowed: true, Data: d})
}

// bytes adds what a connection carried to what is told of its kind next.
func (t *teller) bytes(d api.EgressData, out, in int64) {
	if out == 0 && in == 0 {
		return
	}
	d.Verdict = "allowed"
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	c := t.tally(allowedKey(d), time.Now())
	if c == nil {
		d.EgressBytes, d.IngressBytes = out, in
		t.push(Event{Allowed: true, Data: d})
		return
	}
	if c.n == 0 {
		c.n, c.data = 1, d
	}
	c.data.EgressBytes += out
	c.data.IngressBytes += in
	t.poke()
}

func allowedKey(d api.EgressData) tallyKey {
	return tallyKey{allowed: true, kind: d.Kind, target: d.Target + "\x00" + d.Address, port: d.Port, why: d.Rule + "\x00" + d.Text}
}

// tally returns the count of a kind, or nil where there are too many kinds.
func (t *teller) tally(k tallyKey, now time.Time) *tally {
	if c, ok := t.tallies[k]; ok {
		return c
	}
	if len(t.tallies) >= tellKeys {
		for k, c := range t.tallies {
			if c.count == 0 && !c.carries() && now.Sub(c.from) > time.Second {
				delete(t.tallies, k)
			}
		}
		if len(t.tallies) >= tellKeys {
			return nil
		}
	}
	c := &tally{from: now}
	t.tallies[k] = c
	return c
}

func (c *tally) carries() bool { return c.data.EgressBytes != 0 || c.data.IngressBytes != 0 }

// settle queues what a tally has counted and lets it begin again.
func (t *teller) settle(allowed bool, c *tally, now time.Time) {
	if c.count > 0 || c.carries() {
		d := c.data
		d.Count, d.Since = c.count, c.from.UTC().Format(time.RFC3339Nano)
		t.queue = append(t.queue, Event{Allowed: allowed, Data: d})
		t.poke()
	}
	c.data.EgressBytes, c.data.IngressBytes = 0, 0
	c.count, c.from = 0, now
	if !allowed {
		c.n = 0
	}
}

// push queues one event. Whoever brings more than the sink takes has to wait.
func (t *teller) push(e Event) {
	if t.sink == nil {
		return
	}
	for len(t.queue) >= tellQueue && !t.hurried {
		t.room.Wait()
	}
	t.queue = append(t.queue, e)
	t.poke()
}

func (t *teller) poke() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// due takes what is to be told now, and says when to look again (0: when woken).
func (t *teller) due(now time.Time) (events []Event, again time.Duration, closed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for k, c := range t.tallies {
		if c.count == 0 && !c.carries() {
			continue
		}
		every := time.Second
		if k.allowed {
			every = allowedEvery
		}
		if left := every - now.Sub(c.from); left <= 0 || t.closed {
			t.settle(k.allowed, c, now)
		} else if again == 0 || left < again {
			again = left
		}
	}
	events, t.queue = t.queue, nil
	t.room.Broadcast()
	return events, again, t.closed
}

func (t *teller) run() {
	defer close(t.done)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		events, again, closed := t.due(time.Now())
		for _, e := range events {
			if t.sink != nil {
				t.sink(e)
			}
		}
		if closed {
			return
		}
		if again == 0 {
			again = time.Hour
		}
		timer.Reset(again)
		select {
		case <-t.wake:
		case <-timer.C:
		}
	}
}

// hurry lets those go on who wait for the sink: the end has come.
func (t *teller) hurry() {
	t.mu.Lock()
	t.hurried = true
	t.room.Broadcast()
	t.mu.Unlock()
}

// close tells what is left. It waits for the sink, but not for ever: the sink
// may be what called for the end.
func (t *teller) close() {
	t.mu.Lock()
	t.closed = true
	t.poke()
	t.mu.Unlock()
	select {
	case <-t.done:
	case <-time.After(closeWait):
	}
}

// list adds a denial to the summary, each once.
func (t *teller) list(d api.EgressData) {
	k := denialKey{d.Kind, d.Target, d.Reason}
	if t.seen[k] {
		return
	}
	if len(t.denied) >= summaryItems {
		t.truncated, t.deniedCut = true, true
		return
	}
	t.seen[k] = true
	t.denied = append(t.denied, d.Denial())
}

// fault tells that what was allowed could not be had, and why.
func (t *teller) fault(d api.EgressData, word, why string) {
	d.Fault, d.Text = word, "allowed, but "+why
	t.mu.Lock()
	switch {
	case t.closed:
	case slices.ContainsFunc(t.faults, func(o api.EgressData) bool { return o.Target == d.Target && o.Text == d.Text }):
	case len(t.faults) >= summaryItems:
		t.truncated = true
	default:
		t.faults = append(t.faults, d)
	}
	t.mu.Unlock()
	t.allow(d)
}

func (t *teller) reached(target string) { t.add(&t.hosts, target) }
func (t *teller) wants(target string)   { t.add(&t.wanted, target) }
func (t *teller) looks(name string)     { t.add(&t.looked, name) }

func (t *teller) add(list *[]string, s string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case slices.Contains(*list, s):
	case len(*list) >= summaryItems:
		t.truncated = true
	default:
		*list = append(*list, s)
	}
}

// summary fills in the lists.
func (t *teller) summary(s *Summary) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.Hosts, s.Denied, s.Truncated = slices.Clone(t.hosts), slices.Clone(t.denied), t.truncated
	s.DeniedTruncated = t.deniedCut
	for _, d := range t.faults { // not what went well at another address, or later
		if !slices.ContainsFunc(t.hosts, func(h string) bool { return h == d.Target || strings.HasPrefix(h, d.Target+":") }) {
			s.Faults = append(s.Faults, d.FaultText())
		}
	}
	s.Wanted = slices.Clone(t.wanted)
	for _, name := range t.looked {
		if !slices.ContainsFunc(t.wanted, func(w string) bool { return len(w) > len(name) && w[:len(name)+1] == name+":" }) {
			s.Wanted = append(s.Wanted, name)
		}
	}
	slices.Sort(s.Wanted)
}
