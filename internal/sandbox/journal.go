package sandbox

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/bermhq/berm/api"
)

// ErrBudget is wrapped by the answer of a Journal for a sandbox that has
// written all that it may.
var ErrBudget = errors.New("event budget used up")

// A Journal keeps what must outlive the process. nil in Options means that
// nothing does, as for `berm run` without a daemon.
type Journal interface {
	// Append puts events on disk, in this order, before it returns. An error
	// refuses what they decide.
	Append(ctx context.Context, events ...api.Event) error
	// Note takes an event of something that was decided before; it is on disk
	// within 50 ms. ErrBudget says that the sandbox has used up what it may
	// write: it must end with api.EndPolicy.
	Note(event api.Event) error
	// Save, Load and Drop keep one record per sandbox; Save returns when it is
	// on disk.
	Save(id string, record json.RawMessage) error
	Load() (map[string]json.RawMessage, error)
	Drop(id string) error
	// Head is the sequence number of the last event on disk, 0 for none.
	Head() uint64
	// Replay gives f the events after a sequence number, in order, those of
	// sandboxes only (the ones with a sandbox id). It stops at an error of f.
	Replay(ctx context.Context, after uint64, f func(api.Event) error) error
}
