package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/bermhq/berm/api"
)

// TarIn unpacks a tar stream below path inside a sandbox.
func (c *Client) TarIn(ctx context.Context, id, path string, r io.Reader) error {
	resp, err := c.do(ctx, http.MethodPut, sandboxPath(id, "/archive?path="+url.QueryEscape(path)), r,
		http.Header{"Content-Type": {"application/x-tar"}})
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// Glob lists what matches a pattern; a relative one is below /workspace.
func (c *Client) Glob(ctx context.Context, id, pattern string) (l api.FileList, err error) {
	err = c.call(ctx, http.MethodGet, sandboxPath(id, "/glob?pattern="+url.QueryEscape(pattern)), nil, &l)
	return l, err
}

// List lists a directory and everything below it.
func (c *Client) List(ctx context.Context, id, path string) (l api.FileList, err error) {
	err = c.call(ctx, http.MethodGet, sandboxPath(id, "/list?path="+url.QueryEscape(path)), nil, &l)
	return l, err
}

// errMore is what a reader says when the server sends more than was asked for.
var errMore = errors.New("the file is larger than allowed")

// ReadFile opens one regular file. The reader fails with an error if the file
// has more than max bytes, whatever the server says.
func (c *Client) ReadFile(ctx context.Context, id, path string, max int64) (io.ReadCloser, error) {
	resp, err := c.do(ctx, http.MethodGet,
		sandboxPath(id, "/files?path="+url.QueryEscape(path)+"&max="+strconv.FormatInt(max, 10)), nil, nil)
	if err != nil {
		return nil, err
	}
	return &capped{r: resp.Body, left: max}, nil
}

type capped struct {
	r    io.ReadCloser
	left int64
}

func (c *capped) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	if c.left -= int64(n); c.left < 0 {
		return max(0, n+int(c.left)), errMore
	}
	return n, err
}

func (c *capped) Close() error { return c.r.Close() }
