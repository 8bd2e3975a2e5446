package keeper

import (
	"os"
	"slices"
	"sort"
)

// A page is how many sandboxes one answer names, so that it fits a message.
const page = 64

// list names what runs and is fully up, in order, behind a name.
func (k *Keeper) list(after string) (out []Held, more bool) {
	k.mu.Lock()
	all := make([]*sandbox, 0, len(k.running))
	for id, s := range k.running {
		if id > after {
			all = append(all, s)
		}
	}
	k.mu.Unlock()
	sort.Slice(all, func(i, j int) bool { return all[i].id < all[j].id })
	for _, s := range all {
		h, up := s.held()
		if !up {
			continue // it comes to its engine, or to its end
		}
		if len(out) == page {
			return out, true
		}
		out = append(out, h)
	}
	return out, false
}

func (s *sandbox) held() (h Held, up bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.up {
		return Held{ID: s.id}, false
	}
	return Held{ID: s.id, PID: s.pid, Started: s.started, DeadlineMS: s.deadline, Paused: s.paused, Runtime: s.ask.Runtime}, true
}

// ended names what ended and was not noted yet, in order, behind a name.
func (k *Keeper) ended(after string) (out []Exited, more bool) {
	k.mu.Lock()
	for _, e := range k.past {
		if e.ID > after {
			out = append(out, e)
		}
	}
	k.mu.Unlock()
	sort.Slice(out, func(i, j int) bool { return out[i].ID < out[j].ID })
	return out[:min(len(out), page)], len(out) > page
}

func (k *Keeper) forget(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.past = slices.DeleteFunc(k.past, func(e Exited) bool { return e.ID == id })
}

// attach hands out the descriptors of a sandbox again.
func (k *Keeper) attach(id string) (reply, []*os.File, error) {
	s := k.find(id)
	if s == nil {
		return k.gone(id), nil, nil
	}
	if !s.isUp() {
		return reply{}, nil, notUp(id)
	}
	s.hold.Lock()
	if s.released {
		s.hold.Unlock()
		<-s.gone
		return k.gone(id), nil, nil
	}
	defer s.hold.Unlock()
	if s.agent == nil {
		return reply{}, nil, &Refusal{Code: "host.failure", Message: "this keeper keeps no streams: it ends with its engine"}
	}
	r := reply{PID: s.pid, Parts: map[string]float64{}}
	var out []*os.File
	// The guest's own kernel answers there. One that does not listen is still
	// adopted, and stopped as any other.
	if control, err := k.launcher.Connect(id); err == nil {
		r.Control, out = true, append(out, control)
	}
	agent, err := dup(s.agent)
	if err != nil {
		closeAll(out)
		return reply{}, nil, err
	}
	out = append(out, agent)
	upper, err := readOnly(s.upper)
	if err != nil {
		closeAll(out)
		return reply{}, nil, err
	}
	out, err = s.addGauge(&r, append(out, upper))
	return r, out, err
}

// addGauge adds the figures of s to an answer. On error all of out is closed.
func (s *sandbox) addGauge(r *reply, out []*os.File) ([]*os.File, error) {
	if s.gauge == nil {
		return out, nil
	}
	names, files := s.gauge.Parts()
	r.Gauge, r.V2 = names, s.group.V2
	for _, f := range files { // the caller closes what it sends
		d, err := dup(f)
		if err != nil {
			closeAll(out)
			return nil, err
		}
		out = append(out, d)
	}
	return out, nil
}

// gone answers for a sandbox that does not run, with its end if that is known.
func (k *Keeper) gone(id string) reply {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := reply{Gone: true}
	for _, e := range k.past {
		if e.ID == id {
			r.Exited = &e
		}
	}
	return r
}

// control makes a fresh connection to a sandbox's control server.
func (k *Keeper) control(id string) (reply, []*os.File, error) {
	s := k.find(id)
	if s == nil {
		return k.gone(id), nil, nil
	}
	if !s.isUp() {
		return reply{}, nil, notUp(id)
	}
	f, err := k.launcher.Connect(id)
	if err != nil {
		return reply{}, nil, err
	}
	return reply{Control: true}, []*os.File{f}, nil
}

// isUp waits for the engine that launched s to be told, if that is all that is
// left to do.
func (s *sandbox) isUp() bool {
	s.mu.Lock()
	telling := s.telling
	s.mu.Unlock()
	if telling == nil {
		return false
	}
	<-telling
	_, up := s.held()
	return up
}

func notUp(id string) error {
	return &Refusal{Code: "host.failure", Message: id + " is still being started", Hint: "try again"}
}
