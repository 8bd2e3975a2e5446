package client

import (
	"context"
	"io"
	"net/http"
	"net/url"
)

// Changes opens what was written below dir since the sandbox began, as a tar:
// names relative to dir, and a file .wh.NAME for what is gone. It takes a
// sandbox with track or a workspace.
func (c *Client) Changes(ctx context.Context, id, dir string) (io.ReadCloser, error) {
	resp, err := c.do(ctx, http.MethodGet, sandboxPath(id, "/changes?dir="+url.QueryEscape(dir)), nil, nil)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}
