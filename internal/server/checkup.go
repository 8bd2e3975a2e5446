package server

import (
	"context"
	"slices"
	"time"

	"github.com/bermhq/berm/api"
)

// checkupFor is how long what was found out about the host is answered again.
// Finding out tries things on the host, which nobody may have it do as often as
// they like.
const checkupFor = 30 * time.Second

// A checkup asks once, however many want to know.
type checkup struct {
	now  func() time.Time
	busy chan struct{} // held by who asks; guards what follows
	at   time.Time
	last api.Doctor
}

func newCheckup() *checkup {
	return &checkup{now: time.Now, busy: make(chan struct{}, 1)}
}

func (c *checkup) ask(ctx context.Context, doctor func(context.Context) (api.Doctor, error)) (api.Doctor, error) {
	select {
	case c.busy <- struct{}{}:
		defer func() { <-c.busy }()
	case <-ctx.Done():
		return api.Doctor{}, ctx.Err()
	}
	if !c.at.IsZero() && c.now().Sub(c.at) < checkupFor {
		return c.last, nil
	}
	d, err := doctor(ctx)
	if err == nil {
		c.at, c.last = c.now(), d
	}
	return d, err
}

// discreet is what everybody may know of it.
func discreet(d api.Doctor) api.Doctor {
	const why = "not on this host; its operator's berm doctor says why"
	d.Walls, d.Rungs = slices.Clone(d.Walls), slices.Clone(d.Rungs)
	for i := range d.Walls {
		if w := &d.Walls[i]; !w.Holds {
			w.Reason, w.Fix = why, "ask the operator of this host"
		}
	}
	for i := range d.Rungs {
		if r := &d.Rungs[i]; !r.Available {
			r.Reason, r.Fix = why, "ask the operator of this host"
		}
	}
	return d
}
