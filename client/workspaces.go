package client

import (
	"context"
	"io"
	"net/http"
	"net/url"

	"github.com/bermhq/berm/api"
)

// PutWorkspace keeps a tree that sandboxes can find in /workspace: a tar of
// it, or with a parent of what has changed since, where a file .wh.NAME says
// that NAME is gone.
func (c *Client) PutWorkspace(ctx context.Context, parent string, tree io.Reader) (t api.WorkTree, err error) {
	path := "/v1/workspaces"
	if parent != "" {
		path += "?parent=" + url.QueryEscape(parent)
	}
	resp, err := c.do(ctx, http.MethodPost, path, tree, http.Header{"Content-Type": {"application/x-tar"}})
	if err != nil {
		return t, err
	}
	defer resp.Body.Close()
	return t, decode(resp, maxBody, &t, http.MethodPost, path)
}

// Workspace says whether a tree is still kept; if not, the error's code is
// api.CodeWorkspaceNotFound.
func (c *Client) Workspace(ctx context.Context, id string) (t api.WorkTree, err error) {
	err = c.call(ctx, http.MethodGet, "/v1/workspaces/"+segment(id), nil, &t)
	return t, err
}
