package sandbox

import (
	"context"

	"github.com/bermhq/berm/api"
)

// A Caller is who asks. It travels in the context of every request, so that
// one function can say whose a sandbox is, and every event whose doing it was.
type Caller struct {
	Tenant  string
	Actor   string // id of the token
	Role    string
	Ceiling *api.Policy // the most that a sandbox made with this token can get; nil: the daemon's bounds
	Default *api.Policy // what it gets when the request says nothing; nil: closed
}

// Local is the caller of an engine that serves one command line only: whoever
// holds the other end of its socket.
var Local = Caller{Tenant: api.DefaultTenant, Actor: "local", Role: api.RoleAdmin}

// knows says whether a sandbox exists for a caller. One that a build makes a
// layer in does so only for those who may make templates.
func (c Caller) knows(b *box) bool {
	return b.tenant == c.Tenant && (!b.step || api.Rank(c.Role) >= api.Rank(api.RoleOperator))
}

type callerKey struct{}

// As returns ctx with a caller.
func As(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// CallerOf is the caller of ctx, or Local.
func CallerOf(ctx context.Context) Caller {
	if c, ok := ctx.Value(callerKey{}).(Caller); ok {
		return c
	}
	return Local
}
