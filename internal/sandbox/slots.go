package sandbox

import (
	"fmt"
	"sync"

	"github.com/bermhq/berm/api"
)

// What one sandbox may have under way at once, so that its calls fit into
// maxStreams and none can keep another kind out.
const (
	maxExecs    = 32
	maxFollows  = maxExecs + 8 // each command may have its caller, and some more
	maxDials    = 32
	maxFileOps  = 16
	maxWatches  = 8
	maxJobs     = 256 // execs that are remembered
	retryRather = 1   // seconds, where waiting helps
)

// slots count what is under way in one sandbox.
type slots struct {
	mu sync.Mutex
	n  map[string]int
}

// take takes one of most, or refuses; what it returns gives it back.
func (s *slots) take(what string, most int) (func(), error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n[what] >= most {
		return nil, &api.Error{Code: api.CodeRate, Message: fmt.Sprintf("this sandbox already has %d %s open", most, what), Hint: "end one, or wait", RetryAfter: retryRather}
	}
	if s.n == nil {
		s.n = map[string]int{}
	}
	s.n[what]++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.n[what]--
	}), nil
}
