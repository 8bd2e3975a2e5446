package sandbox

import (
	"cmp"
	"context"
	"slices"

	"github.com/bermhq/berm/api"
)

// A Filter selects sandboxes of the caller's own tenant.
type Filter struct {
	Tags  map[string]string // all must match
	State string            // "" for all that have not ended
	Ended bool              // ended ones too
}

// takes says whether b is meant.
func (f Filter) takes(b *box) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case f.State != "" && f.State != string(b.state) && f.State != statuses[b.state]:
		return false
	case f.State == "" && !f.Ended && b.state.final():
		return false
	}
	for k, v := range f.Tags {
		if have, ok := b.public.Tags[k]; !ok || have != v {
			return false
		}
	}
	return true
}

// Sandboxes lists the caller's tenant's sandboxes, newest first. To be listed
// is no activity.
func (e *Engine) Sandboxes(ctx context.Context, f Filter) []api.Sandbox {
	caller := CallerOf(ctx)
	var mine []*box
	e.mu.Lock()
	for _, b := range e.boxes {
		if caller.knows(b) && f.takes(b) {
			mine = append(mine, b)
		}
	}
	e.mu.Unlock()
	slices.SortFunc(mine, func(a, b *box) int {
		return cmp.Or(b.created.Compare(a.created), cmp.Compare(a.id, b.id))
	})
	out := make([]api.Sandbox, 0, len(mine))
	for _, b := range mine {
		out = append(out, b.view())
	}
	return out
}
