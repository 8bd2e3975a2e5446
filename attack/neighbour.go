package attack

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/client"
)

// A neighbour is an honest sandbox beside the attacked one, kept by the same
// processes. It is asked for a tiny command again and again: whatever another
// sandbox uses up, this one must be served.
type neighbour struct {
	s      *Session
	id     string
	pids   map[int]bool // its processes on the host
	alone  []time.Duration
	during []time.Duration
	failed []string
	stop   context.CancelFunc
	done   chan struct{}
}

const (
	patience   = 5 * time.Second        // an answer that takes longer is none
	askEvery   = 100 * time.Millisecond // while the case runs
	askedAlone = 5
)

// moveIn makes a neighbour and asks it while nothing else runs.
func moveIn(ctx context.Context, s *Session, isolation string) (*neighbour, error) {
	before := pids()
	sb, err := s.Client.Create(ctx, api.CreateRequest{Template: s.Template, Isolation: isolation, Limits: api.Limits{MemoryBytes: 64 << 20}})
	if err != nil {
		return nil, fmt.Errorf("neighbour: %w", err)
	}
	n := &neighbour{s: s, id: sb.SandboxID, pids: pids()}
	for p := range before {
		delete(n.pids, p)
	}
	for i := range askedAlone + 1 {
		d, err := n.ask(ctx)
		if err != nil {
			n.leave()
			return nil, fmt.Errorf("neighbour, before the attack: %w", err)
		}
		if i > 0 { // the first one finds nothing warm
			n.alone = append(n.alone, d)
		}
	}
	return n, nil
}

// ask wants one command and says how long it took.
func (n *neighbour) ask(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var out bytes.Buffer
	word, began := newCanary()[len(canaryWord):], time.Now()
	res, err := n.s.Client.Exec(ctx, n.id, api.ExecRequest{Args: []string{"echo", word}}, client.Stdio{Stdout: &out})
	took := time.Since(began)
	switch {
	case err != nil:
		return took, err
	case res.Ending != api.EndExit || res.ExitCode != 0 || strings.TrimSpace(out.String()) != word:
		return took, fmt.Errorf("its command ended by %s with %d and said %.60q", res.Ending, res.ExitCode, out.String())
	}
	return took, nil
}

// listen asks until hush is called.
func (n *neighbour) listen(ctx context.Context) {
	over, stop := context.WithCancel(context.Background())
	n.stop, n.done = stop, make(chan struct{})
	go func() {
		defer close(n.done)
		for over.Err() == nil && ctx.Err() == nil {
			d, err := n.ask(ctx)
			n.during = append(n.during, d)
			if err != nil && ctx.Err() == nil {
				n.failed = append(n.failed, err.Error())
			}
			select {
			case <-over.Done():
			case <-time.After(askEvery - min(d, askEvery)):
			}
		}
	}()
}

// hush waits for the last answer.
func (n *neighbour) hush() {
	if n.stop != nil {
		n.stop()
		<-n.done
	}
}

// leave ends it. That it is gone is seen when the session is closed.
func (n *neighbour) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	n.s.Client.Delete(ctx, n.id)
}

// figures are what was measured.
func (n *neighbour) figures() *Neighbour {
	middle, slowest := pace(n.during)
	alone, _ := pace(n.alone)
	return &Neighbour{Samples: len(n.during), Failed: len(n.failed), AloneP50MS: millis(alone), P50MS: millis(middle),
		P99MS: millis(percentile(n.during, 99)), MaxMS: millis(slowest)}
}

func millis(d time.Duration) float64 { return float64(d.Round(10*time.Microsecond)) / 1e6 }

func percentile(d []time.Duration, p int) time.Duration {
	if len(d) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(d))[(len(d)-1)*p/100]
}

// slowed says whether a neighbour had less than its share: half of its commands
// took over a second, and much longer than both alone and beside the plain loop
// of control. On a busy host all of these are slow, and nothing is said.
func slowed(n, control *Neighbour) bool {
	return n != nil && n.P50MS > 1000 && n.P50MS > 20*n.AloneP50MS && (control == nil || n.P50MS > 5*control.P50MS)
}

// beside measures the control: a neighbour beside a sandbox that keeps as many
// processors busy as it may, by a loop that does nothing else.
func beside(ctx context.Context, s *Session, isolation string, l api.Limits) (*Neighbour, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	n, err := moveIn(ctx, s, isolation)
	if err != nil {
		return nil, err
	}
	defer n.leave()
	l.TimeoutSeconds = 1
	sb, err := s.Client.Create(ctx, api.CreateRequest{Template: s.Template, Isolation: isolation, Limits: l})
	if err != nil {
		return nil, err
	}
	defer s.Client.Delete(ctx, sb.SandboxID)
	n.listen(ctx)
	_, err = s.Client.Exec(ctx, sb.SandboxID, api.ExecRequest{Args: []string{"sh", "-c", "while :; do :; done & while :; do :; done"}}, client.Stdio{})
	n.hush()
	if err != nil {
		return nil, err
	}
	return n.figures(), nil
}
