package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/bermhq/berm/api"
)

// Healthy says whether a server answers.
func (c *Client) Healthy(ctx context.Context) error {
	resp, err := c.do(ctx, http.MethodGet, "/healthz", nil, nil)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// Version is the server's.
func (c *Client) Version(ctx context.Context) (v api.Version, err error) {
	err = c.call(ctx, http.MethodGet, "/v1/version", nil, &v)
	return v, err
}

// Routes is the server's table of routes.
func (c *Client) Routes(ctx context.Context) (r []api.Route, err error) {
	err = c.call(ctx, http.MethodGet, "/v1/routes", nil, &r)
	return r, err
}

// Me says who the token is.
func (c *Client) Me(ctx context.Context) (m api.Me, err error) {
	err = c.call(ctx, http.MethodGet, "/v1/me", nil, &m)
	return m, err
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

// Top is one look at everything that runs.
func (c *Client) Top(ctx context.Context) (t api.Top, err error) {
	err = c.call(ctx, http.MethodGet, "/v1/top", nil, &t)
	return t, err
}

// Tokens lists the tokens that are known.
func (c *Client) Tokens(ctx context.Context) ([]api.Token, error) {
	var l api.TokenList
	err := c.call(ctx, http.MethodGet, "/v1/tokens", nil, &l)
	return l.Items, err
}

// CreateToken makes a token. Its answer is the only one that holds it.
func (c *Client) CreateToken(ctx context.Context, req api.TokenRequest) (t api.NewToken, err error) {
	err = c.call(ctx, http.MethodPost, "/v1/tokens", req, &t)
	return t, err
}

// RevokeToken revokes a token by its id or prefix.
func (c *Client) RevokeToken(ctx context.Context, token string) error {
	return c.call(ctx, http.MethodDelete, "/v1/tokens/"+url.PathEscape(token), nil, nil)
}
