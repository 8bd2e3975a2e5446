package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/sandbox"
	"github.com/bermhq/berm/internal/server"
	"github.com/bermhq/berm/internal/store"
)

// A journal is the engine's memory in the store.
type journal struct {
	log   *store.Store
	box   *store.Bucket // sandbox id -> record
	meter *server.Meter
}

func (j journal) Append(ctx context.Context, ev ...api.Event) error {
	began := time.Now()
	err := j.log.Append(ctx, ev...)
	j.meter.Append(time.Since(began), err)
	return budget(err)
}

func (j journal) Note(ev api.Event) error { return budget(j.log.Note(ev)) }

// budget gives a refusal the engine's name for it.
func budget(err error) error {
	if errors.Is(err, store.ErrBudget) {
		return fmt.Errorf("%w: %w", sandbox.ErrBudget, err)
	}
	return err
}

func (j journal) Save(id string, record json.RawMessage) error { return j.box.Put(id, record) }

func (j journal) Drop(id string) error { return j.box.Delete(id) }

func (j journal) Load() (map[string]json.RawMessage, error) {
	all := map[string]json.RawMessage{}
	err := j.box.Each(func(id string, record json.RawMessage) error {
		all[id] = append(json.RawMessage(nil), record...)
		return nil
	})
	return all, err
}

// Head is the number of the last event.
func (j journal) Head() uint64 { return j.log.Head().Seq }

// Replay gives f what happened to sandboxes after a number.
func (j journal) Replay(ctx context.Context, after uint64, f func(api.Event) error) error {
	for {
		events, next, err := j.log.Events(store.Query{After: after, Limit: store.MaxEvents})
		if err != nil || next <= after {
			return err
		}
		after = next
		for _, ev := range events {
			if ev.SandboxID == "" {
				continue
			}
			if err := f(ev); err != nil {
				return err
			}
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}
