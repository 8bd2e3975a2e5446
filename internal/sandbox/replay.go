package sandbox

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/bermhq/berm/api"
)

// A past is what the log says of a sandbox since its record was made. Where the
// two differ the log is right: it was written first.
type past struct {
	started bool // its creation was, or may have been, answered
	paused  bool
	ended   *endedData
	endedAt time.Time
}

// replay takes one event of b's. Only an engine that nobody else uses yet calls it.
func (b *box) replay(p *past, ev api.Event) error {
	at, err := time.Parse(time.RFC3339Nano, ev.Time)
	if err != nil {
		return err
	}
	read := func(to any) error { return json.Unmarshal(ev.Data, to) }
	switch ev.Type {
	case api.EventSandboxStarted:
		var d startedData
		if err := read(&d); err != nil {
			return err
		}
		p.started = true
		maps.Copy(b.public.TimingsMS, d.TimingsMS)
	case api.EventSandboxPaused:
		p.paused = true
	case api.EventSandboxResumed:
		p.paused = false
	case api.EventSandboxChanged:
		var d changedData
		if err := read(&d); err != nil {
			return err
		}
		b.changed(d)
	case api.EventPolicyChanged:
		var d policyData
		if err := read(&d); err != nil {
			return err
		}
		if b.link != nil {
			b.public.Egress = d.New
		}
	case api.EventEgressAllowed, api.EventEgressDenied:
		var d api.EgressData
		if err := read(&d); err != nil {
			return err
		}
		if b.link != nil {
			b.link.heardOf(d, ev.Type == api.EventEgressAllowed)
		}
	case api.EventCapHit:
		var d capData
		if err := read(&d); err != nil {
			return err
		}
		if b.link != nil && d.Cap == api.CapEgress {
			b.caps.add(d.Cap)
			b.link.capped = append(b.link.capped, d.Reason)
		}
	case api.EventSandboxEnded:
		p.ended, p.endedAt = new(endedData), at
		return read(p.ended)
	case api.EventExecStarted:
		var d execStartedData
		if err := read(&d); err != nil {
			return err
		}
		if b.jobs[d.ExecID] != nil {
			return nil // asked again after it had been pushed out; the newest counts
		}
		pl := plan{secs: d.TimeoutSeconds, hash: d.Request, args: d.Args}
		pl.start.ID, pl.start.Dir, pl.start.TTY = d.ExecID, d.Dir, d.TTY
		j := newJob(pl, b, ev.Actor, d.Kept, d.Detached)
		j.info.StartedAt, j.began = stamp(at), at
		close(j.decided)
		b.remember(j)
		b.execs++
	case api.EventExecEnded:
		var d execEndedData
		if err := read(&d); err != nil {
			return err
		}
		if j := b.jobs[d.ExecID]; j != nil && j.info.State == api.ExecRunning {
			b.settle(j, d.ExecResult, d.OutputBytes)
		}
	}
	return nil
}

// changed brings a change of times or tags into force.
func (b *box) changed(d changedData) {
	if d.TTLSeconds != nil {
		b.ttl = seconds(*d.TTLSeconds)
	}
	if d.IdleTimeoutSeconds != nil {
		b.idle = seconds(*d.IdleTimeoutSeconds)
	}
	if d.Persistent != nil {
		b.persistent = *d.Persistent
	}
	for k, v := range d.Tags {
		if v == nil {
			delete(b.public.Tags, k)
		} else {
			b.public.Tags[k] = *v
		}
	}
}

// open are the execs whose end is not known.
func (b *box) open() []*job {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(b.order), func(j *job) bool { return j.info.State == api.ExecEnded })
}
