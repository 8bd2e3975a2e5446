// Package alert tells somebody outside what happens: rules over the events of
// the audit log, each with a webhook or a command.
//
// Each rule follows the log by itself, from a place that it keeps, and delivers
// one alert after the other. So the log is the queue: nothing is lost by a
// restart, the same alert may come twice (it has an id), and a target that is
// slow or gone delays only its own rule. What is older than an hour when its
// turn comes is not delivered any more but counted, and the next alert says how
// many there were.
package alert

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/store"
)

const (
	maxAge      = time.Hour
	page        = 200
	saveEvery   = 5 * time.Second // of a place that moved without an alert
	maxCommands = 4               // programs that run at the same time
	retryLog    = time.Second     // after the log could not be read
)

// Source is the log; *store.Store is one.
type Source interface {
	Events(store.Query) (events []api.Event, next uint64, err error)
	Wait(ctx context.Context, after uint64) error
	Head() api.Head
}

// Places keep how far each rule has come; *store.Bucket is one.
type Places interface {
	Get(key string, v any) (bool, error)
	Put(key string, v any) error
}

// Message is what a target gets, as JSON.
type Message struct {
	Rule    string    `json:"rule"`
	Count   int       `json:"count"`             // how many events made this alert
	Skipped int       `json:"skipped,omitempty"` // alerts before this one that could not be delivered
	Event   api.Event `json:"event"`             // the last of them
}

// Alerts are rules at work.
type Alerts struct {
	rules    []Rule
	log      Source
	places   Places
	say      *slog.Logger
	commands chan struct{}
	now      func() time.Time
	pause    func(attempt int) time.Duration // before the next attempt
}

// New checks the rules. log may be nil for that alone.
func New(rules []Rule, log Source, places Places, say *slog.Logger) (*Alerts, error) {
	if len(rules) > maxRules {
		return nil, &api.Error{Code: api.CodeBadRequest, Message: fmt.Sprintf("%d alerts; the most is %d", len(rules), maxRules), Hint: "have one rule match more types"}
	}
	seen := map[string]bool{}
	for i := range rules {
		if err := rules[i].check(); err != nil {
			return nil, err
		}
		if seen[rules[i].Name] {
			return nil, &api.Error{Code: api.CodeBadRequest, Message: fmt.Sprintf("two alerts are named %q", rules[i].Name), Hint: "each has a name of its own"}
		}
		seen[rules[i].Name] = true
	}
	if say == nil {
		say = slog.New(slog.DiscardHandler)
	}
	return &Alerts{rules: rules, log: log, places: places, say: say, commands: make(chan struct{}, maxCommands), now: time.Now, pause: backoff}, nil
}

// backoff doubles from one second to a minute.
func backoff(attempt int) time.Duration {
	return min(time.Second<<min(attempt, 6), time.Minute)
}

// Run works until ctx ends. What is under way then is tried again by the next
// Run.
func (a *Alerts) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for i := range a.rules {
		f := &follower{a: a, rule: &a.rules[i]}
		f.target = newTarget(f.rule, a.commands)
		wg.Go(func() { f.run(ctx) })
	}
	wg.Wait()
}

// place is how far a rule has come.
type place struct {
	Seq     uint64 `json:"seq"`
	Skipped int    `json:"skipped,omitempty"`
}

// follower is one rule at work.
type follower struct {
	a      *Alerts
	rule   *Rule
	target target
	count  counter
	at     place
	kept   place // at, as it is on disk
	saved  time.Time
}

func (f *follower) run(ctx context.Context) {
	ok, err := f.a.places.Get(f.rule.Name, &f.at)
	if err != nil || !ok || f.at.Seq > f.a.log.Head().Seq {
		// A new rule is about what comes, not about what was.
		f.at = place{Seq: f.a.log.Head().Seq}
		f.save()
	}
	for ctx.Err() == nil {
		events, next, err := f.a.log.Events(store.Query{After: f.at.Seq, Limit: page})
		if err == nil && next == f.at.Seq {
			if f.at.Skipped != f.kept.Skipped {
				f.save()
			}
			err = f.a.log.Wait(ctx, f.at.Seq)
			if err == nil {
				continue
			}
		}
		if err != nil {
			if ctx.Err() == nil {
				f.a.say.Warn("alert: the log cannot be read", "rule", f.rule.Name, "error", err)
			}
			sleep(ctx, retryLog)
			continue
		}
		for i := range events {
			if !f.take(ctx, &events[i]) {
				return
			}
		}
		f.at.Seq = next
		if f.a.now().Sub(f.saved) > saveEvery {
			f.save()
		}
	}
}

// take deals with one event. false: ctx ended before that was done.
func (f *follower) take(ctx context.Context, e *api.Event) bool {
	defer func() { f.at.Seq = max(f.at.Seq, e.Seq) }()
	if !f.rule.match(e) {
		return true
	}
	n := f.count.add(f.rule, e)
	if n == 0 {
		return true
	}
	if at, err := time.Parse(time.RFC3339Nano, e.Time); err == nil && f.a.now().Sub(at) > maxAge {
		f.at.Skipped++
		return true
	}
	err := f.deliver(ctx, Message{Rule: f.rule.Name, Count: n, Skipped: f.at.Skipped, Event: *e})
	if ctx.Err() != nil && err != nil {
		return false
	}
	if err != nil {
		f.at.Skipped++
		f.a.say.Error("alert: not delivered", "rule", f.rule.Name, "event", e.ID, "seq", e.Seq, "error", err)
	} else {
		f.at.Skipped = 0
	}
	f.at.Seq = e.Seq
	f.save()
	return true
}

// deliver tries until it works, trying is of no use, or it was often enough.
func (f *follower) deliver(ctx context.Context, m Message) error {
	timeout := f.rule.TimeoutSeconds
	if timeout == 0 {
		timeout = defaultTimeout
	}
	for attempt := 0; ; attempt++ {
		one, cancel := context.WithTimeout(ctx, time.Duration(timeout*float64(time.Second)))
		err := f.target.send(one, m, f.a.now())
		cancel()
		var final finalError
		if err == nil || errors.As(err, &final) || attempt+1 >= f.target.attempts() || ctx.Err() != nil {
			return err
		}
		f.a.say.Warn("alert: will be tried again", "rule", f.rule.Name, "event", m.Event.ID, "attempt", attempt+1, "error", err)
		sleep(ctx, f.a.pause(attempt))
	}
}

func (f *follower) save() {
	f.saved, f.kept = f.a.now(), f.at
	if err := f.a.places.Put(f.rule.Name, f.at); err != nil {
		f.a.say.Warn("alert: its place cannot be kept; after a restart some alerts come again", "rule", f.rule.Name, "error", err)
	}
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
