package server

import (
	"context"
	"net/http"
)

// hang makes a context that ends with ctx, and also with life, for its reason.
func hang(ctx, life context.Context) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancelCause(ctx)
	stop := context.AfterFunc(life, func() { end(context.Cause(life)) })
	return ctx, func() { stop(); end(nil) }
}

// upgraded is the context of a connection that has left HTTP. The request's own
// ends as soon as its client closes one half; this one only when the token
// stops to work.
func upgraded(r *http.Request) (context.Context, context.CancelFunc) {
	return hang(context.WithoutCancel(r.Context()), callOf(r).life)
}
