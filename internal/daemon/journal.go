package daemon

import (
	"context"
	"encoding/json"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/store"
)

// A journal is the engine's memory in the store.
type journal struct {
	log *store.Store
	box *store.Bucket // sandbox id -> record
}

func (j journal) Append(ctx context.Context, ev ...api.Event) error { return j.log.Append(ctx, ev...) }

func (j journal) Note(ev api.Event) error { return j.log.Note(ev) }

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
