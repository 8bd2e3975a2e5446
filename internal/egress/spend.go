package egress

import (
	"time"

	"github.com/bermhq/berm/internal/policy"
)

// spending is what one rule, known by its text, was used for in one sandbox.
type spending struct {
	uses   int
	open   int
	bytes  int64
	tokens float64 // of its rate
	filled time.Time
}

// fill brings the bucket of a rate up to now. One that was never used is full.
func (s *spending) fill(r policy.Rate, now time.Time) {
	if r.N <= 0 || r.Per <= 0 {
		return
	}
	if s.filled.IsZero() {
		s.tokens = float64(r.N)
	} else {
		s.tokens = min(float64(r.N), s.tokens+float64(r.N)*float64(now.Sub(s.filled))/float64(r.Per))
	}
	s.filled = now
}

// spentOn returns the spending of a rule.
func (l *link) spentOn(text string) *spending {
	s := l.spent[text]
	if s == nil {
		s = &spending{}
		l.spent[text] = s
	}
	return s
}

// What of a flow's own use is left out when it is decided about again.
type less int

const (
	lessNothing less = iota
	lessOpen         // it is open: one more request on it opens nothing
	lessAll          // it was let in before: its use, its place and its turn are its own
)

// spender is policy.Flow.Spent, seen from one flow (or nil). mu is held while it
// is used.
func (l *link) spender(now time.Time, f *flow, without less) func(int) policy.Spent {
	p := l.policy
	return func(i int) policy.Spent {
		if i < 0 || i >= len(p.Rules) {
			return policy.Spent{}
		}
		r := &p.Rules[i]
		s := l.spent[r.Text]
		if s == nil {
			return policy.Spent{}
		}
		s.fill(r.Rate, now)
		out := policy.Spent{Uses: s.uses, Open: s.open, Bytes: s.bytes, Busy: r.Rate.N > 0 && s.tokens < 1}
		if f != nil && f.holds && f.rule.Text == r.Text {
			if without >= lessOpen {
				out.Open--
			}
			if without == lessAll {
				out.Uses--
				out.Busy = false
			}
		}
		return out
	}
}

// take counts one use of a rule by a flow, which holds a place of it from now on.
func (l *link) take(f *flow, r policy.EgressRule, now time.Time) {
	s := l.spentOn(r.Text)
	s.fill(r.Rate, now)
	s.uses++
	s.tokens--
	if f.holds && f.rule.Text == r.Text {
		f.rule = r
		return
	}
	l.release(f)
	s.open++
	f.rule, f.holds = r, true
}

// release gives a flow's place back.
func (l *link) release(f *flow) {
	if f.holds {
		l.spentOn(f.rule.Text).open--
		f.holds = false
	}
}

// A stuffing bucket bounds what can be said through names below one suffix: by
// labels that are new, and by which of those that are known is asked about
// again.
type stuffing struct {
	tokens float64
	filled time.Time
	names  map[string]struct{}
}

const (
	stuffFirst = 2 << 10 // bytes
	stuffASec  = 64
	stuffLong  = 120 // below the suffix, at most
	stuffNames = 4096
	stuffAgain = 2 // bytes for a known name: more than it takes to tell one of stuffNames
)

// pass says whether one more name of that much below the suffix may be asked;
// leaves says that a name server would hear of it.
func (s *stuffing) pass(name string, below int, leaves bool, now time.Time) bool {
	if below > stuffLong {
		return false
	}
	_, known := s.names[name]
	if known {
		if !leaves {
			return true
		}
		below = min(below, stuffAgain)
	}
	if s.filled.IsZero() {
		s.tokens = stuffFirst
	} else {
		s.tokens = min(stuffFirst, s.tokens+stuffASec*now.Sub(s.filled).Seconds())
	}
	s.filled = now
	if s.tokens < float64(below) {
		return false
	}
	s.tokens -= float64(below)
	if known {
		return true
	}
	if len(s.names) >= stuffNames || s.names == nil {
		s.names = map[string]struct{}{}
	}
	s.names[name] = struct{}{}
	return true
}
