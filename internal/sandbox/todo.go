package sandbox

import "context"

// Adopt takes over what an engine before this one has left running, from the
// journal's records and what the backends still hold.
func (e *Engine) Adopt(ctx context.Context) error { return nil }
