package sandbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/backend"
)

// Deadlines are kept twice: by a timer in here, which ends an exec and leaves
// the sandbox alive, and by the host, which ends the sandbox hostSlack later if
// this process is stuck, stopped or gone.
const (
	hostSlack = 5 * time.Second
	hostFor   = 5 * time.Second // a move of the host's deadline takes no longer
)

// A hostClock has the host hold the latest deadline of the running execs.
type hostClock struct {
	set backend.Deadliner // nil: the host holds Spec.Deadline and no other

	mu   sync.Mutex               // held while the host is asked, so that moves keep their order
	ends map[*execution]time.Time // the zero time: no end
}

// hold has the host end the sandbox soon after x's time is over; timeout 0 is
// no end. A host that cannot is no place to run.
func (x *execution) hold(ctx context.Context, timeout time.Duration) error {
	c := &x.b.clock
	if c.set == nil {
		return nil
	}
	var at time.Time
	if timeout > 0 {
		at = time.Now().Add(timeout + hostSlack)
		select {
		case <-x.b.ready:
		default: // the program's clock starts when the guest is up; tighten follows
			at, x.loose = at.Add(x.e.opt.Boot), true
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ends == nil {
		c.ends = map[*execution]time.Time{}
	}
	c.ends[x] = at
	err := c.move(ctx, x.b.spec.Deadline)
	if err == nil {
		return nil
	}
	delete(c.ends, x)
	c.move(ctx, x.b.spec.Deadline) // the others' is as it was, if the host can at all
	if errors.Is(err, backend.ErrGone) {
		return &api.Error{Code: api.CodeSandboxEnded, Message: fmt.Sprintf("sandbox %s has ended", x.b.id)}
	}
	return hostFailure("set the deadline", err)
}

// tighten has the host count from now, when the guest has come up. If that
// fails, what was held before is late by a boot at most.
func (x *execution) tighten(timeout time.Duration) {
	c := &x.b.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, held := c.ends[x]; !held {
		return // over
	}
	c.ends[x] = x.ran.Add(timeout + hostSlack)
	if err := c.move(context.Background(), x.b.spec.Deadline); err != nil && !errors.Is(err, backend.ErrGone) {
		x.e.opt.Log.Warn("deadline not tightened", "sandbox_id", x.b.id, "error", err)
	}
}

// release takes x's deadline from the host. If that fails the sandbox ends too
// early, never too late.
func (x *execution) release() {
	c := &x.b.clock
	if c.set == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, held := c.ends[x]; !held {
		return
	}
	delete(c.ends, x)
	select {
	case <-x.b.gone:
		return
	default:
	}
	if err := c.move(context.Background(), x.b.spec.Deadline); err != nil && !errors.Is(err, backend.ErrGone) {
		x.e.opt.Log.Warn("deadline not restored", "sandbox_id", x.b.id, "error", err)
	}
}

// move tells the host the latest of all ends, at most last; c.mu is held. An
// exec without an end, or none at all, is last.
func (c *hostClock) move(ctx context.Context, last time.Time) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), hostFor)
	defer cancel()
	var at time.Time
	for _, end := range c.ends {
		if end.IsZero() {
			at = last
			break
		}
		if end.After(at) {
			at = end
		}
	}
	if at.IsZero() || !last.IsZero() && at.After(last) {
		at = last
	}
	return c.set.SetDeadline(ctx, at)
}
