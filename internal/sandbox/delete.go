package sandbox

import (
	"context"

	"github.com/bermhq/berm/api"
)

// Delete ends a sandbox and reports what remains of it. It is idempotent: a
// sandbox that has ended, by itself too, gives the same report again.
func (e *Engine) Delete(ctx context.Context, id string) (api.EndReport, error) {
	b, err := e.find(ctx, id)
	if err != nil {
		return api.EndReport{}, err
	}
	return e.remove(b, CallerOf(ctx).Actor)
}

// remove ends b because somebody asked. The caller's patience does not matter:
// half an end is none.
func (e *Engine) remove(b *box, actor string) (api.EndReport, error) {
	b.mu.Lock()
	if b.ending == "" {
		b.ender = actor
	}
	report := b.report
	b.mu.Unlock()
	if report == nil {
		if err := e.stop(b, api.EndKilled); err != nil {
			return api.EndReport{}, err
		}
		<-b.settled // bounded by Settle and Record
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return *b.report, nil
}

// Report is what remains of a sandbox that has ended, or what there is to say of
// one that has not.
func (e *Engine) Report(ctx context.Context, id string) (api.EndReport, bool, error) {
	b, err := e.find(ctx, id)
	if err != nil {
		return api.EndReport{}, false, err
	}
	if !b.now().final() {
		b.sample()
	}
	now := e.endReport(b)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.report != nil {
		return *b.report, true, nil
	}
	return *now, false, nil
}
