package client

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/bermhq/berm/api"
)

// Egress says what a sandbox may reach, and what it has.
func (c *Client) Egress(ctx context.Context, id string) (s api.EgressState, err error) {
	err = c.call(ctx, http.MethodGet, sandboxPath(id, "/egress"), nil, &s)
	return s, err
}

// ChangeEgress puts another document in force, an array of rules; [] denies all.
func (c *Client) ChangeEgress(ctx context.Context, id string, rules json.RawMessage) (s api.EgressState, err error) {
	err = c.call(ctx, http.MethodPatch, sandboxPath(id, "/egress"), api.EgressChange{Egress: rules}, &s)
	return s, err
}
