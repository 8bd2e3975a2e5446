package attack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/client"
)

// How a flood of commands is made up: some that end at once, many at one time,
// then many that stay and together are more tasks than the cap. Bounded, for
// where that cap is not.
const (
	floodWidth = 32
	floodShort = 200
	floodStay  = 40
)

// driveExecs asks one sandbox for commands without end, as a client with a token
// can. Each must be answered in time, whatever the answer.
func driveExecs(ctx context.Context, d *Drive) (err error) {
	o, known := d.Seen, pids()
	s, err := d.run.opt.Open(ctx, false)
	if err != nil {
		return fmt.Errorf("session: %w", err)
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	n, err := moveIn(ctx, s, d.run.opt.Isolation)
	if err != nil {
		return err
	}
	defer n.leave()
	w := watch(nil, known, n.pids)
	defer func() {
		w.end()
		o.Tasks, o.Memory, o.Disk, o.Serving, o.Looked = w.tasks, w.memory, w.disk, w.serving, w.looked
		o.Loose, o.CanLook = w.missing(d.Case.lacks()), os.Geteuid() == 0
	}()
	sb, err := s.Client.Create(ctx, api.CreateRequest{Template: s.Template, Isolation: d.run.opt.Isolation, Limits: d.Case.Limits})
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	o.Isolation, o.Boundary, o.Began = sb.Isolation, sb.Boundary, true
	defer func() {
		end, derr := s.Client.Delete(context.WithoutCancel(ctx), sb.SandboxID)
		o.CapsHit = union(o.CapsHit, end.CapsHit)
		err = errors.Join(err, derr)
	}()
	w.confined()
	n.listen(ctx)
	began := time.Now()
	hung := pour(ctx, floodWidth, floodShort, func(ctx context.Context) error {
		_, err := s.Client.Exec(ctx, sb.SandboxID, api.ExecRequest{Args: []string{"true"}}, client.Stdio{})
		return err
	})
	stay := strings.Repeat("sleep 6 & ", 8) + "wait"
	hung += pour(ctx, floodWidth, floodStay, func(ctx context.Context) error {
		_, err := s.Client.Spawn(ctx, sb.SandboxID, api.ExecRequest{Args: []string{"sh", "-c", stay}, Detach: true})
		return err
	})
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end) && len(o.CapsHit) == 0; { // who stays at the cap is ended
		time.Sleep(100 * time.Millisecond)
		list, err := s.Client.Execs(ctx, sb.SandboxID)
		if err != nil {
			return fmt.Errorf("list commands: %w", err)
		}
		for _, x := range list {
			if x.Result != nil {
				o.CapsHit = union(o.CapsHit, x.Result.CapsHit)
			}
		}
	}
	o.Elapsed = time.Since(began)
	n.hush()
	o.Neighbour, o.Unserved, o.Ended = n.figures(), n.failed, true
	if hung > 0 {
		o.Unserved = append(o.Unserved, fmt.Sprintf("%d commands of %d got no answer", hung, floodShort+floodStay))
	}
	return nil
}

// pour calls f many times, width at a time, and counts the calls that hang. An
// error is an answer.
func pour(ctx context.Context, width, times int, f func(context.Context) error) (hung int) {
	var mu sync.Mutex
	var all sync.WaitGroup
	turn := make(chan struct{}, width)
	for range times {
		turn <- struct{}{}
		all.Go(func() {
			defer func() { <-turn }()
			ctx, cancel := context.WithTimeout(ctx, 2*patience)
			defer cancel()
			if f(ctx); ctx.Err() != nil {
				mu.Lock()
				hung++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return hung
}
