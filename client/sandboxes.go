package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/bermhq/berm/api"
)

// Create makes a sandbox.
func (c *Client) Create(ctx context.Context, req api.CreateRequest) (sb api.Sandbox, err error) {
	err = c.call(ctx, http.MethodPost, "/v1/sandboxes", req, &sb)
	return sb, err
}

// Get returns a sandbox.
func (c *Client) Get(ctx context.Context, id string) (sb api.Sandbox, err error) {
	err = c.call(ctx, http.MethodGet, sandboxPath(id, ""), nil, &sb)
	return sb, err
}

// Delete ends a sandbox and says what remains of it.
func (c *Client) Delete(ctx context.Context, id string) (report api.EndReport, err error) {
	err = c.call(ctx, http.MethodDelete, sandboxPath(id, "?report=1"), nil, &report)
	return report, err
}

// Doctor says what the server's host offers.
func (c *Client) Doctor(ctx context.Context) (d api.Doctor, err error) {
	err = c.call(ctx, http.MethodGet, "/v1/doctor", nil, &d)
	return d, err
}

// Leaks lists what ended sandboxes have left on the host.
func (c *Client) Leaks(ctx context.Context) (l api.LeakList, err error) {
	err = c.call(ctx, http.MethodGet, "/v1/doctor/leaks", nil, &l)
	return l, err
}

func sandboxPath(id, rest string) string { return "/v1/sandboxes/" + url.PathEscape(id) + rest }
