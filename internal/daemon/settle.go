package daemon

import (
	"log/slog"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/auth"
	"github.com/bermhq/berm/internal/store"
)

// settle has the tokens learn what the log says was revoked: the log comes first,
// and the database may have missed it in a crash, on a full disk, or be an older
// copy. It goes on from where it came to last time, which the same database says.
func settle(log *store.Store, tokens *auth.Tokens, say *slog.Logger) error {
	places := log.Bucket("audit")
	var from struct {
		Seq uint64 `json:"seq"`
	}
	head := log.Head().Seq
	if ok, err := places.Get("settled", &from); err != nil || !ok || from.Seq > head {
		from.Seq = 0 // all of it, or all of a new one
	}
	missed := false
	for from.Seq < head {
		events, next, err := log.Events(store.Query{After: from.Seq, Types: []string{api.EventTokenRevoked}, Limit: store.MaxEvents})
		if err != nil {
			return err
		}
		for i := range events {
			if err := tokens.Settle(&events[i]); err != nil {
				say.Warn("a revoked token is not kept as one; the next start does it again", "seq", events[i].Seq, "error", err)
				missed = true
			}
		}
		if next <= from.Seq {
			break
		}
		from.Seq = next
	}
	if missed {
		return nil
	}
	if err := places.Put("settled", from); err != nil {
		say.Warn("the next start reads more of the audit log", "error", err)
	}
	return nil
}
