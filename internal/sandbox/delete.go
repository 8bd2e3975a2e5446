package sandbox

import (
	"context"
	"time"

	"github.com/bermhq/berm/api"
)

// Delete ends a sandbox and reports what remains of it. It is idempotent: a
// sandbox that has ended, by itself too, gives the same report again.
func (e *Engine) Delete(ctx context.Context, id string) (api.EndReport, error) {
	b, err := e.find(ctx, id)
	if err != nil {
		return api.EndReport{}, err
	}
	return e.remove(b)
}

// remove ends b because somebody asked. The caller's patience does not matter:
// half an end is none.
func (e *Engine) remove(b *box) (api.EndReport, error) {
	began := time.Now()
	err := e.stop(b, api.EndKilled)
	took := time.Since(began)
	figures := b.figures()

	b.mu.Lock()
	defer b.mu.Unlock()
	if b.report == nil {
		b.public.TimingsMS["teardown"] = ms(took)
		b.report = &api.EndReport{
			SandboxID: b.id,
			Ending:    b.ending,
			CapsHit:   b.caps.list(),
			Usage:     figures,
			TimingsMS: map[string]float64{},
		}
		for k, v := range b.public.TimingsMS {
			b.report.TimingsMS[k] = v
		}
	}
	if err != nil {
		b.report = nil
		return api.EndReport{}, err
	}
	return *b.report, nil
}
