package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// A pace is how long bringing out may take.
type pace struct {
	total time.Duration // all of it
	grace time.Duration // a file may take this long, and
	rate  int64         // from then on this many bytes a second, on average
}

var usualPace = pace{total: 10 * time.Minute, grace: 10 * time.Second, rate: 64 << 10}

var (
	errSlow = errors.New("too slow")
	errLong = errors.New("took too long")
)

func refuseSlow(p pace) *Refusal {
	return &Refusal{Rule: "out.slow", Reason: fmt.Sprintf("came slower than %d KiB a second", p.rate>>10), Fix: "give the sandbox more time to read with --cpus"}
}

func refuseLong(p pace) *Refusal {
	return &Refusal{Rule: "out.slow", Reason: fmt.Sprintf("bringing files out took longer than %v; the rest was left", p.total), Fix: "bring out less, or one archive"}
}

// A paced stream is one file on its way; only the time in which the sandbox is
// waited for counts. When it is too slow its context ends with errSlow.
type paced struct {
	r     io.ReadCloser
	pace  pace
	timer *time.Timer
	spent time.Duration
	read  int64
}

func newPaced(p pace, cancel context.CancelCauseFunc) *paced {
	return &paced{pace: p, timer: time.AfterFunc(p.grace, func() { cancel(errSlow) })}
}

// wait runs what waits for the sandbox; the timer is on when it begins.
func (p *paced) wait(f func() (int, error)) (int, error) {
	began := time.Now()
	n, err := f()
	p.timer.Stop()
	p.spent += time.Since(began)
	p.read += int64(n)
	return n, err
}

func (p *paced) Read(b []byte) (int, error) {
	earned := time.Duration(float64(p.read) / float64(p.pace.rate) * float64(time.Second))
	p.timer.Reset(max(p.pace.grace+earned-p.spent, time.Millisecond))
	return p.wait(func() (int, error) { return p.r.Read(b) })
}

func (p *paced) Close() error {
	p.timer.Stop()
	if p.r == nil {
		return nil
	}
	return p.r.Close()
}
