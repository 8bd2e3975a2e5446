package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/bermhq/berm/api"
)

// A Filter selects sandboxes. The zero value is all that have not ended.
type Filter struct {
	Tags    map[string]string // all must match
	State   string
	Session string
	RunID   string
	Ended   bool // ended ones too
}

// pageSize is how many sandboxes are asked for at a time, maxPages how often.
const pageSize, maxPages = 500, 200

// Sandboxes lists sandboxes, newest first.
func (c *Client) Sandboxes(ctx context.Context, f Filter) (list []api.Sandbox, err error) {
	q := url.Values{"limit": {strconv.Itoa(pageSize)}}
	for k, v := range f.Tags {
		q.Set("tag."+k, v)
	}
	for k, v := range map[string]string{"state": f.State, "session": f.Session, "run_id": f.RunID} {
		if v != "" {
			q.Set(k, v)
		}
	}
	if f.Ended {
		q.Set("ended", "1")
	}
	for range maxPages {
		var page []api.Sandbox
		if err := c.call(ctx, http.MethodGet, withQuery("/v1/sandboxes", q), nil, &page); err != nil {
			return nil, err
		}
		list = append(list, page...)
		if len(page) < pageSize {
			break
		}
		q.Set("after", page[len(page)-1].SandboxID)
	}
	return list, nil
}

// Create makes a sandbox. When the connection breaks it asks again under the
// same key, so that one call never makes two.
func (c *Client) Create(ctx context.Context, req api.CreateRequest) (sb api.Sandbox, err error) {
	key := api.NewID(api.KindRequest)
	err = again(ctx, func() error {
		sb = api.Sandbox{}
		return c.callWith(ctx, http.MethodPost, "/v1/sandboxes", http.Header{"Idempotency-Key": {key}}, req, &sb)
	})
	return sb, err
}

// A Bound holds a sandbox: the server ends it when this is closed, or when this
// process is gone.
type Bound struct {
	stream *Stream
	once   sync.Once
}

// Close lets go; the server deletes the sandbox, if it is still there.
func (b *Bound) Close() (err error) {
	b.once.Do(func() { err = b.stream.Close() })
	return err
}

// CreateBound makes a sandbox that lives no longer than the Bound. When ctx ends
// before it is there, none is made.
func (c *Client) CreateBound(ctx context.Context, req api.CreateRequest) (sb api.Sandbox, _ *Bound, err error) {
	body, err := json.Marshal(req)
	if err != nil {
		return sb, nil, err
	}
	s, err := c.upgrade(ctx, http.MethodPost, "/v1/sandboxes", api.BoundProtocol, string(body))
	if err != nil {
		return sb, nil, err
	}
	s.SetReadDeadline(time.Now().Add(10 * time.Second)) // it is there already
	line, err := boundedLine(s.r, 1<<20)
	if err == nil {
		err = json.Unmarshal(line, &sb)
	}
	if err != nil || sb.SandboxID == "" {
		s.Close()
		return sb, nil, fmt.Errorf("POST /v1/sandboxes: the answer is not what the API says: %v", err)
	}
	s.SetReadDeadline(time.Time{})
	return sb, &Bound{stream: s}, nil
}

// boundedLine reads a line of at most n bytes.
func boundedLine(r *bufio.Reader, n int) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(line)+len(part) > n {
			return nil, fmt.Errorf("%w than %d bytes", errLonger, n)
		}
		line = append(line, part...)
		if err != bufio.ErrBufferFull {
			return bytes.TrimRight(line, "\r\n"), err
		}
	}
}

// Get returns a sandbox.
func (c *Client) Get(ctx context.Context, id string) (sb api.Sandbox, err error) {
	err = c.call(ctx, http.MethodGet, sandboxPath(id, ""), nil, &sb)
	return sb, err
}

// Delete ends a sandbox and says what remains of it.
func (c *Client) Delete(ctx context.Context, id string) (report api.EndReport, err error) {
	resp, err := c.do(ctx, http.MethodDelete, sandboxPath(id, "?report=1"), nil, nil)
	if err != nil {
		return report, err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNoContent { // it had ended long ago
		report.SandboxID = id
		return report, nil
	}
	return report, decode(resp, maxBody, &report, http.MethodDelete, sandboxPath(id, ""))
}

// Report says what was done in a sandbox and how it ended.
func (c *Client) Report(ctx context.Context, id string) (r api.Report, err error) {
	err = c.call(ctx, http.MethodGet, sandboxPath(id, "/report"), nil, &r)
	return r, err
}

// Lifecycle says what ends a sandbox by time.
func (c *Client) Lifecycle(ctx context.Context, id string) (l api.Lifecycle, err error) {
	err = c.call(ctx, http.MethodGet, sandboxPath(id, "/lifecycle"), nil, &l)
	return l, err
}

// SetLifecycle changes it.
func (c *Client) SetLifecycle(ctx context.Context, id string, ch api.LifecycleChange) (l api.Lifecycle, err error) {
	err = c.call(ctx, http.MethodPatch, sandboxPath(id, "/lifecycle"), ch, &l)
	return l, err
}

// Tags returns the tags of a sandbox.
func (c *Client) Tags(ctx context.Context, id string) (tags map[string]string, err error) {
	err = c.call(ctx, http.MethodGet, sandboxPath(id, "/metadata"), nil, &tags)
	return tags, err
}

// SetTags sets tags; a nil value removes one.
func (c *Client) SetTags(ctx context.Context, id string, ch api.MetadataChange) error {
	return c.call(ctx, http.MethodPatch, sandboxPath(id, "/metadata"), ch, nil)
}

// Pause stops everything in a sandbox.
func (c *Client) Pause(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodPost, sandboxPath(id, "/pause"), nil, nil)
}

// Resume lets a paused sandbox go on.
func (c *Client) Resume(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodPost, sandboxPath(id, "/resume"), nil, nil)
}

// Metrics says what a sandbox uses now.
func (c *Client) Metrics(ctx context.Context, id string) (m api.Metrics, err error) {
	err = c.call(ctx, http.MethodGet, sandboxPath(id, "/metrics"), nil, &m)
	return m, err
}

// sandboxPath is a route of one sandbox. An id that could mean another route is
// spoilt on purpose.
func sandboxPath(id, rest string) string {
	return "/v1/sandboxes/" + segment(id) + rest
}

// segment is a name as one part of a path.
func segment(name string) string {
	if strings.Trim(name, ".") == "" {
		name = "none"
	}
	return url.PathEscape(name)
}

func withQuery(path string, q url.Values) string {
	if len(q) == 0 {
		return path
	}
	return path + "?" + q.Encode()
}
