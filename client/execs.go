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

// Spawn starts a command that goes on without its caller.
func (c *Client) Spawn(ctx context.Context, id string, req api.ExecRequest) (x api.Exec, err error) {
	req.Detach = true
	err = c.call(ctx, http.MethodPost, sandboxPath(id, "/exec"), req, &x)
	return x, err
}

// Execs lists the commands of a sandbox, newest first.
func (c *Client) Execs(ctx context.Context, id string) ([]api.Exec, error) {
	var l api.ExecList
	err := c.call(ctx, http.MethodGet, sandboxPath(id, "/execs"), nil, &l)
	return l.Execs, err
}

// GetExec returns one of them.
func (c *Client) GetExec(ctx context.Context, id, exec string) (x api.Exec, err error) {
	err = c.call(ctx, http.MethodGet, execPath(id, exec, ""), nil, &x)
	return x, err
}

// Follow gives f the kept output of a detached command from an offset on; with
// follow it goes on until the command has ended. It returns the command as it
// is then. After a broken connection it can be called again with the offset
// behind the last chunk.
func (c *Client) Follow(ctx context.Context, id, exec string, offset int64, follow bool, f func(api.Chunk) error) (x api.Exec, err error) {
	q := url.Values{"offset": {strconv.FormatInt(offset, 10)}}
	if follow {
		q.Set("follow", "1")
	}
	err = c.stream(ctx, withQuery(execPath(id, exec, "/output"), q), func(name string, data []byte) error {
		switch name {
		case "chunk":
			var ch api.Chunk
			if err := json.Unmarshal(data, &ch); err != nil || ch.Offset < 0 || ch.Gap < 0 {
				return fmt.Errorf("a chunk is not what the API says: %v", err)
			}
			return f(ch)
		case "exit":
			if err := json.Unmarshal(data, &x); err != nil {
				return fmt.Errorf("the exit is not what the API says: %w", err)
			}
			return io.EOF
		}
		return nil
	})
	return x, err
}

// Signal sends a signal, TERM or 15, to a command's process group.
func (c *Client) Signal(ctx context.Context, id, exec, signal string) error {
	return c.call(ctx, http.MethodPost, execPath(id, exec, "/signal"), api.SignalRequest{Signal: signal}, nil)
}

// KillExec ends a command with all that it started.
func (c *Client) KillExec(ctx context.Context, id, exec string) error {
	return c.call(ctx, http.MethodDelete, execPath(id, exec, ""), nil, nil)
}

// WriteStdin sends r to the standard input of a detached command, and with end
// closes it. It returns how many bytes were taken.
func (c *Client) WriteStdin(ctx context.Context, id, exec string, r io.Reader, end bool) (int64, error) {
	path := execPath(id, exec, "/stdin")
	if end {
		path += "?end=1"
	}
	resp, err := c.do(ctx, http.MethodPost, path, r, http.Header{"Content-Type": {"application/octet-stream"}})
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNoContent {
		return 0, nil
	}
	var w api.Written
	err = decode(resp, maxBody, &w, http.MethodPost, path)
	return w.Bytes, err
}

func execPath(id, exec, rest string) string {
	return sandboxPath(id, "/execs/"+url.PathEscape(exec)+rest)
}
