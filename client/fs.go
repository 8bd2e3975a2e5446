package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/bermhq/berm/api"
)

func fsPath(id, route, path string) string {
	return sandboxPath(id, route+"?path="+url.QueryEscape(path))
}

// Stat looks at one file; it follows no link.
func (c *Client) Stat(ctx context.Context, id, path string) (e api.DirEntry, err error) {
	err = c.call(ctx, http.MethodGet, fsPath(id, "/fs/stat", path), nil, &e)
	return e, err
}

// ListDir lists one directory.
func (c *Client) ListDir(ctx context.Context, id, path string) (l api.DirList, err error) {
	err = c.call(ctx, http.MethodGet, fsPath(id, "/fs/dir", path), nil, &l)
	return l, err
}

// OpenFile reads one regular file, however long it is.
func (c *Client) OpenFile(ctx context.Context, id, path string) (io.ReadCloser, error) {
	resp, err := c.do(ctx, http.MethodGet, fsPath(id, "/fs", path), nil, nil)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// WriteFile makes or replaces a file, parents included, with what r holds. It
// appears under its name when it is whole. mode 0 is the server's choice.
func (c *Client) WriteFile(ctx context.Context, id, path string, mode uint32, r io.Reader) (int64, error) {
	to := fsPath(id, "/fs", path)
	if mode != 0 {
		to += "&mode=0" + strconv.FormatUint(uint64(mode&0o777), 8)
	}
	resp, err := c.do(ctx, http.MethodPut, to, r, http.Header{"Content-Type": {"application/octet-stream"}})
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	var w api.Written
	err = decode(resp, maxBody, &w, http.MethodPut, to)
	return w.Bytes, err
}

// Mkdir makes a directory and its parents.
func (c *Client) Mkdir(ctx context.Context, id, path string) error {
	return c.call(ctx, http.MethodPost, fsPath(id, "/fs/dir", path), nil, nil)
}

// Move renames.
func (c *Client) Move(ctx context.Context, id, from, to string) error {
	return c.call(ctx, http.MethodPost, sandboxPath(id, "/fs/move"), api.MoveRequest{From: from, To: to}, nil)
}

// Remove removes a file or a whole directory.
func (c *Client) Remove(ctx context.Context, id, path string) error {
	return c.call(ctx, http.MethodDelete, fsPath(id, "/fs", path), nil, nil)
}

// Watch tells f what changes below a directory until ctx is over or f returns
// an error; io.EOF is a good end. ready, if not nil, is called when nothing is
// missed any more.
func (c *Client) Watch(ctx context.Context, id, dir string, recursive bool, ready func(), f func(api.FileEvent) error) error {
	path := fsPath(id, "/fs/watch", dir)
	if recursive {
		path += "&recursive=1"
	}
	return c.stream(ctx, path, func(name string, data []byte) error {
		switch name {
		case "ready":
			if ready != nil {
				ready()
			}
		case "change":
			var e api.FileEvent
			if err := json.Unmarshal(data, &e); err != nil {
				return fmt.Errorf("a change is not what the API says: %w", err)
			}
			return f(e)
		}
		return nil
	})
}

// TarOut is what lies below dir, all of it or only some names, as a tar stream.
// Nothing in it is to be trusted; Extract brings files to this host.
func (c *Client) TarOut(ctx context.Context, id, dir string, names ...string) (io.ReadCloser, error) {
	path := fsPath(id, "/archive", dir)
	for _, n := range names {
		path += "&name=" + url.QueryEscape(n)
	}
	resp, err := c.do(ctx, http.MethodGet, path, nil, nil)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}
