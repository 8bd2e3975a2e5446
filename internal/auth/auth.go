// Package auth keeps the tokens: who may come in, as whom, and the most they
// can get. A token is 160 random bits and shown once; what is kept is its
// SHA-256, so whoever reads the state cannot use it.
//
// Every token belongs to a tenant. Admins of the default tenant are the node's:
// they make tokens for every tenant. An admin of another tenant makes, sees and
// revokes only that tenant's.
package auth

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/bermhq/berm/api"
)

// Identity is whom a token speaks for.
type Identity struct {
	TokenID string
	Tenant  string
	Role    string
	Ceiling *api.Policy // the most that a sandbox made with it can get; nil: the daemon's bounds
	Default *api.Policy // what it gets when the request says nothing; nil: closed
}

// Local is whoever holds the other end of the owner's own socket.
var Local = Identity{TokenID: "local", Tenant: api.DefaultTenant, Role: api.RoleAdmin}

// A Bucket keeps one record per token; internal/store has it.
type Bucket interface {
	Put(key string, v any) error
	Delete(key string) error
	Each(f func(key string, value json.RawMessage) error) error
}

// Tokens are the tokens of a node.
type Tokens struct{}

// Open reads the tokens from their bucket. record puts an event on disk; every
// creation and revocation goes through it before it takes effect.
func Open(b Bucket, record func(context.Context, ...api.Event) error) (*Tokens, error) {
	return nil, errors.ErrUnsupported
}

// Check says whom a token speaks for. Unknown, revoked and expired ones are
// refused alike, with api.CodeTokenInvalid; "" with api.CodeTokenMissing.
func (t *Tokens) Check(token string) (Identity, error) { return Identity{}, errors.ErrUnsupported }

// Create makes a token in the name of by, with no more rights than by has.
func (t *Tokens) Create(ctx context.Context, by Identity, r api.TokenRequest) (api.NewToken, error) {
	return api.NewToken{}, errors.ErrUnsupported
}

// Revoke ends a token, named by its id or its prefix.
func (t *Tokens) Revoke(ctx context.Context, by Identity, idOrPrefix string) error {
	return errors.ErrUnsupported
}

// List is every token that by may see, newest first.
func (t *Tokens) List(by Identity) []api.Token { return nil }

// Bootstrap answers the admin token of the first start. current is what the
// token file holds, "" for no file: a token that is still good is answered
// again, and made is false. Otherwise one is made, unless another admin token is
// good; the caller writes it where only the owner reads.
func (t *Tokens) Bootstrap(ctx context.Context, current string) (token string, made bool, err error) {
	return "", false, errors.ErrUnsupported
}
