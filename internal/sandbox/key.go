package sandbox

import (
	"context"
	"strings"

	"github.com/bermhq/berm/api"
)

// ByKey finds the caller's tenant's sandbox that was made with a Key that
// begins so, and returns the whole Key. It is kept with the sandbox, so that a
// client that asks again after the daemon was killed gets the one that was made.
func (e *Engine) ByKey(ctx context.Context, prefix string) (sb api.Sandbox, key string, ok bool) {
	tenant := CallerOf(ctx).Tenant
	e.mu.Lock()
	var found *box
	for _, b := range e.boxes {
		if b.key != "" && b.tenant == tenant && strings.HasPrefix(b.key, prefix) {
			found = b
			break
		}
	}
	e.mu.Unlock()
	if found == nil {
		return sb, "", false
	}
	return found.view(), found.key, true
}
