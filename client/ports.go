package client

import (
	"context"
	"net/http"
	"strconv"

	"github.com/bermhq/berm/api"
)

// Ports lists the TCP ports that something listens on inside.
func (c *Client) Ports(ctx context.Context, id string) (list []api.Port, err error) {
	err = c.call(ctx, http.MethodGet, sandboxPath(id, "/ports"), nil, &list)
	return list, err
}

// DialPort connects to a port on the sandbox's own loopback. ctx is for the
// dialling only.
func (c *Client) DialPort(ctx context.Context, id string, port int) (*Stream, error) {
	return c.upgrade(ctx, http.MethodGet, sandboxPath(id, "/dial/"+strconv.Itoa(port)), api.StreamProtocol, "")
}
