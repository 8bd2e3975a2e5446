package store

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/bermhq/berm/api"
)

// callerWeight is how many events that a client causes count as one that the
// guest causes: a client has a token and other bounds, and a thousand short
// commands are honest work.
const callerWeight = 10

// budget bounds what each sandbox writes in a minute, in tenths of an event.
type budget struct {
	max    Budget
	minute int64
	spent  map[string]*Budget // by sandbox
	bytes  map[string]int64   // by tenant
}

// charge books an event. What ends a sandbox or a command is always taken, as is
// the start of what was decided: there is one for each that was charged.
func (b *budget) charge(e *api.Event, size int, now time.Time) error {
	switch e.Type {
	case api.EventSandboxStarted, api.EventSandboxEnded, api.EventExecEnded, api.EventTokenRevoked:
		return nil
	}
	if m := now.Unix() / 60; m != b.minute || b.spent == nil {
		b.minute, b.spent, b.bytes = m, map[string]*Budget{}, map[string]int64{}
	}
	if e.Tenant != "" && e.Actor != "system" {
		if b.bytes[e.Tenant]+int64(size) > b.max.TenantBytes {
			return ErrBudget
		}
		b.bytes[e.Tenant] += int64(size)
	}
	if e.SandboxID == "" || e.Type == api.EventSandboxCreated {
		return nil
	}
	s := b.spent[e.SandboxID]
	if s == nil {
		s = &Budget{}
		b.spent[e.SandboxID] = s
	}
	weight := callerWeight
	if strings.HasPrefix(e.Type, "exec.") || strings.HasPrefix(e.Type, "file.") || strings.HasPrefix(e.Type, "port.") {
		weight = 1
	}
	if s.Events+weight > b.max.Events*callerWeight || s.Bytes+int64(weight*size) > b.max.Bytes*callerWeight {
		return ErrBudget
	}
	s.Events += weight
	s.Bytes += int64(weight * size)
	return nil
}

const (
	denialWindow = 10 * time.Second
	maxDenials   = 4096 // windows open at once; what comes beyond is counted under one target
)

// denial says whether events of a type are counted together.
func denial(kind string) bool {
	return strings.HasSuffix(kind, ".denied") || strings.HasSuffix(kind, ".refused")
}

// denials counts repeated refusals of the same thing: the first is written at
// once, the others within ten seconds as one event with their count.
type denials struct{ open map[denialKey]*window }

type denialKey struct{ tenant, sandbox, kind, target string }

type window struct {
	last  api.Event
	count int
	first time.Time
}

// take counts an event with those before it, if there are any: then it is not to
// be written itself. What is to be written for it, now or at the end of its
// window, is charged first, so that nothing follows from one that is refused.
func (d *denials) take(e api.Event, now time.Time, charge func() error) (counted bool, err error) {
	var about struct {
		Target string `json:"target"`
		Count  int    `json:"count"` // what the caller has counted together already
	}
	_ = json.Unmarshal(e.Data, &about)
	k := denialKey{e.Tenant, e.SandboxID, e.Type, about.Target}
	w := d.open[k]
	if w == nil && len(d.open) >= maxDenials {
		k.target = "\x00" // no target that anything has
		w = d.open[k]
	}
	if w == nil || w.count == 0 {
		if err := charge(); err != nil {
			return false, err
		}
	}
	if w == nil {
		if d.open == nil {
			d.open = map[denialKey]*window{}
		}
		d.open[k] = &window{first: now}
		return false, nil
	}
	w.count += max(about.Count, 1)
	w.last = e
	return true, nil
}

// due closes the windows that are over, or all, and answers what they counted.
func (d *denials) due(now time.Time, all bool) []api.Event {
	return d.close(func(_ denialKey, w *window) bool { return all || now.Sub(w.first) >= denialWindow })
}

// ended is due for the windows of a sandbox that is over: nothing of it is to be
// told after its end.
func (d *denials) ended(sandbox string) []api.Event {
	return d.close(func(k denialKey, _ *window) bool { return k.sandbox == sandbox })
}

func (d *denials) close(which func(denialKey, *window) bool) []api.Event {
	var out []api.Event
	for k, w := range d.open {
		if !which(k, w) {
			continue
		}
		delete(d.open, k)
		if w.count == 0 {
			continue
		}
		data := map[string]any{}
		_ = json.Unmarshal(w.last.Data, &data)
		data["count"] = w.count
		data["since"] = stamp(w.first)
		raw, err := json.Marshal(data)
		if err != nil {
			continue
		}
		e := w.last
		e.Data, e.ID = raw, api.NewID(api.KindEvent)
		out = append(out, e)
	}
	return out
}
